SHELL := bash
# Two commands for a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3.11
TORCH ?= torch==2.13.0
BIN := .venv/bin

.PHONY: demo test check bounds clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest

# Bounds are compiled in, so this needs a kernel cache of its own.
bounds: .venv/ready
	cache=$$(mktemp -d); trap 'rm -rf "$$cache"' EXIT; \
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$$cache $(BIN)/python -m pytest --quiet tests/stream tests/partition

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[train,dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache demo-output
