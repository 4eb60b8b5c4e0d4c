"""Classes for Ray Data: by themselves, and in a real local Ray whose worker is killed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from whatwhere.anomaly import AnomalyDetector, open_pictures
from whatwhere.classification import describe_images
from whatwhere.errors import ImageError, MissingColumn, SeveralSizes
from whatwhere.ray_data import Denoise, Describe, Encode, Score, latents_of
from whatwhere.restoration import denoise, load_denoiser
from whatwhere.spec import InferenceSpec

PLAIN = {"device": "cpu", "engine": "reference"}
SPEC = InferenceSpec(lam=2.0, steps=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("ray") / "run")


def dense(shape, places, values) -> np.ndarray:
    flat = np.zeros(int(np.prod(shape)), np.float32)
    flat[places] = values
    return flat.reshape(shape)


def test_codes_are_those_of_infer_in_any_mix_of_sizes(run):
    bars = tiny.bars(5)[0]
    column = np.empty(5, object)
    for number, picture in enumerate(bars):
        column[number] = picture if number % 2 else picture[:8]
    batch = {"image": column, "name": np.array(list("abcde"))}
    coded = Encode(run, SPEC, where=True, **PLAIN)(batch)
    assert coded["name"].tolist() == list("abcde")
    assert "image" not in coded
    model = ww.load(run)
    for number, picture in enumerate(column):
        expected = ww.infer(model, torch.from_numpy(picture)[None, None], SPEC, engine="reference")
        found = dense(
            coded["features_shape"][number],
            coded["features_indices"][number],
            coded["features_values"][number],
        )
        np.testing.assert_allclose(found, expected.features[0], atol=1e-6)
        assert len(coded["mu1"][number]) == 2 * len(coded["where1_indices"][number])
        row = {name: values[number] for name, values in coded.items()}
        height, width = picture.shape
        decoded = model.at(height, width).decode(latents_of(row, model).dense())
        torch.testing.assert_close(decoded[0], expected.reconstruction[0], rtol=0, atol=1e-5)


def test_codes_of_a_model_with_an_input_stage_decode_with_what_it_took_off():
    model = ww.load("photographs")
    pictures = np.random.default_rng(0).random((2, 24, 32)).astype(np.float32)
    pictures[1] = 0.5  # has no feature
    encode = Encode("photographs", SPEC, where=True, **PLAIN)
    coded = encode({"image": pictures})
    assert "low" in coded
    for number, picture in enumerate(pictures):
        row = {name: values[number] for name, values in coded.items()}
        decoded = model.at(24, 32).decode(latents_of(row, model).dense())
        images = torch.from_numpy(picture)[None, None]
        expected = ww.infer(model, images, SPEC, engine="reference").reconstruction
        torch.testing.assert_close(decoded, expected, rtol=0, atol=1e-5)


def test_descriptors_are_those_of_describe_images(run):
    bars = tiny.bars(4)[0]
    found = Describe(run, **PLAIN)({"image": bars})["descriptor"]
    recipe = ww.read_run(run).recipe
    images = torch.from_numpy(bars)[:, None]
    expected = describe_images(ww.load(run), images, recipe, engine="reference")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def killed_once() -> type[Encode]:
    """A class that kills the first worker that gets a batch.

    Made in a function, it is sent to workers as it is: they need not import this file.
    """

    class KilledOnce(Encode):
        def __init__(self, flag: str, **keywords) -> None:
            torch.set_num_threads(1)
            super().__init__(**keywords)
            self.flag = Path(flag)

        def __call__(self, batch):
            try:
                self.flag.touch(exist_ok=False)
            except FileExistsError:
                return super().__call__(batch)
            os.kill(os.getpid(), signal.SIGKILL)

    return KilledOnce


def column(*cells: object) -> np.ndarray:
    """A column of a batch whose cells may be anything."""
    made = np.empty(len(cells), object)
    made[:] = cells
    return made


@pytest.fixture(scope="module", params=[Encode, Describe, Denoise])
def worker(request, run):
    if request.param is Denoise:
        return Denoise(0.1, device="cpu")
    return request.param(run, **({"spec": SPEC} if request.param is Encode else {}), **PLAIN)


def test_hostile_cells_are_errors_of_ours(worker, tmp_path):
    """A worker that raises anything else would be started again and again."""
    picture = tiny.bars(1)[0][0]
    os.mkfifo(tmp_path / "pipe")
    hostile = [
        column(picture, None),
        column("x"),
        column({"bytes": b""}),
        column({"bytes": b"\x89PNG\r\n\x1a\n" + b"x" * 99}),
        column({"bytes": None, "path": str(tmp_path / "missing.png")}),
        column({"bytes": None, "path": str(tmp_path / "pipe")}),
        column({"bytes": None, "path": str(tmp_path)}),
        column(picture[:0]),
        np.full((1, 8, 8), "x"),
        np.full((1, 8, 8), 1j),
        picture[None] * np.nan,
        picture[None] + np.inf,
    ]
    for pictures in hostile:
        with pytest.raises(ImageError):
            worker({"image": pictures})


def test_a_batch_without_the_column_names_those_that_it_has(worker):
    with pytest.raises(MissingColumn) as raised:
        worker({"picture": tiny.bars(1)[0], "path": np.array(["a"])})
    assert (raised.value.given, raised.value.known) == ("image", ("picture", "path"))


def test_a_batch_without_rows_stays_one(worker):
    """Ray makes them where a filter has left nothing."""
    found = worker({"image": tiny.bars(1)[0][:0], "path": np.array([], str)})
    assert list(found) == ["path"]


def test_descriptors_of_several_sizes_are_an_error(run):
    picture = tiny.bars(1)[0][0]
    with pytest.raises(SeveralSizes) as raised:
        Describe(run, **PLAIN)({"image": column(picture, picture[:8])})
    assert raised.value.sizes == ((8, 10), (10, 10))


def a_folder(place: Path, pictures: np.ndarray) -> Path:
    """Write pictures as PNG files; their numbers are their names."""
    place.mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(place / f"{number:02}.png")
    return place


@pytest.mark.slow
def test_a_real_ray_with_a_killed_worker_gives_the_result_of_one_process(
    run, tmp_path, monkeypatch
):
    """Pictures of a folder, and the same as the bytes of files in Parquet, in one dataset, so that
    the workers start once; one of the two is killed."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    data = pytest.importorskip("ray.data", reason="the extra `ray` is not installed")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    bars = (tiny.bars(24)[0] * 255).astype(np.uint8)
    folder = a_folder(tmp_path / "pictures", bars)
    files = sorted(folder.glob("*.png"))
    cells = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    table = arrow.table({"image": cells, "path": [f"parquet/{file.name}" for file in files]})
    parquet.write_table(table, tmp_path / "pictures.parquet")
    # workers wait for all other programs otherwise, such as other tests
    monkeypatch.setenv("RAY_worker_niceness", "0")
    # two for the workers, one for what reads and writes; each starts a process
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        arrays = data.read_images(str(folder), mode="L", include_paths=True, override_num_blocks=6)
        both = arrays.union(data.read_parquet(str(tmp_path / "pictures.parquet")))
        settings = {"flag": str(tmp_path / "killed"), "model": str(run), "spec": SPEC}
        coded = both.map_batches(
            killed_once(),
            fn_constructor_kwargs=settings | PLAIN,
            batch_size=None,  # a batch has arrays or bytes
            concurrency=2,
        )
        coded.write_parquet(str(tmp_path / "codes"), concurrency=1)
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists(), "no worker was killed"
    alone = Encode(run, SPEC, **PLAIN)({"image": bars})
    rows = parquet.read_table(tmp_path / "codes").to_pylist()
    found = {row["path"]: row for row in rows}
    names = [str(file) for file in files] + [f"parquet/{file.name}" for file in files]
    assert len(rows) == len(found) == 48
    assert sorted(found) == sorted(names)
    for path, row in found.items():
        number = int(Path(path).stem)
        assert list(row["features_indices"]) == alone["features_indices"][number].tolist()
        np.testing.assert_allclose(
            row["features_values"], alone["features_values"][number], atol=1e-6
        )


def test_scores_are_those_of_the_detector(tmp_path):
    generator = np.random.default_rng(0)
    normal = generator.random((8, 40, 40)).astype(np.float32)
    detector = AnomalyDetector().fit(normal[:, None])
    detector.save(tmp_path / "detector.safetensors")
    found = Score(tmp_path / "detector.safetensors")({"image": normal[:3]})
    expected = [one.score for one in detector.detect(open_pictures(normal[:3, None]))]
    np.testing.assert_allclose(found["score"], expected, rtol=1e-5)
    assert found["anomaly"].dtype == bool


def test_pictures_without_noise_are_those_of_denoise():
    generator = np.random.default_rng(0)
    ramp = np.linspace(0.2, 0.8, 32, dtype=np.float32)
    noisy = ramp + 0.1 * generator.normal(size=(2, 32, 32)).astype(np.float32)
    found = Denoise(0.1, device="cpu")({"image": noisy, "name": np.array(["a", "b"])})
    assert found["name"].tolist() == ["a", "b"]
    expected = denoise(noisy[:, None], load_denoiser(), 0.1)
    np.testing.assert_allclose(np.stack(list(found["image"])), expected[:, 0], atol=1e-6)
