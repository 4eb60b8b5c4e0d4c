"""The shape of the project: heavy imports, the test of every module, and whether
docs/architecture.md is true. The order of the parts is checked by the import contract in
pyproject.toml."""

import ast
import functools
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "whatwhere"
MODULES = sorted(SOURCE.rglob("*.py"))
HOMES = {
    "triton": lambda path: (
        "engines/triton/" in path.as_posix() or path.as_posix().startswith("nn/triton_")
    ),
    "matplotlib": lambda path: "figures" in path.parts or path.name == "figures.py",
    "sklearn": lambda path: {"classification", "labelling", "anomaly"} & set(path.parts),
}
# Modules without a test file of their name, and the test that covers them. A * stands for the
# modules of a folder.
COVERED_BY = {
    "classification/label_scores.py": "classification/test_graph.py",
    "classification/row_graph.py": "classification/test_view_graphs.py",
    "views/choice.py": "views/test_view.py",
    "views/given.py": "views/test_view.py",
    "signals/figures.py": "signals/test_signal_figures.py",
    "signals/recording.py": "signals/test_files.py",
    "data/gaps.py": "signals/test_signal_figures.py",
    "figures/animation.py": "figures/test_drawing.py",
    "html/server.py": "pages/test_explorer.py",
    "anomaly/squares.py": "anomaly/test_evidence.py",
    "anomaly/filters.py": "anomaly/test_evidence.py",
    "anomaly/scorer.py": "anomaly/test_detector.py",
    "anomaly/contrast.py": "anomaly/test_detector.py",
    "anomaly/joined.py": "anomaly/test_features.py",
    "nn/feature_maps.py": "anomaly/test_features.py",
    "restoration/planes.py": "restoration/test_dictionary.py",
    "restoration/pursuit.py": "restoration/test_dictionary.py",
    "restoration/noise.py": "restoration/test_estimate.py",
    "restoration/figures.py": "restoration/test_estimate.py",
    "restoration/white_noise.py": "restoration/test_denoise.py",
    "figures/composite.py": "figures/test_drawing.py",
    "figures/decomposition.py": "figures/test_drawing.py",
    "engines/fast.py": "engines/test_support.py",
    "engines/devices.py": "inference/test_infer.py",
    "engines/reference/step_size.py": "engines/test_ista.py",
    "anomaly/aligned.py": "anomaly/test_detector.py",
    "anomaly/page.py": "anomaly/test_anomaly_cli.py",
    "signals/page.py": "pages/test_recording_page.py",
    "anomaly/pictures.py": "anomaly/test_detector.py",
    "anomaly/command.py": "anomaly/test_anomaly_cli.py",
    "app/demo_run.py": "app/test_demo.py",
    "app/figures.py": "figures/test_run_figures.py",
    "codes/encoder.py": "codes/test_encode.py",
    "codes/writer.py": "codes/test_encode.py",
    "codes/command.py": "codes/test_encode.py",
    "signals/command.py": "signals/test_settings.py",
    "signals/event_table.py": "signals/test_find.py",
    "app/download.py": "commands/test_builder.py",
    "codes/kept_blocks.py": "codes/test_encode.py",
    "codes/rows.py": "codes/test_small_codes.py",
    "commands/outputs.py": "app/test_claims.py",
    "app/train.py": "app/test_train_command.py",
    "classification/settings.py": "classification/test_distortions.py",
    "anomaly/settings.py": "anomaly/test_detector.py",
    "restoration/settings.py": "restoration/test_denoise.py",
    "codes/settings.py": "codes/test_encode.py",
    "labelling/command.py": "explorer/test_explore_command.py",
    "lazy.py": "test_package.py",
    "explorer/command.py": "explorer/test_explore_command.py",
    "explorer/page.py": "pages/test_explorer.py",
    "explorer/settings.py": "pages/test_explorer.py",
    "labelling/classes_page.py": "pages/test_classes.py",
    "labelling/label_tables.py": "labelling/test_labelling.py",
    "engines/cpu/*": "engines/test_engines_cpu.py",
    "engines/triton/*": "engines/test_engines_triton.py",
    "engines/reference/filter_map.py": "learning/test_filter_problem.py",
    "inference/auto_lam.py": "inference/test_infer.py",
    "engines/reference/pooling_update.py": "engines/test_ista.py",
    "engines/jit/simd.py": "engines/test_engines_cpu.py",
    "engines/jit/region.py": "nn/test_cpu_pooling.py",
    "engines/jit/vector_math.py": "formulas/test_formulas.py",
    "spec/recipe.py": "spec/test_spec.py",
    "formulas/fits.py": "ops/test_pooling.py",
    "formulas/penalty.py": "formulas/test_formulas.py",
    "formulas/pooling.py": "formulas/test_formulas.py",
    "formulas/step.py": "formulas/test_formulas.py",
    "spec/penalty.py": "formulas/test_formulas.py",
    "spec/pooling.py": "ops/test_pooling.py",
    "latents.py": "learning/test_latent_store.py",
    "classification/protocol.py": "classification/test_linear_svm.py",
    "learning/reports.py": "learning/test_session.py",
    "model/problem.py": "inference/test_checks.py",
    "model/sized.py": "model/test_deconvnet.py",
    "nn/cpu_tiles.py": "nn/test_cpu_pooling.py",
    "nn/fused.py": "nn/test_functional.py",
    "nn/plain.py": "nn/test_functional.py",
    "nn/triton_overlap.py": "nn/test_triton_pooling.py",
    "nn/triton_region.py": "nn/test_triton_pooling.py",
    "nn/triton_pairs.py": "nn/test_triton_pooling.py",
    "restoration/restore.py": "restoration/test_denoise.py",
    "app/bench.py": "commands/test_builder.py",
    "app/info.py": "commands/test_builder.py",
    "restoration/command.py": "restoration/test_pictures.py",
    "spec/checks.py": "spec/test_spec.py",
    "spec/docstrings.py": "docs/test_docstrings.py",
    "spec/inference.py": "spec/test_spec.py",
    "spec/model.py": "spec/test_spec.py",
    "engines/base.py": "engines/test_engines_base.py",
    "engines/compiled.py": "engines/test_jit_cache.py",
    "labelling/session.py": "labelling/test_labelling.py",
    "labelling/suspects.py": "labelling/test_labelling.py",
    "labelling/labels.py": "labelling/test_labelling.py",
    "classification/joined_describer.py": "labelling/test_descriptions.py",
    "labelling/label_file.py": "labelling/test_labelling.py",
    "labelling/neighbourhood.py": "labelling/test_labelling.py",
    "labelling/suggestions.py": "labelling/test_labelling.py",
    "labelling/estimate.py": "labelling/test_labelling.py",
    "labelling/page.py": "pages/test_labelling_page.py",
    "labelling/thumbnails.py": "pages/test_labelling_page.py",
}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inside(path: Path) -> str:
    """The path of a module inside the package."""
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_is_imported_only_at_home(package: str) -> None:
    users = [
        path.relative_to(SOURCE)
        for path in MODULES
        if any(name == package or name.startswith(package + ".") for name in imported(path))
    ]
    assert users, f"nothing imports {package}: the check would be idle"
    assert [str(path) for path in users if not HOMES[package](path)] == []


def own_test(path: Path) -> bool:
    """Does a folder of tests named like a folder of the module hold a test file named like it?"""
    folders = [ROOT / "tests" / parent for parent in path.relative_to(SOURCE).parents]
    return any((folder / f"test_{path.stem}.py").exists() for folder in folders)


def test_every_module_has_a_test_of_its_name_or_is_listed() -> None:
    modules = {inside(path): own_test(path) for path in MODULES if not path.name.startswith("__")}

    def listed(name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in COVERED_BY)

    missing = [name for name, tested in modules.items() if not tested and not listed(name)]
    assert missing == [], "write tests/<folder>/test_<name>.py, or list the module in COVERED_BY"
    idle = [
        p
        for p in COVERED_BY
        if not any(fnmatch(name, p) and not tested for name, tested in modules.items())
    ]
    assert idle == [], "listed without need"
    assert [test for test in COVERED_BY.values() if not (ROOT / "tests" / test).exists()] == []


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_parts() -> list[str]:
    """The files and folders that the tree in docs/architecture.md names at the start of
    its lines."""
    (tree,) = re.findall(r"^    src/whatwhere/\n((?:      .*\n)+)", architecture(), re.MULTILINE)
    parts, folder = [], ""
    for line in tree.splitlines():
        entry = re.match(r"^( +)((?:[\w.]+/?  ?)*[\w.]+/?)(?:  |$)", line)
        if entry is None or len(entry[1]) > 8:
            continue
        names = entry[2].split()
        prefix = folder if len(entry[1]) == 8 else ""
        parts += [prefix + name for name in names if "/" in name or name.endswith(".py")]
        if len(entry[1]) == 6 and names[0].endswith("/"):
            folder = names[0]
    return parts


def test_the_tree_of_the_architecture_page_is_the_tree_of_the_package() -> None:
    parts = listed_parts()
    assert [part for part in parts if not (SOURCE / part).exists()] == []
    top = {
        path.name + ("/" if path.is_dir() else "")
        for path in SOURCE.iterdir()
        if not path.name.startswith("__")
    }
    assert sorted(top - {"py.typed"} - set(parts)) == []


# Names of the changes that were made on a branch, to count the files that they touch
OF_THROWN_AWAY_CHANGES = {"Decay", "pooling_every"}


def test_the_names_on_the_architecture_page_exist() -> None:
    names = set(re.findall(r"`([\w./]+)(?:\(.*?\))?`", architecture())) - OF_THROWN_AWAY_CHANGES
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    text += (ROOT / "pyproject.toml").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text(
        encoding="utf-8"
    )

    def exists(name: str) -> bool:
        if "/" in name or name.endswith((".py", ".md", ".toml")):
            rooms = (SOURCE / room for room in ("", "inference", "learning", "engines"))
            file, _, function = name.partition(".")  # such as cpu/records.with_known_start
            return any(
                (root / name).exists()
                or (
                    (root / f"{file}.py").exists()
                    and f"def {function}(" in (root / f"{file}.py").read_text(encoding="utf-8")
                )
                for root in (ROOT, *rooms)
            )
        return all(re.search(rf"\b{re.escape(part)}\b", text) for part in name.split(".") if part)

    assert sorted(name for name in names if not exists(name)) == []


# Words that docstrings also use for values, such as `spec.steps`
VALUES = {"spec", "codes", "explorer"}


def test_modules_that_docstrings_name_exist() -> None:
    """Such as `signals.waveforms`, or a name in a module of that room."""
    rooms = {path.name: path for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    named = re.compile(rf"`((?:{'|'.join(rooms.keys() - VALUES)})\.\w+)")
    gone = []
    for module in MODULES:
        for name in named.findall(module.read_text(encoding="utf-8")):
            room, inner = name.split(".")
            files = [*rooms[room].rglob("*.py"), *rooms[room].glob("*.pyi")]
            known = {path.stem for path in files} | {path.parent.name for path in files}
            defined = re.compile(rf"(?:def|class|import|as) {inner}\b|^{inner}\b", re.MULTILINE)
            texts = (path.read_text(encoding="utf-8") for path in files)
            if inner not in known and not any(map(defined.search, texts)):
                gone.append(f"{inside(module)}: {name}")
    assert gone == []


SUMMARIES_NOT_YET = ("restoration",)
"""Folders whose docstrings still begin with a noun clause. A folder that is done is removed."""
NOUN_CLAUSES = {"A", "All", "An", "Each", "Every", "How", "One", "That", "The", "What", "Where"}
NOUN_CLAUSES |= {"Whether", "Which", "Why"}


def summaries(path: Path) -> list[tuple[str, str]]:
    """Collect the functions of a module that are not properties, and the first words of their
    docstrings."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            is_property = any("property" in ast.unparse(mark) for mark in node.decorator_list)
            if not is_property:
                found.append((f"{inside(path)}: {node.name}", text.split()[0]))
    return found


def test_a_summary_says_what_the_function_does() -> None:
    paths = [
        path
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in SUMMARIES_NOT_YET
    ]
    begun = [summary for path in paths for summary in summaries(path)]
    assert len(begun) > 500
    assert [name for name, first in begun if first in NOUN_CLAUSES] == []
