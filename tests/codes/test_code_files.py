"""Sparse codes in a file: NumPy and SciPy read them, and the model decodes them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples import SPECS, random_images
from raising import Containing, raises
from whatwhere.codes.files import load_codes, write_block
from whatwhere.codes.rows import block_arrays, code_rows
from whatwhere.codes.small_codes import CodeRows
from whatwhere.data.limits import limited
from whatwhere.errors import ImageError, InvalidImages, UnknownFormat, UnusableImageFile
from whatwhere.inference import infer
from whatwhere.latents import SparseLatents, SparseMap
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, InputSpec, LayerSpec, ModelSpec

STAGE = ModelSpec(
    layers=(LayerSpec(maps=4, filter_size=3),),
    channels=2,
    input=InputSpec(kind="onoff", sigma=1.0, contrast=0.5),
)


def solve(model: DeconvNet, sizes: list[tuple[int, int]]) -> list[Solution]:
    images = [
        random_images(model.spec, 2, *size, seed=i).to(model.dtype) for i, size in enumerate(sizes)
    ]
    return [infer(model, v, InferenceSpec(lam=2.0, steps=20), engine="reference") for v in images]


def write(
    path: Path,
    model: DeconvNet,
    solutions: list[Solution],
    sizes: list[tuple[int, int]],
    where: bool,
) -> None:
    """A file of one block in 32 bits, which is the former format of codes."""
    rows = [
        code_rows(model, solution.latents, (model.spec.channels, *size), where=where, exact=True)
        for solution, size in zip(solutions, sizes, strict=True)
    ]
    count = sum(len(one) for one in rows)
    arrays = block_arrays(model, rows, exact=True, more={"labels": np.arange(count)})
    with open(path, "wb") as file:
        write_block(file, arrays, compress=False)


@pytest.mark.parametrize(
    "spec", [SPECS["2 layers, rectangular"], STAGE], ids=["rectangular", "onoff"]
)
@pytest.mark.parametrize("sizes", [[(9, 8)], [(9, 8), (12, 7)]], ids=["one size", "two sizes"])
def test_codes_are_decoded_to_the_reconstruction(
    tmp_path: Path, spec: ModelSpec, sizes: list[tuple[int, int]]
) -> None:
    model = DeconvNet(spec)
    solutions = solve(model, sizes)
    write(tmp_path / "codes.npz", model, solutions, sizes, where=True)
    codes = load_codes(tmp_path / "codes.npz")
    features = [p for solution in solutions for p in solution.features]
    images = [image for solution in solutions for image in solution.reconstruction]
    assert len(codes) == len(features)
    for i, (p, image) in enumerate(zip(features, images, strict=True)):
        assert torch.equal(codes.latents(i).p[0], p)
        torch.testing.assert_close(codes.decode(model, i), image, rtol=0, atol=1e-6)
    assert codes.decode(
        model.to("meta"), 0
    ).is_meta  # where the model is, though files are read into memory
    np.testing.assert_array_equal(codes.labels, np.arange(len(features)))


def test_numpy_and_scipy_read_the_features(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"])
    (solution,) = solve(model, [(9, 8)])
    write(tmp_path / "codes.npz", model, [solution], [(9, 8)], where=False)
    with np.load(tmp_path / "codes.npz", allow_pickle=False) as file:
        first, last = file["features_indptr"][1:3]
        p = np.zeros(file["features_shape"][1].prod(), np.float32)
        p[file["features_indices"][first:last]] = file["features_values"][first:last]
        np.testing.assert_array_equal(p.reshape(file["features_shape"][1]), solution.features[1])
        assert not any(name.startswith(("mu", "where", "low")) for name in file)
    codes = load_codes(tmp_path / "codes.npz")
    np.testing.assert_array_equal(codes.features, solution.features)
    with raises(InvalidImages, remedy="Encode the images again with --where."):
        codes.decode(model, 0)


def test_codes_without_a_feature(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["1 layer"])
    solution = infer(model, torch.zeros(1, 1, 8, 8), InferenceSpec(steps=2), engine="reference")
    write(tmp_path / "codes.npz", model, [solution], [(8, 8)], where=True)
    codes = load_codes(tmp_path / "codes.npz")
    assert codes[0].nonzeros == 0
    assert codes.decode(model, 0).count_nonzero() == 0


def test_codes_of_several_sizes_are_not_one_array(tmp_path: Path) -> None:
    model, sizes = DeconvNet(SPECS["1 layer"]), [(9, 8), (12, 7)]
    write(tmp_path / "codes.npz", model, solve(model, sizes), sizes, where=False)
    with raises(InvalidImages, expected="one size for dense features"):
        _ = load_codes(tmp_path / "codes.npz").features


def test_files_that_are_not_codes_raise(tmp_path: Path) -> None:
    with raises(ImageError) as caught:
        load_codes(tmp_path / "none.npz")
    assert str(tmp_path / "none.npz") in str(caught.value)
    (tmp_path / "noise.npz").write_bytes(b"PK\x03\x04 noise")
    with raises(UnusableImageFile, kind="file of codes"):
        load_codes(tmp_path / "noise.npz")
    np.savez(tmp_path / "other.npz", features=np.zeros((2, 3, 4, 4)))
    np.savez(tmp_path / "later.npz", format=np.array("whatwhere codes 3"))
    for name, given in (("other.npz", None), ("later.npz", "whatwhere codes 3")):
        with pytest.raises(UnusableImageFile) as caught:
            load_codes(tmp_path / name)
        assert isinstance(caught.value.__cause__, UnknownFormat)
        assert caught.value.__cause__.given == given


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "codes.npz")
    with raises(
        UnusableImageFile,
        kind="file of codes",
        reason="it is a pipe, a socket or a device; expected a regular file",
    ):
        load_codes(tmp_path / "codes.npz")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The arrays of a valid file."""
    path = tmp_path_factory.mktemp("codes") / "codes.npz"
    model = DeconvNet(STAGE)
    write(path, model, solve(model, [(9, 8)]), [(9, 8)], where=True)
    with np.load(path) as file:
        return dict(file)


def changed(values: np.ndarray, at: Any, to: Any) -> np.ndarray:
    values = values.copy()
    values[at] = to
    return values


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("features_indices", lambda a: a + 10_000),
        ("features_indices", lambda a: -1 - a),
        ("features_indices", lambda a: a.astype(float)),
        ("features_indices", lambda a: changed(a, 1, a[0])),
        ("features_indptr", lambda a: a + 1),
        ("features_indptr", lambda a: changed(a, 1, 2**62)),
        ("features_indptr", lambda a: a[:-1]),
        ("features_shape", lambda a: -a),
        ("features_shape", lambda a: a[:, :2]),
        ("features_values", lambda a: changed(a, 0, np.nan)),
        ("features_values", lambda a: a.astype("U5")),
        ("mu1", lambda a: a[1:]),
        ("where1_shape", lambda a: a[:1]),
        ("image_shape", lambda a: a[0]),
        ("low", lambda a: a[:1]),
        ("labels", lambda a: a[:1]),
    ],
)
def test_arrays_that_do_not_belong_together_raise(
    tmp_path: Path,
    good: dict[str, np.ndarray],
    name: str,
    change: Callable[[np.ndarray], np.ndarray],
) -> None:
    np.savez(tmp_path / "bad.npz", **{**good, name: np.ascontiguousarray(change(good[name]))})
    with raises(UnusableImageFile, kind="file of codes"):
        load_codes(tmp_path / "bad.npz")


def test_a_missing_array_is_named(tmp_path: Path, good: dict[str, np.ndarray]) -> None:
    for name in ("features_values", "where1_indptr", "image_shape", "gamma1"):
        np.savez(
            tmp_path / "bad.npz", **{key: values for key, values in good.items() if key != name}
        )
        with raises(UnusableImageFile, reason=Containing(f"{name}' is missing")):
            load_codes(tmp_path / "bad.npz")


def test_places_in_any_order_are_written_in_order() -> None:
    places = torch.tensor([20, 3, 7, 31])
    code = SparseLatents(SparseMap((2, 4, 4), places, places[:, None].float()), ())
    arrays = CodeRows.of_sparse(code, (1, 4, 4)).exact()
    assert arrays["features_indices"].tolist() == [3, 7, 20, 31]
    assert arrays["features_values"].tolist() == [3, 7, 20, 31]


def test_a_file_takes_no_more_memory_than_it_has_bytes(
    tmp_path: Path, good: dict[str, np.ndarray]
) -> None:
    """Compressed arrays, and grids that only the header declares."""
    np.savez(
        tmp_path / "large.npz", **{**good, "features_shape": np.array([[4, 20_000, 20_000]] * 2)}
    )
    with raises(
        UnusableImageFile,
        kind="file of codes",
        reason="features has 84 values for grids of 3,200,000,000",
    ):
        load_codes(tmp_path / "large.npz")
    with limited(decompressed=10_000):
        np.savez_compressed(
            tmp_path / "bomb.npz", **{**good, "names": np.zeros(20_000, np.uint8).view("U4")}
        )
        with raises(UnusableImageFile, reason=Containing("it decompresses to")):
            load_codes(tmp_path / "bomb.npz")
        np.savez(tmp_path / "more.npz", **good, other=np.zeros(20_000, np.uint8))
        assert len(load_codes(tmp_path / "more.npz")) == 2
