"""When checkpoints are written, and that it does not change the outcome."""

import pytest

import tiny_training as tiny
from whatwhere.learning.run_folder import CheckpointSchedule


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


@pytest.mark.parametrize("store", ["memory", "file"])
@pytest.mark.parametrize("every", [None, 0, 1, 2, 3])
def test_how_often_checkpoints_are_written_changes_nothing(store, every, reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, store=store, checkpoint_every=every)
    assert tiny.same_filters(run.model, reference.model)


def test_checkpoints_are_due_every_epoch_or_as_often_as_a_tenth_of_the_time_allows():
    assert [CheckpointSchedule(2).due(epoch, 10.0) for epoch in (1, 2, 3, 4)] == [False, True, False, True]
    assert not CheckpointSchedule(0).due(1, 10.0)
    for cost, expected in ((1.0, [True] * 6), (2.5, [True, False, False, True, False, False])):
        now = 0.0
        schedule = CheckpointSchedule(None, lambda: now)  # noqa: B023  (called within this round)
        due = []
        for epoch in range(1, 7):
            due.append(schedule.due(epoch, 10.0))
            now += 10.0  # an epoch
            if due[-1]:
                with schedule.measured():
                    now += cost
        assert due == expected, f"checkpoints of {cost} s, epochs of 10 s"
