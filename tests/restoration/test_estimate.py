"""The estimate of noise: against noise that was made, in any units, and on pictures that have
none."""

import functools
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import whatwhere as ww
from pictures_to_restore import blurred, discs, error
from raising import Containing, raises
from whatwhere.app import app
from whatwhere.errors import InvalidImages, InvalidSetting, UnusableRunFile
from whatwhere.restoration import NoiseEstimate, denoise, estimate_noise, load_denoiser
from whatwhere.restoration.figures import draw_noise
from whatwhere.restoration.noise import counts_noise, read_noise, read_noise_text

DENOISER = load_denoiser()


def photons(truth: torch.Tensor, gain: float, offset: float, sigma: float = 0.0) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    counts = torch.poisson((truth - offset).clamp(min=0) / gain, generator=random)
    return offset + gain * counts + sigma * torch.randn(truth.shape, generator=random)


@pytest.mark.parametrize(
    ("gain", "offset", "sigma"), [(0.02, 0.0, 0.0), (0.01, -0.2, 0.0), (0.02, 0.05, 0.05)]
)
def test_noise_of_photons_is_recognised(gain: float, offset: float, sigma: float) -> None:
    truth = discs(192, 192, 3)
    truth = 0.1 + 0.9 * truth
    noise = estimate_noise(photons(truth, gain, offset, sigma)[None])
    for quantile in (0.1, 0.5, 0.9):
        x = float(truth.quantile(quantile))
        expected = gain * (x - offset) + sigma**2
        assert noise.variance_at(x) ** 0.5 == pytest.approx(expected**0.5, rel=0.12)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.2])
def test_white_noise_is_one_number(sigma: float) -> None:
    noisy = discs(128, 128, 2) + sigma * torch.randn(
        128, 128, generator=torch.Generator().manual_seed(0)
    )
    noise = estimate_noise(noisy[None])
    assert (noise.gain, noise.correlation) == (0, 0)
    assert noise.sigma == pytest.approx(sigma, rel=0.06)


def test_faint_noise_stays_unless_it_is_given() -> None:
    """A picture that counts as clean may have as much."""
    white = torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
    truth = torch.nn.functional.avg_pool2d(discs(128, 128, 2)[None], 9, 1, 4)[0]
    for sigma, removed in ((0.008, 0), (0.0125, 0.5), (0.03, 1)):
        given = (truth + sigma * white)[None, None]
        noise = estimate_noise(given[0])
        assert noise.sigma == pytest.approx(sigma, rel=0.1)
        assert noise.removed == pytest.approx(removed, abs=0.3)
        assert noise.is_zero == (removed == 0)
        assert ("too faint to show" in noise.summary()) == (removed < 1)
        left = error(denoise(given, DENOISER), truth) / error(given, truth)
        assert left == pytest.approx(1 - removed, abs=0.4)
    assert error(denoise(given, DENOISER, 0.01), truth) < error(given, truth)


def test_a_drawing_on_an_even_ground_has_no_noise() -> None:
    """The ground is not noise that is weak; its values are cut off."""
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    for seed in range(10):
        random = torch.Generator().manual_seed(seed)
        a, b, radius = (14 + 3 * torch.randn(3, generator=random)).tolist()
        distance = ((rows - a).square() + (columns - b).square()).sqrt()
        stroke = (1.5 - (distance - radius / 2).abs() / 2).clamp(0, 1)
        assert estimate_noise(stroke[None]).is_zero


def test_noise_that_was_cut_off_in_dark_and_bright_parts_is_not_underestimated() -> None:
    white = torch.randn(144, 144, generator=torch.Generator().manual_seed(0))
    given = (discs(144, 144, 2) + 0.2 * white).clamp(0, 1)
    assert float(((given == 0) | (given == 1)).float().mean()) > 0.03
    assert estimate_noise(given[None]).sigma == pytest.approx(0.2, rel=0.05)


def test_a_picture_that_is_too_small_to_tell_stays() -> None:
    """Noise of digits is cut off at black, and what is left of them are strokes."""
    for seed in range(4):
        stroke = (discs(28, 28, seed) - 0.5).clamp(min=0)
        white = torch.randn(28, 28, generator=torch.Generator().manual_seed(seed))
        assert estimate_noise((stroke + 0.04 * white).clamp(0, 1)[None]).is_zero


@pytest.mark.parametrize("side", [36, 48, 64, 128])
def test_small_pictures_of_noise_are_not_underestimated(side: int) -> None:
    random = torch.Generator().manual_seed(side)
    found = [
        estimate_noise(0.5 + 0.1 * torch.randn(1, side, side, generator=random)).sigma
        for _ in range(12)
    ]
    assert np.mean(found) == pytest.approx(0.1, rel=0.06)


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e-4, 0.0), (255.0, 0.0), (1.0, -1000.0), (50, -7e3)]
)
def test_the_estimate_and_the_result_have_the_units_of_the_picture(
    scale: float, shift: float
) -> None:
    truth = 0.1 + 0.9 * discs(96, 96, 5).double()
    given = photons(truth, 0.03, 0.0)
    expected = estimate_noise(given[None])
    assert expected.gain > 0
    noise = estimate_noise(shift + scale * given[None])
    for x in (0.2, 0.6, 1.0):
        assert noise.variance_at(shift + scale * x) == pytest.approx(
            scale**2 * expected.variance_at(x), rel=1e-3
        )
    clean = denoise(shift + scale * given[None, None], DENOISER)
    assert error((clean - shift) / scale, truth) < 0.4 * error(given, truth)


@pytest.mark.parametrize("width", [0.6, 0.8])
def test_correlated_noise_is_recognised_and_removed(width: float) -> None:
    truth = torch.nn.functional.avg_pool2d(discs(256, 256, 4)[None].double(), 9, 1, 4)[0]
    given = truth + 0.15 * blurred(width, (256, 256))
    noise = estimate_noise(given[None])
    assert noise.correlation == pytest.approx(width, rel=0.1)
    assert noise.sigma == pytest.approx(0.15, rel=0.1)
    clean = denoise(given[None, None], DENOISER)[0, 0]
    assert error(clean, truth) < 0.33 * error(given, truth)
    assert estimate_noise(truth[None]).is_zero


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(1, 40, 40),
        torch.full((1, 40, 40), -1000.0),
        torch.full((1, 40, 40), 1e15),
        torch.linspace(0, 1, 1600).view(1, 40, 40),
        torch.arange(96.0).expand(1, 96, 96),  # groups of blocks without any noise
        torch.arange(96.0).view(96, 1).expand(3, 96, 96),
        torch.rand(1, 1, 1),
        torch.rand(1, 3, 7),
        torch.rand(1, 8, 900),
        torch.eye(64)[None],
        torch.eye(64)[None] * 1e-30,
        torch.rand(1, 64, 64) * 1e14,
        torch.rand(2, 64, 64).round(),
        torch.full((1, 64, 64), torch.nan),
        torch.full((1, 64, 64), torch.inf),
    ],
)
def test_any_picture_has_a_finite_estimate(values: torch.Tensor) -> None:
    noise = estimate_noise(values)
    assert np.isfinite([noise.gain, noise.sigma, noise.offset, noise.correlation]).all()
    if values.isfinite().all():
        assert denoise(values[None], DENOISER).isfinite().all()


def test_random_pictures_have_finite_results() -> None:
    """Shapes, contrasts, offsets and cut-off values at random."""
    random = np.random.default_rng(0)
    for _ in range(40):
        shape = tuple(random.integers(1, 70, 2))
        values = random.standard_normal(shape) ** random.integers(1, 4)
        values = np.clip(
            values, *np.quantile(values, [random.random() / 2, 1 - random.random() / 2])
        )
        values = values * 10.0 ** random.integers(-8, 9) + random.choice([0, -1000, 1e5])
        noise = estimate_noise(torch.from_numpy(values)[None])
        assert np.isfinite([noise.gain, noise.sigma, noise.offset]).all()
        assert np.isfinite(denoise(values[None, None], DENOISER)).all()


def test_a_noise_file_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    faint = estimate_noise(photons(0.1 + 0.9 * discs(96, 96, 5), 0.03, 0.0)[None])
    rows = ((2.0, 0.5, 0.1), (0.5, 1.0, 0.2), (0.1, 0.2, 3.0))
    camera = NoiseEstimate(sigma=1.5, correlation=0.8, covariance=rows, removed=0.5)
    for noise in (faint, camera):
        file.write_text(noise.to_json())
        assert NoiseEstimate.read(file) == noise
    start = '{"format": "whatwhere noise 1", '
    for text in ("", "[]", "{", start + '"gain": "x"}', start + '"other": 3}', '{"format": 2}'):
        file.write_text(text)
        with pytest.raises(UnusableRunFile, match="not a usable noise file"):
            NoiseEstimate.read(file)


def small_pictures(directory: Path | None = None) -> list[torch.Tensor]:
    """Eight pictures of 64 × 64 pixels, darker and brighter ones, with the noise of photons."""
    truths = [(0.1 + 0.1 * k) * (0.3 + 0.7 * discs(64, 64, k)) for k in range(8)]
    pictures = []
    for number, truth in enumerate(truths):
        random = torch.Generator().manual_seed(number)
        bytes_ = (255 * 0.02 * torch.poisson(truth / 0.02, generator=random)).round().clamp(0, 255)
        pictures.append(bytes_ / 255)
        if directory is not None:
            directory.mkdir(exist_ok=True)
            Image.fromarray(bytes_.byte().numpy()).save(directory / f"{number}.png")
    return pictures


def test_pictures_that_were_taken_alike_have_one_estimate() -> None:
    pictures = small_pictures()
    noise = estimate_noise([picture[None] for picture in pictures])
    for x in (0.1, 0.3, 0.5):
        assert noise.variance_at(x) == pytest.approx(0.02 * x, rel=0.2)
    # none of them says as much
    single = [estimate_noise(picture[None]) for picture in pictures]
    errors = [abs(one.variance_at(0.3) / 0.006 - 1) for one in single]
    assert abs(noise.variance_at(0.3) / 0.006 - 1) < np.median(errors)
    assert noise.source == "8 pictures"
    assert sum(count for _, _, count in noise.points) > 1000
    # sizes may differ, channels may not; the result does not depend on the order
    some = [pictures[0][None, :40], *(picture[None] for picture in pictures[1:])]
    assert estimate_noise(some).gain == pytest.approx(estimate_noise(some[::-1]).gain, rel=1e-9)
    with raises(InvalidImages, given="pictures of shapes [[1, 64, 64], [3, 64, 64]]"):
        estimate_noise([torch.rand(1, 64, 64), torch.rand(3, 64, 64)])
    with raises(InvalidImages, given="pictures of shapes []"):
        estimate_noise([])


@pytest.mark.parametrize("channels", [1, 3])
def test_one_picture_twice_has_its_own_noise(channels: int) -> None:
    """White noise, and that of cameras, which is correlated."""
    size = (192, 192)
    smooth = torch.nn.functional.avg_pool2d(discs(*size, 4)[None].double(), 9, 1, 4)[0]
    noise = torch.randn(1, *size, generator=torch.Generator().manual_seed(0))
    if channels == 3:
        noise = torch.stack([blurred(1.2, size, k) for k in (2, 3, 4)]) + blurred(0.75, size, 1)
    image = 0.2 + 0.5 * smooth + 0.025 * noise
    one, two = estimate_noise(image), estimate_noise([image, image])
    assert two.sigma == pytest.approx(one.sigma, rel=0.05)  # of twice the flattest blocks
    assert two.correlation == pytest.approx(one.correlation, abs=0.06)
    assert (one.correlation > 0) == (channels == 3)


def test_the_command_estimates_the_noise_of_a_folder_once(tmp_path: Path) -> None:
    pictures = small_pictures(tmp_path / "in")
    run = functools.partial(CliRunner().invoke, app, catch_exceptions=False)
    words = ["denoise", str(tmp_path / "in"), "--set", "quality=8", "--quiet"]
    kept, figure = tmp_path / "noise.json", tmp_path / "noise.svg"
    files = ["--keep-noise", str(kept), "--draw-noise", str(figure)]
    result = run([*words, "--out", str(tmp_path / "a"), "--alike", *files])
    noise = NoiseEstimate.read(kept)
    assert f"noise of 8 pictures: {noise.summary()}" in result.output
    assert noise.gain == pytest.approx(0.02, rel=0.2)
    expected = estimate_noise([picture[None] for picture in pictures])
    assert noise.gain == pytest.approx(expected.gain, rel=1e-4)
    assert "variance" in figure.read_text()
    # the kept noise gives the same pictures
    run([*words, "--out", str(tmp_path / "b"), "--noise", str(kept)])
    for name in (f"{number}.png" for number in range(8)):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    # a folder has no single noise unless its pictures were taken alike
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "c"), *files])
    assert "add --alike" in result.output or "add --alike" in str(result.exception)
    result = CliRunner().invoke(
        app, [*words, "--out", str(tmp_path / "c"), "--alike", "--noise", "0.1"]
    )
    assert "Leave out --noise" in result.output or "Leave out --noise" in str(result.exception)


def test_noise_is_drawn_as_variance_against_brightness() -> None:
    noise = estimate_noise([picture[None] for picture in small_pictures()])
    axes = draw_noise(noise).axes[0]
    (line,) = axes.lines
    for x, variance in np.asarray(line.get_xydata()):
        assert variance == pytest.approx(noise.variance_at(x))
    offsets = np.asarray(axes.collections[0].get_offsets())
    assert offsets == pytest.approx(np.array(noise.points)[:, :2])
    with raises(InvalidSetting, given=Containing("without the points")):
        draw_noise(NoiseEstimate(sigma=0.1))


def test_noise_is_given_in_many_ways() -> None:
    assert read_noise((0.1, 0.2, -0.3)) == NoiseEstimate(0.1, 0.2, -0.3)
    assert read_noise_text("0.1,0.2,-0.3") == (0.1, 0.2, -0.3)
    assert read_noise_text("0.1") == 0.1
    for wrong in ("0.1,x", "abc", "-0.1", "0,1"):
        with raises(InvalidSetting, given=f"--noise {wrong}"):
            read_noise_text(wrong)


def test_poisson_means_one_step_of_the_values() -> None:
    counts = torch.poisson(torch.full((1, 40, 40), 30.0))
    assert counts_noise(counts).gain == 1
    assert counts_noise(counts / 255).gain == pytest.approx(1 / 255, rel=1e-4)
    with raises(InvalidSetting, given=Containing("no counts")):
        counts_noise(torch.rand(1, 40, 40))


@pytest.mark.parametrize(("dtype", "step"), [(np.uint8, 1), (np.uint16, 1), (np.uint16, 16)])
def test_poisson_means_the_same_in_python_and_in_the_command(
    tmp_path: Path, dtype: type, step: int
) -> None:
    """A photon adds 1 to a pixel, also where all counts happen to be multiples of 16."""
    random = torch.Generator().manual_seed(0)
    counts = torch.poisson(5 + 10 * discs(64, 64, 3), generator=random).numpy()
    pixels = (step * counts).astype(dtype)
    Image.fromarray(pixels).save(tmp_path / "in.png")
    words = ["denoise", str(tmp_path / "in.png"), "--out", str(tmp_path / "out.png")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # multiples of 16 look different
        CliRunner().invoke(app, [*words, "--noise", "poisson"], catch_exceptions=False)
        clean = denoise(pixels, DENOISER, "poisson")
        assert np.abs(np.asarray(Image.open(tmp_path / "out.png")).astype(int) - clean).max() <= 1
        assert (clean == denoise(pixels, DENOISER, (1.0, 0.0))).all()


def test_counts_that_the_picture_contradicts_are_doubted() -> None:
    counts = torch.poisson(10 + 60 * discs(128, 128, 3), generator=torch.Generator().manual_seed(0))
    doubled = (2 * counts)[None, None]
    doubled[..., 0, 0] = 1  # so that a step is 1
    with pytest.warns(UserWarning, match="picture looks different: gain 2"):
        ww.restoration.denoise(doubled, DENOISER, "poisson")
