# Two commands: `make demo` shows what the program does, `make test` checks that it is right.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Continuous integration must never download a CUDA build of torch: there the constraint makes pip stop instead.
PIP_FLAGS := --constraint .ci/newest.txt $(if $(CI),--constraint .ci/no-cuda.txt)

.PHONY: suite demo reproduce test check weight lint types imports core-tests docs package coverage fuzz compare attack axe clean
demo: $(VENV)/.demo
	$(BIN)/whatwhere demo

# The paper's tables and curves at the quick scale, and RESULTS.md; what has a result is not measured again.
reproduce: $(VENV)/.demo
	$(BIN)/python -m reproduction all report

# What fails within seconds comes first, then what the tests run is compiled, the longest first. The types are checked
# next to the tests, some of which wait for a browser or another process.
# Bytecode is written even where PYTHONDONTWRITEBYTECODE is set: it saves every process that tests start a second.
MACHINE_CODE := $(addprefix machine-code-,float32 float64 pooling restoration)
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev
	$(MAKE) --jobs 2 --output-sync lint imports
	$(MAKE) --jobs 2 --output-sync $(MACHINE_CODE)
	$(MAKE) --jobs 2 types suite

# Four workers: tests that wait for a browser or another process leave a core to others.
suite: $(VENV)/.dev
	$(BIN)/python -m pytest -n 4 --dist worksteal

# Before every commit, at most a minute: format, lint, types of what changed, imports, the core's tests.
check: $(VENV)/.dev
	$(BIN)/ruff format .
	$(MAKE) --jobs 3 core-tests types imports quick-lint

quick-lint: $(VENV)/.dev
	$(BIN)/ruff check .

core-tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow and not documentation' tests/spec tests/ops tests/model \
	  tests/engines/test_ista.py tests/inference/test_checks.py tests/test_structure.py

# How heavy the package is to read, as a table. No size is a test.
weight: $(VENV)/.dev
	$(BIN)/python -m benchmarks.weight

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/sp-repo-review .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# float32 and float64: the engines
machine-code-%: $(VENV)/.dev
	$(BIN)/python tests/compile_engine.py $*

# The documentation site, docs/_build/html; a warning is an error. GALLERY=0 leaves out running its examples.
GALLERY ?= 1
docs: $(VENV)/.docs $(VENV)/.dev
	$(BIN)/python -m pytest docs/checks # the numbers of the pages are those of the result files
	$(BIN)/python -m pytest -n 2 -m documentation tests/docs # the code of pages and docstrings runs
	$(BIN)/sphinx-build -W --keep-going -q -D plot_gallery=$(GALLERY) docs docs/_build/html
	npm install --silent --prefix docs/browser # onnxruntime-web, for the page that removes noise in a browser
	$(BIN)/python docs/browser_page.py docs/_build/html/browser

# The package as users get it: built, checked, at most 5 MB, installed in an empty environment and tried there (every
# command's help, a small walk, the demo). Then the source distribution runs its own tests.
package: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	test -z "$$(find dist -name '*.whl' -size +5000k)"
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/python -m pip install --quiet $(PIP_FLAGS) "$$(echo dist/*.whl)[all]"
	dist/empty/bin/python tests/installed.py dist
	cd dist && empty/bin/whatwhere demo
	tar -xzf dist/*.tar.gz -C dist
	cd dist/whatwhere-*/ && PYTHONPATH=src $(CURDIR)/$(BIN)/python -m pytest -n 2 --dist worksteal

# Branch coverage of what runs on a CPU; its number is in CONTRIBUTING.md.
coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered --cov-report=json:coverage.json

# 100,000 damaged and hostile files for the IDX reader, in at most 15 minutes.
fuzz: $(VENV)/.dev
	$(BIN)/python tests/data/fuzz_idx.py --inputs 100000 --seconds 900

# 5,000 random problems: every engine against the reference in float64.
compare: $(VENV)/.dev
	$(BIN)/python tests/engines/random_agreement.py --cases 5000 --processes 2

# 20,000 hostile files for every reader, 300 commands killed and run again, every command that writes on a full and on
# a read-only disk, runs with damaged files, odd environments.
attack: $(VENV)/.dev
	$(BIN)/python tests/attack/hostile_files.py --files 20000
	$(BIN)/python tests/attack/kills.py --kills 300
	$(BIN)/python tests/attack/full_disk.py --rooms 3
	$(BIN)/python tests/attack/torn_runs.py
	$(BIN)/python tests/attack/environments.py

# axe-core on every page, at two widths, in both schemes. It is installed in a temporary folder and needs npm.
axe: $(VENV)/.dev
	folder=$$(mktemp -d) && npm install --silent --no-audit --no-fund --prefix $$folder axe-core && \
	AXE_JS=$$folder/node_modules/axe-core/axe.min.js; export AXE_JS; \
	PYTHONPATH=tests $(BIN)/python tests/pages/axe.py $$AXE_JS benchmarks/results/axe.json && \
	$(BIN)/python -m pytest -q tests/pages/test_axe.py; status=$$?; rm -r $$folder; exit $$status

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp a set of packages: set up again only when pyproject.toml has changed.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable '.[all]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' # the first that installs groups
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable '.[all,gpu]' --group dev
	touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' # the first that installs groups
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable '.[all]' --group docs
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) docs/_build docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis
