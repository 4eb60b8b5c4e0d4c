"""Jobs are equal exactly when they have the same result."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.baselines import KMeans
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
from whatwhere.errors import SpecError
from whatwhere.inference.plan import TWO_PHASES
from whatwhere.spec import Recipe

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
    with pytest.raises(SpecError, match="deskew = true with both_views = true"):
        DataSpec("digits", deskew=True, both_views=True)
    with pytest.raises(SpecError, match="both_views = true"):
        DataSpec("digits", both_views=True).load()


def test_settings_of_a_classifier_that_need_others_say_so():
    with pytest.raises(SpecError, match=r"whiten_choices = \(1\.0,\).*dual = true"):
        ClassifierSpec(whiten_choices=(1.0,))
    with pytest.raises(SpecError, match=r"whiten_choices = -1\.0"):
        ClassifierSpec(dual=True, whiten_choices=(0.0, -1.0))
    with pytest.raises(SpecError, match="average_views = true without moves"):
        ClassifierSpec(dual=True, average_views=True)
    with pytest.raises(SpecError, match=r"whiten_choices = \(3\.0,\).*dual = true"):
        FewLabelJob(DATA, KMeans(), (1.0,), 30, whiten_choices=(3.0,))


def test_a_training_does_not_depend_on_how_its_model_is_used():
    used_otherwise = replace(RECIPE, plan=TWO_PHASES, inference=replace(RECIPE.inference, steps=7))
    assert TrainingJob(DATA, used_otherwise) == TrainingJob(DATA, RECIPE)
    assert fingerprint(TrainingJob(DATA, used_otherwise)) == fingerprint(TrainingJob(DATA, RECIPE))
    longer = replace(RECIPE, learning=(RECIPE.learning[0], replace(RECIPE.learning[1], epochs=51)))
    assert TrainingJob(DATA, longer) != TrainingJob(DATA, RECIPE)
    assert fingerprint(TrainingJob(DATA, longer)) != fingerprint(TrainingJob(DATA, RECIPE))
    assert TrainingJob(DATA, first_layers(longer, 1)) == TrainingJob(DATA, first_layers(RECIPE, 1)), "shared"


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
