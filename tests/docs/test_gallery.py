"""The gallery: short examples with a title and an explanation. `make docs` runs them."""

import ast
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "gallery").glob("*.py"))


def test_there_are_at_least_ten_examples() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_has_a_title_and_an_explanation(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, underline, *text = (ast.get_docstring(tree) or "").splitlines()
    assert title
    assert underline == "=" * len(title)
    assert len(" ".join(text)) > 50
    code = source.splitlines()[tree.body[0].end_lineno :]
    assert sum(bool(line.strip()) for line in code) < 30


def test_the_fine_tuning_example_is_short_and_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = EXAMPLES[0].parents[1] / "finetuning.py"
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 80
    small = source.replace("2, 40, 25, 500, 500, 10.0", "1, 1, 5, 40, 5, 10.0")
    assert small != source
    exec(compile(small, path, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.count("%") == 3
