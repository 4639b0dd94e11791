# Every target sets up what it needs: only Python 3.11 and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-oldest check bench dist docs site examples golden viewer clean

demo: $(READY)
	$(BIN)/python -m edgewise.demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 $(ORDER)

test-oldest: $(READY)
	.ci/oldest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

examples: $(READY)
	set -e; for script in examples/[0-9]*.py; do echo "== $$script"; $(BIN)/python $$script; done

docs: $(READY)
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

site: docs
	EDGEWISE_SITE=1 $(BIN)/python -m pytest -q tests/browser tests/viewer/test_browser.py

dist: $(READY)
	.ci/wheel

bench: $(READY)
	$(BIN)/python bench/all.py

viewer:  # the script of pages about attention, from web/: needs Node 20
	cd web && npm install --no-save --no-audit --no-fund && npm run build && npx vitest run

golden: $(READY)
	$(BIN)/python -m pytest -q -n 2 --golden-update

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Edgewise needs Python 3.11 or later: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-wheel dist site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
