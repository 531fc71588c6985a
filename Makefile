# Every target works as the first command on a machine with Python and make only: it creates the environment it needs.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# A stamp per set of extras; each set contains the one before it.
DEMO := $(VENV)/.installed-demo
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev
NOTEBOOK := $(VENV)/.installed-notebook
DOCS := $(VENV)/.installed-docs

.PHONY: demo test test-long notebooks docs lint bench clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/'

demo: $(DEMO)  ## write, differentiate, schedule, compile, check, measure: the whole library on one screen
	$(BIN)/python examples/demo.py

test: $(TEST)  ## the test suite, without the tests marked long
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

test-long: $(TEST)  ## the tests marked long, with fresh random draws
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long --hypothesis-profile=long $(PYTEST_ARGS)

notebooks: $(NOTEBOOK)  ## run the notebooks through Jupyter and write the .ipynb beside their texts
	$(BIN)/python -m notebooks.pairs

docs: $(DOCS)  ## the documentation, every example run, in build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

lint: $(DEV)  ## style, types and the import law
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEMO)  ## what the library costs, against its limits; then speed beside PyTorch where that is installed
	$(BIN)/python -m benchmarks.overhead
	@if $(BIN)/python -c 'import torch, threadpoolctl' 2>/dev/null; then $(BIN)/python -m benchmarks.compare && $(BIN)/python -m benchmarks.sizes; \
	else echo "no PyTorch and threadpoolctl (pip install 'tedsl[bench]'): nothing to compare with"; fi

clean:  ## the environment and every cache
	rm -rf $(VENV) build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(TEST): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(DEMO)

$(NOTEBOOK): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[notebook]'
	@touch $@ $(DEMO)

$(DOCS): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@ $(DEMO)

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(TEST) $(DEMO)
