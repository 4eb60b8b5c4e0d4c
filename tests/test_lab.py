"""The lab and the benchmarks stand outside: they use the package by its public names, and nothing
of it uses them."""

import ast
import importlib
import importlib.util
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from public_names import MODULES

ROOT = Path(__file__).parents[1]
# Files that may import what is not public, and why.
EXCEPTIONS = {
    "benchmarks/defects/promise.py": "the interval alone, on scores that are simulated",
    "benchmarks/defects/unseen.py": "compares evidence of our own, of a network and of both",
    "benchmarks/house/decodings.py": "it counts calls of the functions that decode",
    "benchmarks/labels/after_a_label.py": "what the labelling page does after a label, without it",
    "benchmarks/labels/any_folder_rows.py": "describes pictures as `label` does",
    "benchmarks/labels/any_folder_test.py": "describes pictures as `label` does",
    "benchmarks/labels/few_labels_tables.py": "joins rows as the tables before it",
    "benchmarks/labels/labelling_page.py": "the labelling page and its server",
    "benchmarks/labels/map_frames.py": "the labelling page and its server",
    "benchmarks/labels/must_hold.py": "describes pictures as `label` does",
    "benchmarks/labels/one_example.py": "compares other forms of the metric",
    "benchmarks/labels/one_rule.py": "compares other forms of the metric and of the graph",
    "benchmarks/labels/plain_views.py": "the views that the page begins with",
    "benchmarks/labels/pose.py": "the metric, and its distortions",
    "benchmarks/labels/ten_labels.py": "compares other forms of the metric and of the graph",
    "benchmarks/labels/views_rows.py": "describes pictures as `label` does",
    "benchmarks/labels/page_errors.py": "what the labelling page does, without the page",
    "benchmarks/labels/many_rows.py": "the index of cells, with settings of its own",
    "benchmarks/learning/cluster.py": "starts processes that train and describe",
    "benchmarks/learning/few_images.py": "varies what the defaults choose",
    "benchmarks/learning/learning_curve.py": "notes the model in the course of a training",
    "benchmarks/memory/encode_memory.py": "the writer of `whatwhere encode`",
    "benchmarks/memory/large_pictures.py": "the writer of `whatwhere encode`",
    "benchmarks/memory/streamed.py": "the classes that Ray calls",
    "benchmarks/memory/recording_memory.py": "the writer of `whatwhere events`",
    "benchmarks/restoration/camera_noise.py": "learns the classifier of cameras from its features",
    "benchmarks/restoration/camera_shares.py": "measures what the classifier of cameras removes",
    "benchmarks/restoration/scales.py": "compares weights of the two scales",
    "benchmarks/restoration/colour.py": "another rule for the length of filters",
    "benchmarks/restoration/denoiser_colour.py": "trains on planes as the denoiser restores them",
    "benchmarks/signals/recordings.py": "the choices that training makes from a recording",
    "benchmarks/signals/signals_peers.py": "starts both programs at the same pieces of the signals",
    "benchmarks/speed/cpu_parts.py": "times the parts of the CPU engine",
    "benchmarks/speed/explorer_engine.py": "the engine of the explorer's page",
    "benchmarks/speed/gpu_check.py": "runs engines and layers of two versions",
    "benchmarks/speed/sporco_accuracy.py": "times the Newton steps apart",
    "benchmarks/speed/sporco_comparison.py": "starts both programs at the same latents",
    "benchmarks/weight.py": "counts the options of the commands",
    "reproduction/studies/best_search.py": "compares other cells of descriptors",
    "reproduction/studies/labels.py": "the sizes of descriptors, to build the network's head",
    "reproduction/studies/printed_gradient.py": "writes the printed equations next to ours",
    "reproduction/studies/reset.py": "resets in other ways than training does",
    "reproduction/svm/few_label_svm.py": "Newton's method is that of the linear SVM",
    "reproduction/svm/kernel_svm.py": "Newton's method is that of the linear SVM",
    "reproduction/svm/working_set.py": "Newton's method is that of the linear SVM",
}
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for name in ("reproduction", "benchmarks")
    for path in (ROOT / name).rglob("*.py")
}


def imports(path: Path, package: str) -> Iterator[tuple[str, str]]:
    """What a file imports from a package: a module and a name in it, which is empty for a module
    alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (
                (alias.name, "") for alias in node.names if alias.name.split(".")[0] == package
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_public(module: str, name: str) -> bool:
    """Whether a package lists the name, or the module is one that the reference documents."""
    names = getattr(importlib.import_module(module), "__all__", None)
    if names is not None:
        return module == "whatwhere" if not name else name in names
    return module in MODULES


def exists(module: str, name: str) -> bool:
    try:
        found = (
            hasattr(importlib.import_module(module), name)
            if name
            else bool(importlib.import_module(module))
        )
        return found or importlib.util.find_spec(f"{module}.{name}") is not None
    except ImportError:
        return False


@pytest.mark.parametrize("file", FILES)
def test_only_public_names_are_imported(file: str) -> None:
    imported = list(imports(FILES[file], "whatwhere"))
    assert [f"{module}.{name}" for module, name in imported if not exists(module, name)] == [], (
        "it is gone"
    )
    internal = [f"{module}.{name}" for module, name in imported if not is_public(module, name)]
    if file in EXCEPTIONS:
        assert internal, "listed without need"
    else:
        assert internal == [], "use a public name, make it public, or list the file with the reason"


def test_every_exception_is_a_file() -> None:
    assert set(EXCEPTIONS) <= set(FILES)


BENCHMARKS = [file for file in FILES if file.startswith("benchmarks/")]
SHARED = {"benchmarks/log.py", "benchmarks/machine.py", "benchmarks/weight.py"}


def test_every_benchmark_is_in_the_folder_of_its_subject() -> None:
    assert {file for file in BENCHMARKS if file.count("/") == 1} == SHARED


@pytest.mark.parametrize("file", BENCHMARKS)
def test_a_benchmark_names_the_command_that_runs_it(file: str) -> None:
    text = FILES[file].read_text(encoding="utf-8")
    if "__main__" in text:
        command = f"-m {file.removesuffix('.py').replace('/', '.')}"
        assert command in " ".join((ast.get_docstring(ast.parse(text)) or "").split())


@pytest.mark.parametrize("package", ["reproduction", "benchmarks"])
def test_the_package_does_not_import(package: str) -> None:
    folders = (ROOT / "src", ROOT / "examples")
    users = [
        path for folder in folders for path in folder.rglob("*.py") if list(imports(path, package))
    ]
    assert users == []


def test_the_wheel_holds_the_package_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/whatwhere"]


def test_what_is_not_public_is_found(tmp_path: Path) -> None:
    code = (
        "from whatwhere.engines.reference.ista import step\nfrom whatwhere import infer,"
        " nothing\nimport whatwhere.files\n"
    )
    (tmp_path / "code.py").write_text(code)
    found = list(imports(tmp_path / "code.py", "whatwhere"))
    assert [is_public(*each) for each in found] == [False, True, False, False]
    assert [exists(*each) for each in found] == [True, True, False, True]
