"""Formulas of the site as MathML, which browsers draw without a script and without a network.

`$…$` and `$$…$$` in a page are LaTeX, converted when the site is built.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util.logging import getLogger

BARS = ("&#x0007C;", "&#x02016;")  # | and ‖


def to_mathml(latex: str, display: str) -> str:
    """A formula as MathML.

    display  'inline' in a line of text, 'block' on lines of its own
    """
    mathml: str = convert(latex, display=display)
    for bar in BARS:  # a bar that stretches is as high as the superscript after it
        mathml = mathml.replace(f"<mo>{bar}</mo>", f'<mo stretchy="false">{bar}</mo>')
    return mathml


def draw(translator: Any, node: nodes.math | nodes.math_block, display: str) -> None:
    latex = node.astext()
    mathml = to_mathml(latex, display)
    if "\\" in mathml:
        getLogger(__name__).warning("unknown LaTeX in %s", latex, location=node)
    if display == "inline":
        translator.body.append(mathml)
    else:
        # on a phone a long formula is scrolled, so keys have to reach it
        translator.body.append(
            f'<div class="ww-formula" tabindex="0" role="group" aria-label="formula">{mathml}</div>'
        )
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: draw(self, node, "inline"), None),
        block_renderers=(lambda self, node: draw(self, node, "block"), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
