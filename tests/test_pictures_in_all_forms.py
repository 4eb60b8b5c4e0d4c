"""Every public function that takes pictures takes them in every form, and finds the same in each:
a path, a folder, paths, Pillow's pictures, arrays and tensors of any type, `Images`."""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from public_names import public_names

pytest.importorskip("sklearn")
pillow = pytest.importorskip("PIL.Image")

SIDE = 12
N = 4
FEW = ww.InferenceSpec(steps=1)
SHORT = {
    "model.layers": [{"maps": 2, "filter_size": 3}],
    "learning.each.epochs": 1,
    "learning.each.inference.steps": 1,
    "inference.steps": 1,
}
RECIPE = ww.override(ww.Recipe.paper(), SHORT)
REFERENCE = ww.TrainingOptions(engine="reference")


def black_and_white(*shape: int) -> np.ndarray:
    """Pictures of 0 and 255, which every type can hold, bool too."""
    return np.random.default_rng(0).integers(0, 2, shape).astype(np.uint8) * 255


GREY = black_and_white(N, SIDE, SIDE)
COLOUR = black_and_white(N, SIDE, SIDE, 3)


def values(pixels: np.ndarray) -> dict[str, object]:
    """Pixels 0 and 255 as arrays and tensors of every type."""
    arrays = {
        "uint8": pixels,
        "uint16": pixels.astype(np.uint16) * 257,
        "bool": pixels > 0,
        "float32": pixels.astype(np.float32) / 255,
        "float64": pixels / 255.0,
    }
    tensors = {f"tensor {name}": torch.from_numpy(arrays[name]) for name in ("uint8", "float32")}
    return {**arrays, **tensors, "Images": ww.data.load(pixels)}


def forms_of_one(pixels: np.ndarray, folder: Path) -> dict[str, object]:
    """One picture [H, W] or [H, W, 3] in every form."""
    path = folder / "0.png"
    picture = pillow.fromarray(pixels)
    picture.save(path)
    files = {"path": path, "name": str(path), "Pillow": picture, "paths": [path]}
    batch = {f"one of {name}": one for name, one in values(pixels[None]).items()}
    return {**files, **values(pixels), **batch}


def forms_of_several(pixels: np.ndarray, folder: Path) -> dict[str, object]:
    """Pictures [N, H, W] or [N, H, W, 3] in every form."""
    pictures = [pillow.fromarray(one) for one in pixels]
    paths = [folder / f"{number}.png" for number in range(len(pixels))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    channels_first = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
    first = {f"channels first, {name}": v for name, v in values(channels_first).items()}
    first = dict(list(first.items())[-3:])
    lists = {"folder": folder, "paths": paths, "Pillow": pictures, "arrays": list(pixels)}
    return {**lists, **values(pixels), **first}


def model_of(channels: int) -> ww.DeconvNet:
    layer = ww.LayerSpec(maps=2, filter_size=3)
    return ww.DeconvNet(ww.ModelSpec(layers=(layer,), channels=channels))


def rows(model: ww.DeconvNet, pictures: object) -> torch.Tensor:
    return ww.classification.describe_images(model, pictures, RECIPE, engine="reference")


def learned_cost(model: ww.DeconvNet, pictures: object) -> list[float]:
    short = ww.DistillSpec(batches=1, batch_size=2, imitation=0)
    unrolled = ww.UnrolledInference(model, steps=1)
    return ww.distill(unrolled, pictures, short, engine="reference")


def written(model: ww.DeconvNet, pictures: object) -> np.ndarray:
    Path("codes.npz").unlink(missing_ok=True)
    codes = ww.codes.write_codes("codes.npz", model, pictures, FEW, engine="reference")
    return np.concatenate([codes.latents(number).p for number in range(len(codes))])


def features() -> ww.DeconvNetFeatures:
    return ww.DeconvNetFeatures(
        maps=2, filter_size=3, epochs=1, training_steps=1, steps=1, engine="reference"
    )


Call = Callable[[ww.DeconvNet, object], object]
ONE: dict[str, Call] = {  # what takes one picture
    "infer": lambda m, x: ww.infer(m, x, FEW, engine="reference").features,
    "DeconvNet.infer": lambda m, x: m.infer(x, FEW, engine="reference").features,
    "infer_tiled": lambda m, x: ww.infer_tiled(m, x, FEW, engine="reference").reconstruction,
    "classification.describe_images": rows,
    "codes.write_codes": written,
    "data.load": lambda m, x: ww.data.load(x)[:],
    "data.load_groups": lambda m, x: ww.data.load_groups(x)[0][0][:],
    "restoration.estimate_noise": lambda m, x: ww.restoration.estimate_noise(x).source,
}
SEVERAL: dict[str, Call] = {
    "train": lambda m, x: ww.train(x, RECIPE, options=REFERENCE).model.filters[0],
    "distill": learned_cost,
    "data.load_for_training": lambda m, x: ww.data.load_for_training(x)[0][:],
    **{n: call for n, call in ONE.items() if n not in ("infer_tiled", "codes.write_codes")},
}
NETWORK = "a network's layer: a tensor [N, C, H, W], as in PyTorch"
ROWS = "rows of numbers"
LATENTS = "latents or a solution, not pictures"
ELSEWHERE: dict[str, str] = {  # parameters that are named like pictures, and where they are tested
    "AnomalyDetector": "test_detectors",
    "DeconvNetFeatures": "test_features_for_scikit_learn",
    "MapFeatures": "reads them by data.load",
    "Labelling": "reads them by data.load",
    "TrainedRun": "a run",
    "LearnedSteps": "the file that they were read from",
    "classification.fit_svm": ROWS,
    "classification.protocol.choose": ROWS,
    "classification.protocol.evaluate": ROWS,
    "GraphClassifier": ROWS,
    "labelled_score": ROWS,
    "UnrolledInference": NETWORK,
    "nn.SparseCode2d": NETWORK,
    "model.Problem": "the input of an engine, which `infer` makes",
    "Latents": LATENTS,
    "data.Images": "what `load` returns",
    "data.Signals": "what `load` returns",
    "data.find_parts": "a folder of parts",
    "figures.RunFigures": "the images of a run, which its command chooses",
    "restoration.NoiseEstimate": "the tensor whose noise it describes",
    "restoration.denoise": "restoration/test_forms.py: the result has the form that came",
    "restoration.inpaint": "restoration/test_forms.py: the result has the form that came",
}
NAMES = {"image", "images", "picture", "pictures", "source", "X"}
FIGURES = {f"figures.{name}" for name in ("animation", "composite", "decomposition")}
FIGURES |= {"figures.reconstructions", "figures.where_map"}


def short_name(name: str) -> str:
    return name.removeprefix("whatwhere.")


def test_every_function_that_takes_pictures_is_in_a_table() -> None:
    tested = {*ONE, *SEVERAL, *ELSEWHERE, *FIGURES}
    missing = []
    for name, thing in public_names().items():
        functions = [thing]
        if inspect.isclass(thing):
            functions = [f for key, f in vars(thing).items() if inspect.isfunction(f)]
        own = name.startswith(("whatwhere.errors", "whatwhere.learning")) or any(
            issubclass(thing, Exception) for thing in [thing] if inspect.isclass(thing)
        )
        takes = any(NAMES & set(inspect.signature(f).parameters) for f in functions)
        known = {short_name(name), f"{short_name(name)}.infer"}
        if takes and not own and not known & tested:
            missing.append(name)
    assert missing == []


def agree(found: object, expected: object) -> bool:
    if isinstance(expected, str):
        return found == expected
    return np.allclose(np.asarray(found), np.asarray(expected), atol=1e-5)


def different(call: Call, channels: int, forms: dict[str, object]) -> list[str]:
    """The forms in which a function finds something else than in the first form."""
    model = model_of(channels)
    first = next(iter(forms.values()))
    expected = call(model, first)
    return [name for name, form in forms.items() if not agree(call(model, form), expected)]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("pixels", [GREY[0], COLOUR[0]], ids=["grey", "colour"])
@pytest.mark.parametrize("name", ONE)
def test_one_picture(name: str, pixels: np.ndarray, in_a_folder: Path) -> None:
    channels = 1 if pixels.ndim == 2 else 3
    assert different(ONE[name], channels, forms_of_one(pixels, in_a_folder)) == []


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_pictures(name: str, pixels: np.ndarray, in_a_folder: Path) -> None:
    channels = 1 if pixels.ndim == 3 else 3
    assert different(SEVERAL[name], channels, forms_of_several(pixels, in_a_folder)) == []


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
def test_features_for_scikit_learn(pixels: np.ndarray, in_a_folder: Path) -> None:
    """One array [H, W] is the exception: two axes are rows, as everywhere in scikit-learn."""
    forms = forms_of_several(pixels, in_a_folder)
    fitted = features().fit(pixels)
    assert different(lambda m, x: fitted.transform(x), 1, forms) == []
    from_files = features().fit(in_a_folder)
    assert agree(from_files.transform(in_a_folder), fitted.transform(pixels))
    one = {"Pillow": forms["Pillow"][0], "path": forms["paths"][0], "array": pixels[:1]}
    assert different(lambda m, x: fitted.transform(x), 1, one) == []


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
def test_detectors(pixels: np.ndarray, in_a_folder: Path) -> None:
    opened = {
        name: [*ww.anomaly.open_pictures(form)]
        for name, form in forms_of_several(pixels, in_a_folder).items()
    }
    expected = torch.stack(opened.pop("folder"))
    assert [name for name, found in opened.items() if not agree(torch.stack(found), expected)] == []
    opened = {
        name: next(iter(ww.anomaly.open_pictures(form)))
        for name, form in forms_of_one(pixels[0], in_a_folder).items()
    }
    assert [name for name, found in opened.items() if not agree(found, expected[0])] == []


def test_figures() -> None:
    model = model_of(1)
    solution = ww.infer(model, GREY, FEW, engine="reference")
    latents, picture = solution.latents, pillow.fromarray(GREY[0])
    ww.figures.decomposition(model, picture, latents[:1])
    ww.figures.animation(model, GREY[0], FEW)
    ww.figures.reconstructions(model, [picture], latents[:1])
    ww.figures.composite(model, GREY, [latents])
    ww.figures.where_map(model, GREY > 0, latents, layer=1, feature=0)
