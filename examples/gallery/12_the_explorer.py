"""
The explorer, live
==================

This page contains the page of ``whatwhere explore``. Draw a digit, watch the model explain it, and
move a feature. The model runs in your browser and sends nothing anywhere.
"""

# sphinx_gallery_thumbnail_path = 'images/explorer.png'
from pathlib import Path

import numpy as np

import whatwhere as ww
from whatwhere.explorer.page import Explorer

model, recipe = ww.load("mnist"), ww.Recipe.paper()
examples = ww.data.load("digits", split="test").subset(np.arange(60))
page = Explorer(model, recipe, examples, name="mnist").export()
# next to this page
folder = Path("../../docs/_static") if Path("../../docs/_static").is_dir() else Path()
(folder / "explorer.html").write_text(page, encoding="utf-8")


class Frame:
    def _repr_html_(self):
        return (
            '<iframe class="ww-explorer" src="../_static/explorer.html" title="The'
            ' explorer"></iframe>'
        )


Frame()
