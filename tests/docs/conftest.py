"""The scripts of the documentation are in docs/, next to its pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
