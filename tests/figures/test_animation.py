"""The steps of the animation are the steps of inference."""

import io
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from figures.tiny_model import make_tiny
from whatwhere.figures.animation import _rendered, animation, frame_figure, steps_shown, trace
from whatwhere.figures.style import RC
from whatwhere.inference import infer
from whatwhere.ops.input_stage import take_lowpass
from whatwhere.spec import InferenceSpec, InputSpec, LineSearch


@pytest.mark.parametrize("momentum", [False, True])
def test_the_trace_is_the_inference(tiny, momentum):
    spec, image = InferenceSpec(lam=20.0, steps=5, step=LineSearch(momentum=momentum)), tiny.images[3]
    snapshots = trace(tiny.model, image, spec)
    assert [shot.step for shot in snapshots] == list(range(6))
    for steps in (0, 2, 5):
        solution = infer(tiny.model, image[None], replace(spec, steps=steps), engine="reference")
        shot = snapshots[steps]
        torch.testing.assert_close(shot.latents.p, solution.features)
        torch.testing.assert_close(shot.latents.pooling_params[0].mu, solution.latents.pooling_params[0].mu)
        assert shot.cost == pytest.approx(float(solution.stats.cost[-1, 0]), rel=1e-5)
        assert shot.nonzeros == int(solution.stats.nonzeros[-1, 0])


def test_the_residual_is_what_the_reconstruction_lacks(tiny):
    first, *_, last = trace(tiny.model, tiny.images[0], InferenceSpec(lam=20.0, steps=4))
    torch.testing.assert_close(first.residual, -tiny.images[0])
    assert last.residual.norm() < first.residual.norm()


def test_an_input_stage_is_undone_in_what_is_shown():
    """The residual is in pixels of the image; before the first step it is the detail that the stage leaves."""
    one = make_tiny(input=InputSpec(kind="onoff", sigma=2.0))
    snapshots = trace(one.model, one.images[0], InferenceSpec(lam=20.0, steps=3))
    detail, _ = take_lowpass(one.images[:1], 2.0)
    torch.testing.assert_close(snapshots[0].residual, -detail[0])
    solution = infer(one.model, one.images[:1], InferenceSpec(lam=20.0, steps=3), engine="reference")
    torch.testing.assert_close(one.images[0] + snapshots[-1].residual, solution.reconstruction[0])


@pytest.mark.parametrize("steps", [0, 1, 3, 50, 100])
def test_the_first_and_the_last_step_are_shown(steps):
    shown = steps_shown(steps)
    assert shown[0] == 0
    assert shown[-1] == steps
    assert shown == sorted(set(shown))
    assert len(shown) <= 30


def test_the_gif_has_a_frame_for_every_step_shown(tiny):
    snapshots = trace(tiny.model, tiny.images[0], InferenceSpec(lam=20.0, steps=4))
    picture = Image.open(io.BytesIO(animation(tiny.model, tiny.images[0], snapshots)))
    assert picture.format == "GIF"
    assert picture.n_frames == len(steps_shown(4))
    assert picture.info["loop"] == 0


def test_the_palette_changes_colours_only_slightly(tiny):
    snapshots = trace(tiny.model, tiny.images[0], InferenceSpec(lam=20.0, steps=5))
    picture = Image.open(io.BytesIO(animation(tiny.model, tiny.images[0], snapshots)))
    for number, step in enumerate(steps_shown(5)):
        picture.seek(number)
        with matplotlib.rc_context(RC):
            exact = np.asarray(_rendered(frame_figure(tiny.model, tiny.images[0], snapshots, step))).astype(int)
        assert np.abs(np.asarray(picture.convert("RGB")) - exact).max() <= 24  # of 255
