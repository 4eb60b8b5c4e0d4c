"""Codes as tables: every number is that of the dense code."""

from pathlib import Path

import numpy as np
import pytest

from codes.test_code_files import solve, write
from examples import SPECS
from raising import raises
from whatwhere.codes.files import Codes, load_codes
from whatwhere.errors import MissingExtra
from whatwhere.model import DeconvNet


@pytest.fixture
def codes(tmp_path: Path) -> Codes:
    model = DeconvNet(SPECS["2 layers"])
    solutions = solve(model, [(9, 8)])
    write(tmp_path / "codes.npz", model, solutions, [(9, 8)], where=True)
    return load_codes(tmp_path / "codes.npz")


def test_a_row_of_pandas_is_a_feature_with_its_place_and_where(codes: Codes) -> None:
    pytest.importorskip("pandas")
    table = codes.to_pandas()
    dense = np.zeros_like(codes.features)
    dense[tuple(table[name] for name in ("image", "map", "row", "column"))] = table["value"]
    assert np.array_equal(dense, codes.features)
    assert (table["value"] != 0).all()
    row = table.iloc[-1]
    theta = codes.latents(int(row["image"])).pooling_params[-1]
    at = (0, slice(None), int(row["map"]), int(row["row"]), int(row["column"]))
    assert list(row[["mu_row", "mu_column"]]) == theta.mu[at].tolist()
    assert list(row[["gamma_row", "gamma_column"]]) == theta.gamma[at].tolist()
    assert (table["label"] == np.asarray(codes.labels)[table["image"]]).all()


def test_xarray_names_the_axes(codes: Codes) -> None:
    pytest.importorskip("xarray")
    array = codes.to_xarray()
    assert array.dims == ("image", "map", "row", "column")
    assert np.array_equal(array.sel(image=array.label == 1)[0], codes.features[1])


def test_a_package_that_is_missing_is_named(codes: Codes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with raises(MissingExtra, package="xarray"):
        codes.to_xarray()
