"""Trials behind choices, and why some claims of the paper do not hold: scripts with their logs."""
