"""Measuring speed: engines on the same images, side by side, and the machine they ran on."""
