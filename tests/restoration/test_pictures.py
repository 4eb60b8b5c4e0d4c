"""`whatwhere denoise` and `inpaint` on files: bits and known pixels kept, folders that continue,
early errors."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures_to_restore import noisy, picture
from raising import Containing, raises
from tiny_run import whatwhere
from whatwhere.data import load
from whatwhere.errors import ImageError, RunError, SpecError
from whatwhere.restoration import command as restoration
from whatwhere.restoration import load_denoiser, load_dictionary
from whatwhere.restoration.pictures import (
    Job,
    NoSingleMask,
    OtherResults,
    SameResult,
    Task,
    UnsuitableFormat,
    encode_pictures,
    plan_jobs,
    write_picture,
)

DENOISER = load_denoiser()
SHORT = ("--device", "cpu", "--quiet")
FEW = ("--set", "rounds=2")


def pixels(dtype: type = np.uint8, size: int = 16, seed: int = 0) -> np.ndarray:
    values = noisy(picture(size, size), 0.1, seed)[0, 0].clamp(0, 1).numpy()
    return (values * np.iinfo(dtype).max).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_denoise_keeps_the_type_of_the_pixels(tmp_path: Path, dtype: type) -> None:
    Image.fromarray(pixels(dtype)).save(tmp_path / "in.png")
    whatwhere("denoise", tmp_path / "in.png", "--out", tmp_path / "out.png", "--noise", 0.1, *SHORT)
    result = np.asarray(Image.open(tmp_path / "out.png"))
    assert result.shape == (16, 16)
    assert result.max() > 255 if dtype is np.uint16 else result.dtype == np.uint8
    truth = picture(16, 16)[0, 0].numpy() * np.iinfo(dtype).max
    assert np.abs(result - truth).mean() < np.abs(pixels(dtype) - truth).mean()


@pytest.mark.parametrize(("channels", "dtype"), [(5, np.uint8), (5, np.uint16), (3, np.uint16)])
def test_pages_of_many_channels_stay_as_they_are_stored(
    tmp_path: Path, channels: int, dtype: type
) -> None:
    pytest.importorskip("tifffile")
    images = load(
        np.stack([pixels(dtype, seed=s) for s in range(2 * channels)]).reshape(2, channels, 16, 16)
    )
    written = encode_pictures(list(images[:].numpy()), images, "TIFF")
    (tmp_path / "in.tif").write_bytes(written)
    whatwhere("denoise", tmp_path / "in.tif", "--out", tmp_path / "same.tif", "--noise", 0, *SHORT)
    whatwhere("denoise", tmp_path / "in.tif", "--out", tmp_path / "out.tif", "--noise", 0.1, *SHORT)
    assert (tmp_path / "same.tif").read_bytes() == written
    result = load(tmp_path / "out.tif")
    assert (result.pixels.dtype, len(result), result.shape) == (dtype, 2, (channels, 16, 16))
    truth = picture(16, 16)
    assert (result[:] - truth).abs().mean() < (images[:] - truth).abs().mean()
    reason = Containing(f"{channels} channels of", "which PNG cannot hold")
    with raises(UnsuitableFormat, reason=reason, suitable=(".tif",)):
        plan_jobs(Task("denoise"), DENOISER, tmp_path / "in.tif", None, tmp_path / "out.png")


def test_without_noise_pictures_come_back_as_they_were(tmp_path: Path) -> None:
    colour = np.stack([pixels(seed=s) for s in range(3)], 2)
    Image.fromarray(colour).save(tmp_path / "in.png")
    whatwhere("denoise", tmp_path / "in.png", "--out", tmp_path / "out.tif", "--noise", 0, *SHORT)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.tif")), colour)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_inpaint_keeps_known_pixels(tmp_path: Path, dtype: type) -> None:
    mask = np.random.default_rng(0).random((16, 16)) > 0.3
    Image.fromarray(pixels(dtype)).save(tmp_path / "in.png")
    Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "mask.png")
    whatwhere(
        "inpaint",
        tmp_path / "in.png",
        "--mask",
        tmp_path / "mask.png",
        "--out",
        tmp_path / "out.png",
        *SHORT,
        *FEW,
    )
    result = np.asarray(Image.open(tmp_path / "out.png"))
    np.testing.assert_array_equal(result[mask], pixels(dtype)[mask])
    assert (result[~mask] != pixels(dtype)[~mask]).any()


def test_transparent_pixels_are_filled_in(tmp_path: Path) -> None:
    colour = np.stack([pixels(seed=0)] * 3 + [np.full((16, 16), 255, np.uint8)], 2)
    colour[4:8, 4:8] = 0
    Image.fromarray(colour).save(tmp_path / "in.png")
    whatwhere(
        "inpaint",
        tmp_path / "in.png",
        "--mask",
        "alpha",
        "--out",
        tmp_path / "out.png",
        *SHORT,
        *FEW,
    )
    result = np.asarray(Image.open(tmp_path / "out.png"))
    assert result.shape == (16, 16, 3)
    assert result[4:8, 4:8].min() > 20  # 0 before
    np.testing.assert_array_equal(result[:4], colour[:4, :, :3])


def known(size: int) -> np.ndarray:
    """A mask with one pixel to fill in."""
    mask = np.full((size, size), 255, np.uint8)
    mask[0, 0] = 0
    return mask


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number, size in enumerate((12, 14, 16)):
        Image.fromarray(pixels(size=size)).save(tmp_path / "in" / f"{number}.png")
    return tmp_path / "in"


def test_an_interrupted_folder_continues_where_it_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whatwhere.restoration import pictures

    out, restored, real = folder.parent / "out", [], pictures.restore_picture

    def interrupted(task: Task, model: object, job: object, *rest: object) -> object:
        restored.append(job.source.name)  # type: ignore[attr-defined]
        if len(restored) == 3:
            raise KeyboardInterrupt
        return real(task, model, job, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "restore_picture", interrupted)
    with pytest.raises(AssertionError):
        whatwhere("denoise", folder, "--out", out, *SHORT)
    assert sorted(path.name for path in out.iterdir()) == [
        ".whatwhere.json",
        "0.png",
        "1.png",
        "restoration.json",
    ]
    before = (out / "0.png").stat().st_mtime_ns
    whatwhere("denoise", folder, "--out", out, *SHORT)
    assert restored == ["0.png", "1.png", "2.png", "2.png"]
    assert (out / "0.png").stat().st_mtime_ns == before
    with raises(OtherResults, folder=out):
        whatwhere("denoise", folder, "--out", out, "--noise", 0.3, *SHORT)
    whatwhere("denoise", folder, "--out", out, "--noise", 0, "--overwrite", *SHORT)
    assert len(restored) == 7


def test_a_folder_is_not_continued_with_another_model_or_other_sources(folder: Path) -> None:
    task, out = Task("denoise"), folder.parent / "out"
    jobs = plan_jobs(task, DENOISER, folder, None, out)
    assert len(jobs) == 3
    write_picture(jobs[0], b"a result")
    assert [job.out.name for job in plan_jobs(task, DENOISER, folder, None, out)] == [
        "1.png",
        "2.png",
    ]
    for other in (load_dictionary(), replace(DENOISER, gain=DENOISER.gain + 1e-6)):
        with raises(OtherResults, changed=("model",)):
            plan_jobs(task, other, folder, None, out)
    with raises(OtherResults, changed=("settings",)):
        plan_jobs(Task("denoise", noise=0.1), DENOISER, folder, None, out)
    Image.fromarray(pixels(size=12, seed=9)).save(folder / "1.png")
    Image.fromarray(pixels(size=12, seed=9)).save(folder / "3.png")
    assert len(plan_jobs(task, DENOISER, folder, None, out)) == 3, "neither has a result yet"
    Image.fromarray(pixels(size=12, seed=9)).save(folder / "0.png")
    with raises(OtherResults, changed=("0.png",)):
        plan_jobs(task, DENOISER, folder, None, out)
    assert len(plan_jobs(task, DENOISER, folder, None, out, overwrite=True)) == 4


def test_a_folder_is_not_continued_with_another_mask(folder: Path) -> None:
    task, out, mask = Task("inpaint"), folder.parent / "out", folder.parent / "masks"
    mask.mkdir()
    for number, size in enumerate((12, 14, 16)):
        Image.fromarray(known(size)).save(mask / f"{number}.png")
    write_picture(plan_jobs(task, DENOISER, folder, str(mask), out)[0], b"a result")
    assert len(plan_jobs(task, DENOISER, folder, str(mask), out)) == 2
    Image.fromarray(known(12)).save(mask / "0.png", compress_level=0)
    with raises(OtherResults, changed=("0.png",)):
        plan_jobs(task, DENOISER, folder, str(mask), out)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"{", b"\xff", b"[1]", b'{"format": "whatwhere restoration 2"}']
)
def test_a_record_of_any_content_is_an_error_of_ours(folder: Path, content: bytes) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "restoration.json").write_bytes(content)
    with pytest.raises(RunError) as caught:
        plan_jobs(Task("denoise"), DENOISER, folder, None, out)
    assert len(str(caught.value)) < 400 + len(str(out))


def test_files_that_are_no_pictures_are_skipped_and_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("a note")
    (folder / "text.png").write_text("a text")
    with pytest.warns(UserWarning, match=r"skipped notes\.txt .*, text\.png"):
        jobs = plan_jobs(Task("denoise"), DENOISER, folder, None, folder.parent / "out")
    assert [job.source.name for job in jobs] == ["0.png", "1.png", "2.png"]
    with pytest.raises(ImageError, match=r"text\.png is not a usable picture"):
        plan_jobs(Task("denoise"), DENOISER, folder / "text.png", None, folder.parent / "out.png")


def test_all_pages_are_restored_and_twelve_bits_stay_twelve(tmp_path: Path) -> None:
    pages = [Image.fromarray(pixels(np.uint16, seed=seed) // 16) for seed in range(3)]
    pages[0].save(tmp_path / "in.tif", save_all=True, append_images=pages[1:])
    with pytest.warns(UserWarning, match="4095 as white"):
        whatwhere(
            "denoise", tmp_path / "in.tif", "--out", tmp_path / "out.tif", "--noise", 0.1, *SHORT
        )
    with Image.open(tmp_path / "out.tif") as result:
        assert result.n_frames == 3
        values = []
        for page in range(3):
            result.seek(page)
            values.append(np.asarray(result).astype(float))
    truth = picture(16, 16)[0, 0].numpy() * 4095
    for before, after in zip(pages, values, strict=True):
        assert np.abs(after - truth).mean() < np.abs(np.asarray(before) - truth).mean()
    with raises(UnsuitableFormat, reason=Containing("3 pages of"), suitable=(".tif",)):
        plan_jobs(Task("denoise"), DENOISER, tmp_path / "in.tif", None, tmp_path / "out.png")


def test_a_failed_write_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whatwhere.restoration.pictures.encode_pictures", failing)
    with pytest.raises(RunError, match="No space left"):
        whatwhere("denoise", folder / "0.png", "--out", folder.parent / "out.png", *SHORT)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["in"]


def test_masks_of_a_folder_go_by_name(folder: Path) -> None:
    masks = folder.parent / "masks"
    masks.mkdir()
    for number, size in enumerate((12, 14, 16)):
        Image.fromarray(known(size)).save(masks / f"{number}.png")
    task = Task("inpaint")
    jobs = plan_jobs(task, DENOISER, folder, str(masks), folder.parent / "out")
    assert [Path(job.mask or "").name for job in jobs] == ["0.png", "1.png", "2.png"]
    (masks / "1.png").unlink()
    with raises(NoSingleMask, picture=folder / "1.png", count=0):
        plan_jobs(task, DENOISER, folder, str(masks), folder.parent / "out")


def test_wrong_requests_raise_before_anything_is_written(folder: Path) -> None:
    out = folder.parent / "out"
    denoise, inpaint = Task("denoise"), Task("inpaint")
    Image.fromarray(pixels(np.uint16)).save(folder.parent / "deep.png")
    Image.fromarray(np.zeros((12, 12), np.uint8)).save(folder.parent / "black.png")
    wrong = [
        (denoise, folder / "0.png", None, out / "a.txt", "Expected a name"),
        (denoise, folder / "0.png", None, folder / "0.png", "this command reads it"),
        (denoise, folder, None, folder, "this command reads it"),
        (denoise, folder.parent / "deep.png", None, out / "a.jpg", "cannot hold"),
        (inpaint, folder / "0.png", str(folder / "0.png"), out / "a.jpg", "JPEG would change"),
        (inpaint, folder / "0.png", str(folder / "1.png"), out / "a.png", "1 mask of"),
        (
            inpaint,
            folder / "0.png",
            str(folder.parent / "black.png"),
            out / "a.png",
            "no pixel known",
        ),
        (inpaint, folder, str(folder / "1.png"), out, "mask"),
        (denoise, folder.parent / "missing.png", None, out / "a.png", "Cannot find"),
    ]
    for task, source, mask, target, message in wrong:
        with pytest.raises((ImageError, RunError), match=message):
            plan_jobs(task, DENOISER, source, mask, target, overwrite=True)
    assert not out.exists()


def test_pictures_that_differ_in_their_ending_keep_it(folder: Path) -> None:
    Image.fromarray(pixels()).save(folder / "0.bmp")
    jobs = plan_jobs(Task("denoise"), DENOISER, folder, None, folder.parent / "out")
    assert sorted(job.name for job in jobs) == ["0.bmp.png", "0.png", "1.png", "2.png"]
    Image.fromarray(pixels()).save(folder / "0.bmp.png")
    with raises(SameResult, names=("0.bmp", "0.bmp.png")):
        plan_jobs(Task("denoise"), DENOISER, folder, None, folder.parent / "other")


def test_the_estimated_noise_is_kept_and_given_again(folder: Path, tmp_path: Path) -> None:
    Image.fromarray(pixels(size=64)).save(folder / "2.png")
    kept = tmp_path / "noise.json"
    whatwhere(
        "denoise", folder / "2.png", "--out", tmp_path / "a.png", "--keep-noise", kept, *SHORT
    )
    whatwhere("denoise", folder / "2.png", "--out", tmp_path / "b.png", "--noise", kept, *SHORT)
    a, b = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in "ab")
    np.testing.assert_array_equal(a, b)
    with pytest.raises(SpecError, match="keep-noise"):
        whatwhere(
            "denoise",
            folder,
            "--out",
            tmp_path / "out",
            "--keep-noise",
            tmp_path / "n.json",
            *SHORT,
        )


def test_values_are_rounded_and_cut_off() -> None:
    import io

    values = np.array([[[-0.2, 0.3 / 255, 0.7, 1.4]]], np.float32)
    result = np.asarray(
        Image.open(
            io.BytesIO(encode_pictures([values], load(np.zeros((1, 1, 4), np.uint8)), "PNG"))
        )
    )
    assert result.tolist() == [[0, 0, 178, 255]]


def test_learning_from_the_picture_changes_the_result_and_the_noise_is_reported(
    folder: Path,
) -> None:
    Image.fromarray(pixels(size=48)).save(folder / "2.png")
    for name, option in (("a", ()), ("b", ("--learn",)), ("c", ("dictionary",))):
        output = whatwhere(
            "denoise", folder / "2.png", "--out", folder.parent / f"{name}.png", *option
        )
        assert re.search(r"2.png: estimated noise σ = 0\.\d+", output)
    a, b = (np.asarray(Image.open(folder.parent / f"{name}.png")).astype(int) for name in "ab")
    assert (a != b).any()
    assert np.abs(a - b).mean() < 20


def test_pictures_without_noise_are_counted_and_many_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = np.full((40, 40), 128, np.uint8)
    (tmp_path / "in").mkdir()
    for number in range(3):
        values = pixels(size=40) if number == 1 else flat
        Image.fromarray(values).save(tmp_path / "in" / f"{number}.png")
    printed = whatwhere("denoise", tmp_path / "in", "--out", tmp_path / "few", "--device", "cpu")
    assert "1.png: estimated noise σ = 0.0" in printed
    summary = "restored 1 picture; no white noise found in 2 pictures, which stay as they are"
    assert summary in printed
    monkeypatch.setattr(restoration, "SHOWN", 2)
    printed = whatwhere("denoise", tmp_path / "in", "--out", tmp_path / "many", "--device", "cpu")
    assert "estimated noise" not in printed
    assert summary in printed


def test_noise_may_be_counted_photons(folder: Path) -> None:
    """For whole numbers, poisson means a gain of 1 in their units."""
    for name, noise in (("a", "poisson"), ("b", f"{1 / 255},0"), ("c", "0.1")):
        whatwhere(
            "denoise", folder / "2.png", "--out", folder.parent / f"{name}.png", "--noise", noise
        )
    a, b, c = (np.asarray(Image.open(folder.parent / f"{name}.png")) for name in "abc")
    assert (a == b).all()
    assert (a != c).any()


def test_the_card_of_the_shipped_model_has_its_checksum() -> None:
    import hashlib

    from whatwhere import models

    file = models.path("photographs")
    card = file.with_suffix(".md").read_text(encoding="utf-8")
    assert hashlib.sha256(file.read_bytes()).hexdigest() in card
    assert f"{file.stat().st_size:,} bytes" in card


# Nothing lost, nothing silent


def test_an_interrupted_overwrite_is_continued(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures of former settings are not taken for results of the new ones."""
    from whatwhere.restoration import pictures

    out = folder.parent / "out"
    whatwhere("denoise", folder, "--out", out, "--noise", 0, *SHORT)
    real = pictures.restore_picture
    restored = []

    def killed(task: Task, model: object, job: Job, *rest: object) -> None:
        if len(restored) == 1:
            raise KeyboardInterrupt
        restored.append(job.source.name)
        real(task, model, job, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "restore_picture", killed)
    with pytest.raises(AssertionError):
        whatwhere("denoise", folder, "--out", out, "--noise", 0.1, "--overwrite", *SHORT)
    assert "1.png" not in json.loads((out / "restoration.json").read_text())
    monkeypatch.setattr(pictures, "restore_picture", real)
    assert "restored 2 pictures" in whatwhere(
        "denoise", folder, "--out", out, "--noise", 0.1, *SHORT
    )
    whatwhere("denoise", folder, "--out", folder.parent / "expected", "--noise", 0.1, *SHORT)
    for name in ("0.png", "1.png", "2.png"):
        assert (out / name).read_bytes() == (folder.parent / "expected" / name).read_bytes()
    assert "all results exist already" in whatwhere(
        "denoise", folder, "--out", out, "--noise", 0.1, *SHORT
    )


def test_a_result_that_somebody_replaced_is_not_overwritten(folder: Path) -> None:
    out = folder.parent / "out"
    whatwhere("denoise", folder, "--out", out, "--noise", 0, *SHORT)
    (out / "1.png").write_bytes(b"somebody else's")
    with pytest.raises(RunError, match=r"1\.png exists already"):
        whatwhere("denoise", folder, "--out", out, "--noise", 0, *SHORT)
    assert (out / "1.png").read_bytes() == b"somebody else's"


def test_results_in_a_folder_of_their_source_are_continued(folder: Path) -> None:
    out = folder / "out"
    out.mkdir()
    Image.fromarray(pixels()).save(out / "not a source.png")
    assert "restored 3 pictures" in whatwhere("denoise", folder, "--out", out, "--noise", 0, *SHORT)
    (out / "not a source.png").unlink()
    assert "all results exist already" in whatwhere(
        "denoise", folder, "--out", out, "--noise", 0, *SHORT
    )
    (out / "1.png").unlink()
    assert "restored 1 picture" in whatwhere("denoise", folder, "--out", out, "--noise", 0, *SHORT)
    assert sorted(path.name for path in out.glob("*.png")) == ["0.png", "1.png", "2.png"]


def with_extras(kind: str) -> Image.Image:
    """A noisy picture with a smooth alpha channel, 0 at a corner."""
    alpha = np.clip(np.add.outer(np.arange(24), np.arange(24)) * 8, 0, 255).astype(np.uint8)
    planes = [pixels(size=24, seed=s) for s in range(3 if kind == "RGBA" else 1)]
    return Image.fromarray(np.stack([*planes, alpha], 2))


@pytest.mark.parametrize("kind", ["LA", "RGBA"])
@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_transparency_profile_and_resolution_are_kept(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    from PIL import ImageCms

    given = with_extras(kind)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    given.save(tmp_path / "in.png", icc_profile=profile, dpi=(300, 150))
    for noise in (0, 0.1):
        out = tmp_path / f"{noise}{suffix}"
        whatwhere("denoise", tmp_path / "in.png", "--out", out, "--noise", noise, *SHORT)
        found = Image.open(out)
        assert found.info["icc_profile"] == profile
        if suffix != ".webp":  # which has none
            assert found.info["dpi"] == pytest.approx((300, 150), rel=1e-3)
        values = np.asarray(found.convert(kind))
        np.testing.assert_array_equal(values[..., -1], np.asarray(given)[..., -1])
        if not noise and suffix != ".webp":  # lossless, but for colours that nobody sees
            np.testing.assert_array_equal(values, np.asarray(given))
    truth = picture(24, 24)[0, 0].numpy() * 255
    assert np.abs(values[..., 0] - truth).mean() < np.abs(np.asarray(given)[..., 0] - truth).mean()


def test_the_profile_and_resolution_of_deep_colour_are_kept(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    deep = np.stack([pixels(np.uint16, seed=s) for s in range(3)])
    options = {"photometric": "rgb", "planarconfig": "separate", "metadata": None}
    for unit, scale in ((2, 1.0), (3, 2.54)):
        tifffile.imwrite(
            tmp_path / "in.tif",
            deep,
            resolution=(300 / scale, 150 / scale),
            resolutionunit=unit,
            iccprofile=b"profile!",
            **options,
        )
        out = tmp_path / "out.tif"
        whatwhere(
            "denoise", tmp_path / "in.tif", "--out", out, "--noise", 0.1, "--overwrite", *SHORT
        )
        page = tifffile.TiffFile(out).pages[0]
        assert page.iccprofile == b"profile!"
        assert page.resolution == pytest.approx((300 / scale, 150 / scale), rel=1e-3)
        assert page.resolutionunit == unit


IMAGEJ = {"imagej": True, "resolution": (5.0, 4.0), "metadata": {"axes": "TZYX", "unit": "um"}}
IMAGEJ["metadata"] |= {"spacing": 0.5, "finterval": 2.5}
OME = {"axes": "TZYX", "PhysicalSizeX": 0.2, "PhysicalSizeXUnit": "µm", "TimeIncrement": 2.5}


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    [
        ("in.tif", np.uint8, IMAGEJ),
        ("in.tif", np.uint16, IMAGEJ),
        ("in.ome.tif", np.uint16, {"metadata": OME}),
        ("in.ome.tif", np.int16, {"metadata": OME}),
        ("in.ome.tif", np.float32, {"metadata": OME}),
    ],
)
def test_axes_units_and_intervals_of_a_stack_are_kept(
    tmp_path: Path, name: str, dtype: type, options: dict[str, object]
) -> None:
    tifffile = pytest.importorskip("tifffile")
    stack = np.stack([pixels(np.uint8, seed=s) for s in range(6)]).reshape(2, 3, 16, 16)
    tifffile.imwrite(tmp_path / name, stack.astype(dtype), **options)
    out = tmp_path / f"out_{name}"
    whatwhere("denoise", tmp_path / name, "--out", out, "--noise", 0.001, *SHORT)
    with tifffile.TiffFile(tmp_path / name) as before, tifffile.TiffFile(out) as after:
        assert after.series[0].axes == "TZYX"
        assert after.series[0].shape == (2, 3, 16, 16)
        assert after.series[0].dtype == dtype
        assert after.imagej_metadata == before.imagej_metadata
        assert after.ome_metadata == before.ome_metadata
        assert after.pages[0].resolution == before.pages[0].resolution


def test_negative_values_of_signed_pixels_are_kept(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    truth = 20000 * picture(32, 32)[0, 0].numpy() - 9000
    noise = 1000 * np.random.default_rng(0).standard_normal(truth.shape)
    given = (truth + noise).astype(np.int16)
    tifffile.imwrite(tmp_path / "in.tif", given)
    whatwhere(
        "denoise", tmp_path / "in.tif", "--out", tmp_path / "out.tif", "--noise", 0.03, *SHORT
    )
    result = tifffile.imread(tmp_path / "out.tif")
    assert result.dtype == np.int16
    assert result.min() < -5000
    assert np.abs(result - truth).mean() < 0.8 * np.abs(given - truth).mean()


def test_formats_without_transparency_raise(tmp_path: Path) -> None:
    with_extras("RGBA").save(tmp_path / "in.png")
    for name in ("out.jpg", "out.bmp"):
        with raises(UnsuitableFormat, reason=Containing("has transparency")):
            whatwhere("denoise", tmp_path / "in.png", "--out", tmp_path / name, *SHORT)


def test_nothing_to_fill_in_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="leaves nothing to fill in"):
        whatwhere(
            "inpaint",
            folder / "0.png",
            "--mask",
            "alpha",
            "--out",
            tmp_path / "out.png",
            *SHORT,
            *FEW,
        )
    with pytest.raises(ImageError, match="3 of 3 pictures have nothing to fill in"):
        whatwhere("inpaint", folder, "--mask", "alpha", "--out", tmp_path / "out", *SHORT, *FEW)
    gap = np.full((12, 12, 2), 255, np.uint8)
    gap[4:6, 4:6] = 0
    Image.fromarray(gap).save(folder / "gap.png")
    with pytest.warns(UserWarning, match="3 of 4 pictures have nothing to fill in"):
        assert "restored 4 pictures" in whatwhere(
            "inpaint", folder, "--mask", "alpha", "--out", tmp_path / "out", *SHORT, *FEW
        )
