"""The paper's tables as data: its numbers, cells that are the same, claims that name cells that
exist."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from raising import raises
from reproduction import table as table_module
from reproduction.baselines import KMeans
from reproduction.claims import OPEN, evaluate_claim, measured_cells
from reproduction.jobs import (
    ClassifierSpec,
    DataSpec,
    EvaluationJob,
    FewLabelJob,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
    fingerprint,
    first_layers,
    seeds_of,
)
from reproduction.records import ResultStore
from reproduction.scale import SCALES, data_file, read_scale
from reproduction.table import EXTRA, TABLES, cells_of, read_table
from whatwhere.errors import InvalidSetting, UnknownChoice
from whatwhere.spec import MomentFit, Phase, Recipe

ONE_PHASE_WITHOUT_U1 = (Phase(layer=2, update_pooling=(2,)),)
TWO_PHASES = (Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(2,)))

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
def test_the_paper_s_numbers_are_copied_correctly(table):
    rows = {}
    for c in cells_of(table, read_scale("paper")):
        rows.setdefault(c.row, []).append(c.paper)
    assert rows == PRINTED[table]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("table", [*TABLES, *EXTRA])
def test_every_claim_names_cells_that_exist_and_is_open_before_anything_is_run(
    table, scale, tmp_path
):
    cells = measured_cells(cells_of(table, read_scale(scale)), ResultStore(tmp_path, str))
    for claim in read_table(table).claims:
        if claim.scale in ("", scale):
            assert evaluate_claim(claim, cells).verdict == OPEN
    assert read_table(table).claims or table.endswith("choice")


def test_a_scale_with_few_images_has_no_columns_of_more_labels():
    scale = read_scale("quick")
    assert scale.data.limit == 1000
    columns = {c.column for c in cells_of("comparison", scale)}
    assert columns == {"all labels", "300 labels", "100 labels"}
    assert "3000 labels" in {c.column for c in cells_of("comparison", read_scale("paper"))}


def test_cells_that_are_the_same_share_one_result():
    (headline,) = cell("pooling", "Gaussian pooling / Layer 2").jobs
    for table, name in (
        ("joint", "Updating U₁ / 1 phase"),
        ("nonnegativity", "Gaussian pooling / Non-negative"),
        ("reset", "Gaussian pooling, 2 layers / Reset"),
        ("steps", "Gaussian pooling, 2 layers / 50"),
        ("priors", "ℓ0.5 training, ℓ1 inference / 5"),
        ("comparison", "This model, Gaussian pooling, 2 layers / all labels"),
    ):
        assert cell(table, name).jobs == (headline,), f"{table}: {name}"
    for table, name in (
        ("cost", "Gaussian pooling / cost"),
        ("sparsity", "ℓ0.5 training / non-zeros"),
    ):
        assert cell(table, name).jobs == (TrainingJob(headline.data, headline.features.recipe),)


def test_the_headline_cell_is_the_paper_s_recipe_on_all_of_mnist():
    (job,) = cell("pooling", "Gaussian pooling / Layer 2").jobs
    recipe, paper = job.features.recipe, Recipe.paper()
    assert recipe == replace(paper, batch_size=6000), (
        "what the paper leaves open has the program's defaults"
    )
    assert (job.data.name, job.data.eval_split, job.data.limit) == ("mnist", "test", None)


def test_rows_and_columns_change_what_they_say():
    def recipe(table, name):
        return cell(table, name).jobs[0].features.recipe

    assert recipe("pooling", "Gaussian pooling / Layer 1").model.depth == 1
    assert [
        layer.pooling.kind for layer in recipe("pooling", "Max pooling / Layer 2").model.layers
    ] == ["max", "max"]
    assert recipe("joint", "Updating U₁ / 2 phases").plan == TWO_PHASES
    assert recipe("joint", "Updating U₁ / 1 phase (no U₁)").plan == ONE_PHASE_WITHOUT_U1
    moves = [(True, True), (True, False), (False, True), (False, False)]
    for row, (filters, pooling) in zip(PRINTED["joint"], moves, strict=True):
        learning = recipe("joint", f"{row} / 1 phase").learning
        assert (learning[1].update_lower_filters, learning[1].update_lower_pooling) == (
            filters,
            pooling,
        )
        assert learning[0] == recipe("pooling", "Gaussian pooling / Layer 2").learning[0], (
            "layer 1 is shared by all rows"
        )
    assert not recipe("nonnegativity", "Max pooling / Positive/negative").model.nonnegative
    assert [
        learning.reset_at
        for learning in recipe("reset", "Gaussian pooling, 2 layers / No reset").learning
    ] == [
        (),
        (),
    ]
    priors = recipe("priors", "ℓ1 training, ℓ0.5 inference / 0.5")
    assert [learning.inference.penalty.alpha for learning in priors.learning] == [1.0, 1.0]
    assert (priors.inference.penalty.alpha, priors.inference.lam) == (0.5, 0.5)
    assert recipe("steps", "Gaussian pooling, 2 layers / 200").inference.steps == 200


def test_choices_are_made_on_validation_images_alone():
    for c in cells_of("choice", read_scale("paper")):
        assert c.jobs[0].data.eval_split == "validation"


def test_the_quick_scale_takes_the_embedded_digits():
    for table in TABLES:
        for c in cells_of(table, read_scale("quick")):
            for job in c.jobs:
                assert job.data.name == "digits"
                if isinstance(job, EvaluationJob) and isinstance(job.features, ModelFeatures):
                    assert max(learning.epochs for learning in job.features.recipe.learning) < 10


def test_unknown_names_are_errors():
    with raises(UnknownChoice, kind="table", given="poling"):
        read_table("poling")
    with raises(UnknownChoice, kind="scale", given="huge"):
        read_scale("huge")


def test_a_table_can_name_its_own_data_set(monkeypatch):
    reset = replace(read_table("reset"), data="fashion-mnist")
    monkeypatch.setattr(table_module, "read_table", lambda name: reset)
    for c in cells_of("reset", read_scale("paper")):
        assert [job.data.name for job in c.jobs] == ["fashion-mnist"]


def test_rows_of_the_best_features_say_their_class():
    jobs = {c.row: c.jobs[0] for c in cells_of("best", read_scale("paper")) if c.column == "error"}
    a, upright, b, kernel = (jobs[f"({name}) this model"] for name in ("a", "a, upright", "b", "c"))
    assert [recipe.model.input.kind for recipe in a.features.recipes()] == [
        "none",
        "onoff",
        "onoff",
    ]
    assert a.features == b.features == kernel.features == upright.features
    assert [a.data] == [upright.data.views()[0]]
    assert [view.deskew for view in upright.data.views()] == [False, True]
    assert a.classifier.whiten == upright.classifier.whiten > 0
    assert (a.classifier.widths, a.classifier.virtual_shift, a.classifier.dual) == ((), 0, True)
    assert (b.classifier.virtual_shift, b.classifier.average_views) == (1, True)
    assert len(kernel.classifier.widths) == 2
    assert jobs["(b) scattering"].classifier == b.classifier
    assert jobs["(a, upright) scattering"].data == upright.data
    assert (
        jobs["(a) k-means"]
        == cell("comparison", "k-means on whitened patches (Coates and Ng) / all labels").jobs[0]
    )
    costs = [c.jobs for c in cells_of("best", read_scale("paper")) if c.row == "(a) this model"]
    assert costs == [(a,)] * 4, "errors and costs come from one measurement"


def test_few_labels_have_one_rule_for_all_methods():
    jobs = {
        c.row: c.jobs[0]
        for c in cells_of("best_few", read_scale("paper"))
        if c.column == "300 labels"
    }
    ours = jobs["(a) this model"]
    assert (ours.whiten_choices, ours.C, ours.dual) == ((100.0, 30.0, 10.0, 3.0), (1.0,), True)
    for row in (
        "(a) scattering",
        "(a) k-means",
        "(a, upright) this model",
        "(a, upright) scattering",
    ):
        assert (jobs[row].whiten_choices, jobs[row].C, jobs[row].dual) == (
            ours.whiten_choices,
            ours.C,
            ours.dual,
        ), row
    assert (
        jobs["(a) scattering, standardised"]
        == cell("comparison", "Scattering (kymatio) / 300 labels").jobs[0]
    )


def test_the_seeds_of_models_side_by_side_go_together():
    jobs = next(c for c in cells_of("best", read_scale("paper"), 3)).jobs
    assert [[recipe.seed for recipe in job.features.recipes()] for job in jobs] == [
        [0, 0, 0],
        [1, 1, 1],
        [2, 2, 2],
    ]


# Scales: every setting stated once, and the recipe of the paper's scale ---------------------------


def test_the_paper_s_scale_changes_the_size_of_mini_batches_alone():
    assert read_scale("paper").recipe() == replace(Recipe.paper(), batch_size=6000)


def test_the_defaults_are_what_was_chosen_on_validation_images():
    """As RESULTS.md's table of choices has it, and as the notes in spec.py and paper.toml say."""
    recipe = read_scale("paper").recipe()
    assert recipe.model.normalise == "plane"
    for spec in (recipe.inference, *(learning.inference for learning in recipe.learning)):
        assert (spec.pooling_step, spec.moments) == (3.0, MomentFit())
    assert (recipe.descriptor.cell, recipe.descriptor.cell_statistic) == (3, "rms")


def leaves(table, path=()):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_a_scale_repeats_no_default(name):
    base = asdict(Recipe.paper() if name == "paper" else read_scale("paper").recipe())
    for path, value in leaves(data_file("scales", name)["recipe"]):
        default = base
        for key in path:
            items = {"each": 0} if isinstance(default, tuple) else {}
            default = default[items.get(key, key)]
        assert value != default, f"{name}.toml repeats {'.'.join(path)}"


def test_what_a_table_changes_comes_before_what_the_scale_changes():
    quick = read_scale("quick")
    recipe = quick.recipe({"batch_size": 7, "seed": 4, "learning": {"each": {"cg_steps": 3}}})
    assert recipe.batch_size == 500, "the scale's own"
    assert recipe.seed == 4
    assert [learning.cg_steps for learning in recipe.learning] == [3, 3]


# Jobs are equal exactly when they have the same result --------------------------------------------


DATA = DataSpec("digits")
RECIPE = Recipe.paper()


def evaluation(recipe=RECIPE, data=DATA, C=(1.0,), ensemble_size=1):
    return EvaluationJob(data, ModelFeatures(recipe, ensemble_size), C)


def test_whatever_determines_a_result_is_part_of_its_job():
    learning = (RECIPE.learning[0], replace(RECIPE.learning[1], update_lower_pooling=False))
    jobs = [
        evaluation(),
        evaluation(replace(RECIPE, seed=1)),
        evaluation(replace(RECIPE, plan=TWO_PHASES)),
        evaluation(replace(RECIPE, inference=replace(RECIPE.inference, lam=6.0))),
        evaluation(replace(RECIPE, descriptor=replace(RECIPE.descriptor, cell=2))),
        evaluation(replace(RECIPE, learning=learning)),
        evaluation(first_layers(RECIPE, 1)),
        evaluation(data=DataSpec("mnist")),
        evaluation(data=DataSpec("digits", eval_split="validation")),
        evaluation(data=DataSpec("digits", limit=100)),
        evaluation(data=DataSpec("digits", deskew=True)),
        evaluation(data=DataSpec("digits", both_views=True)),
        EvaluationJob(DATA, ModelFeatures(RECIPE), (1.0,), ClassifierSpec(whiten=0.1)),
        evaluation(C=(2.0,)),
        evaluation(ensemble_size=2),
        FewLabelJob(DATA, ModelFeatures(RECIPE), (1.0,), 100),
        FewLabelJob(DATA, ModelFeatures(RECIPE), (1.0,), 300),
        EvaluationJob(DATA, KMeans(), (1.0,)),
        EvaluationJob(DATA, KMeans(seed=1), (1.0,)),
        TrainingJob(DATA, RECIPE),
        RecordedJob(DATA, "fine-tuning", 0, 0),
        RecordedJob(DATA, "fine-tuning", 100, 0),
        RecordedJob(DATA, "fine-tuning", 0, 1),
    ]
    assert len(set(jobs)) == len(jobs)
    assert evaluation() == evaluation(Recipe.paper())


def test_a_view_is_one_or_the_other():
    with raises(InvalidSetting, given="deskew = true with both_views = true"):
        DataSpec("digits", deskew=True, both_views=True)
    with raises(InvalidSetting, given="both_views = true"):
        DataSpec("digits", both_views=True).load()


def test_settings_of_a_classifier_that_need_others_say_so():
    with raises(InvalidSetting, given="whiten_choices = (1.0,)", expected="dual = true with them"):
        ClassifierSpec(whiten_choices=(1.0,))
    with raises(InvalidSetting, given="whiten_choices = -1.0"):
        ClassifierSpec(dual=True, whiten_choices=(0.0, -1.0))
    with raises(InvalidSetting, given="average_views = true without moves"):
        ClassifierSpec(dual=True, average_views=True)
    with raises(InvalidSetting, given="whiten_choices = (3.0,)"):
        FewLabelJob(DATA, KMeans(), (1.0,), 30, whiten_choices=(3.0,))


def test_a_training_does_not_depend_on_how_its_model_is_used():
    used_otherwise = replace(RECIPE, plan=TWO_PHASES, inference=replace(RECIPE.inference, steps=7))
    assert TrainingJob(DATA, used_otherwise) == TrainingJob(DATA, RECIPE)
    assert fingerprint(TrainingJob(DATA, used_otherwise)) == fingerprint(TrainingJob(DATA, RECIPE))
    longer = replace(RECIPE, learning=(RECIPE.learning[0], replace(RECIPE.learning[1], epochs=51)))
    assert TrainingJob(DATA, longer) != TrainingJob(DATA, RECIPE)
    assert fingerprint(TrainingJob(DATA, longer)) != fingerprint(TrainingJob(DATA, RECIPE))
    assert TrainingJob(DATA, first_layers(longer, 1)) == TrainingJob(
        DATA, first_layers(RECIPE, 1)
    ), "shared"


def test_the_seeds_of_an_ensemble_are_those_of_its_models():
    assert seeds_of(evaluation(replace(RECIPE, seed=4), ensemble_size=3)) == (4, 5, 6)
    assert seeds_of(TrainingJob(DATA, RECIPE)) == (0,)
    assert seeds_of(EvaluationJob(DATA, KMeans(), (1.0,))) == ()


def test_validation_images_are_the_last_sixth_and_not_learned_from():
    training, evaluated = DataSpec("digits", eval_split="validation").load()
    assert (len(training), len(evaluated)) == (4166, 834)
    all_training, test = DataSpec("digits").load()
    assert (len(all_training), len(test)) == (5000, 2000)
    assert evaluated.fingerprint == all_training.subset(np.arange(4166, 5000)).fingerprint
