"""Pages in the browser: the explorer, labelling, reports, and the server for the first two."""

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
"""The folder of scripts, styles and templates."""
