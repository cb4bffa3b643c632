# `make demo` and `make test` do all their own set-up: they need Python 3.11 or newer, and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs bench clean

help:
	@echo "make demo    see what is gained on eight schools; writes demo.png"
	@echo "make test    lint, types and all tests"
	@echo "make lint    lint and types only"
	@echo "make docs    the documentation, into build/docs"
	@echo "make bench   how fast it is on this machine"
	@echo "make clean   remove what these made, .venv included"

demo: $(READY)
	$(BIN)/steincv demo --out demo.png

test: lint
	# one thread a worker: two workers fill two cores, and spinning BLAS threads slow each other down
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

bench: $(READY)
	$(BIN)/steincv bench

# Everything once, and again when the dependencies change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "steincv needs Python 3.11 or newer. Run: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist demo.png
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
