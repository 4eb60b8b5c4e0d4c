"""The hues of the page are those of the figures."""

from pathlib import Path

import numpy as np
import pytest

from explorer.node import PAGE, needs_node, run_node


@needs_node
@pytest.mark.parametrize("features", [1, 2, 3, 8, 16, 25, 48])
def test_hues_are_those_of_the_figures(features: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from whatwhere.figures.tiles import feature_colours

    script = tmp_path / "colours.mjs"
    script.write_text(
        f'import {{ featureColours }} from "{(PAGE / "pictures.js").as_uri()}";\n'
        f"console.log(JSON.stringify(featureColours({features})));\n"
    )
    np.testing.assert_allclose(run_node(script), feature_colours(features), atol=1e-9)
