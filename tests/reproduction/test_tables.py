"""The paper's tables as data: its numbers, cells that are the same, claims that name cells that exist."""

from dataclasses import replace

import pytest

from whatwhere.errors import SpecError
from whatwhere.inference.plan import ONE_PHASE_WITHOUT_U1, TWO_PHASES
from whatwhere.reproduction.claims import OPEN, evaluate_claim, measured
from whatwhere.reproduction.results import Results
from whatwhere.reproduction.scales import SCALES, read_scale
from whatwhere.reproduction.subjects import model_subject
from whatwhere.reproduction.tables import CHOICE, TABLES, cells_of, read_table
from whatwhere.spec import Recipe

PRINTED = {  # copied from the paper, row by row
    "pooling": {"Gaussian pooling": [1.38, 0.84], "Max pooling": [1.30, 1.25]},
    "joint": {
        "Updating F₁ and U₁": [1.79, 1.63, 1.40],
        "Updating F₁": [1.71, 1.21, 1.10],
        "Updating U₁": [1.39, 1.04, 0.84],
        "No updates of layer 1": [1.46, 0.99, 1.03],
    },
    "nonnegativity": {"Max pooling": [2.04, 1.25], "Gaussian pooling": [2.32, 0.84]},
    "reset": {"Gaussian pooling, 2 layers": [1.00, 0.84]},
    "sparsity": {"ℓ0.5 training": [4.2], "ℓ1 training": [20.2]},
}


def cell(table, name, scale="paper"):
    return next(c for c in cells_of(table, read_scale(scale)) if c.name == name)


@pytest.mark.parametrize("table", PRINTED)
def test_the_numbers_beside_ours_are_those_of_the_paper(table):
    found = {}
    for c in cells_of(table, read_scale("paper")):
        found.setdefault(c.row, []).append(c.paper)
    assert found == PRINTED[table]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("table", [*TABLES, CHOICE])
def test_every_claim_names_cells_that_exist_and_is_open_before_anything_is_run(table, scale, tmp_path):
    cells = measured(cells_of(table, read_scale(scale)), Results(tmp_path))
    for claim in read_table(table).claims:
        if claim.scale in ("", scale):
            assert evaluate_claim(claim, cells).verdict == OPEN
    assert read_table(table).claims or table == CHOICE


def test_a_scale_with_few_images_has_no_columns_of_more_labels():
    scale = read_scale("quick")
    assert scale.data.limit == 1000
    columns = {c.column for c in cells_of("comparison", scale)}
    assert columns == {"all labels", "300 labels", "100 labels"}
    assert "3000 labels" in {c.column for c in cells_of("comparison", read_scale("paper"))}


def test_cells_that_are_the_same_share_one_result():
    (headline,) = cell("pooling", "Gaussian pooling / Layer 2").subjects
    for table, name in (
        ("joint", "Updating U₁ / 1 phase"),
        ("nonnegativity", "Gaussian pooling / Non-negative"),
        ("reset", "Gaussian pooling, 2 layers / Reset"),
        ("steps", "Gaussian pooling, 2 layers / 50"),
        ("priors", "ℓ0.5 training, ℓ1 inference / 5"),
        ("comparison", "This model, Gaussian pooling, 2 layers / all labels"),
    ):
        assert cell(table, name).subjects == (headline,), f"{table}: {name}"
    for table, name in (("cost", "Gaussian pooling / cost"), ("sparsity", "ℓ0.5 training / non-zeros")):
        assert cell(table, name).subjects == (model_subject(headline.recipe, headline.data),)


def test_the_headline_cell_is_the_paper_s_recipe_on_all_of_mnist():
    (subject,) = cell("pooling", "Gaussian pooling / Layer 2").subjects
    recipe, paper = subject.recipe, Recipe.paper()
    assert recipe == replace(paper, batch_size=6000), "what paper.toml settles are the program's defaults"
    assert (subject.data.name, subject.data.eval_split, subject.data.limit) == ("mnist", "test", None)


def test_rows_and_columns_change_what_they_say():
    def recipe(table, name):
        return cell(table, name).subjects[0].recipe

    assert recipe("pooling", "Gaussian pooling / Layer 1").model.depth == 1
    assert [layer.pooling_kind for layer in recipe("pooling", "Max pooling / Layer 2").model.layers] == ["max", "max"]
    assert recipe("joint", "Updating U₁ / 2 phases").plan == TWO_PHASES
    assert recipe("joint", "Updating U₁ / 1 phase (no U₁)").plan == ONE_PHASE_WITHOUT_U1
    moves = [(True, True), (True, False), (False, True), (False, False)]
    for row, (filters, pooling) in zip(PRINTED["joint"], moves, strict=True):
        learning = recipe("joint", f"{row} / 1 phase").learning
        assert (learning[1].update_lower_filters, learning[1].update_lower_pooling) == (filters, pooling)
        assert learning[0] == recipe("pooling", "Gaussian pooling / Layer 2").learning[0], (
            "layer 1 is shared by all rows"
        )
    assert not recipe("nonnegativity", "Max pooling / Positive/negative").model.nonnegative
    assert [learning.reset_at for learning in recipe("reset", "Gaussian pooling, 2 layers / No reset").learning] == [
        (),
        (),
    ]
    priors = recipe("priors", "ℓ1 training, ℓ0.5 inference / 0.5")
    assert [learning.inference.alpha for learning in priors.learning] == [1.0, 1.0]
    assert (priors.inference.alpha, priors.inference.lam) == (0.5, 0.5)
    assert recipe("steps", "Gaussian pooling, 2 layers / 200").inference.steps == 200


def test_choices_are_judged_by_validation_images_alone():
    for c in cells_of(CHOICE, read_scale("paper")):
        assert c.subjects[0].data.eval_split == "validation"


def test_the_quick_scale_takes_the_embedded_digits():
    for table in TABLES:
        for c in cells_of(table, read_scale("quick")):
            for subject in c.subjects:
                assert subject.data.name == "digits"
                if "recipe" in subject.settings:
                    assert max(learning.epochs for learning in subject.recipe.learning) < 10


def test_unknown_names_are_refused():
    with pytest.raises(SpecError, match="table 'poling' was given; expected one of pooling, joint"):
        read_table("poling")
    with pytest.raises(SpecError, match="scale 'huge' was given; expected one of paper, quick"):
        read_scale("huge")
