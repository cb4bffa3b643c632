# `make demo` and `make test` do all their own set-up: they need Python 3.11 or newer, and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

# What is imported is compiled once: a hundred tests start a Python of their own.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-next lint style docs bench bench-check clean

help:
	@echo "make demo    see what is gained on eight schools; writes demo.png"
	@echo "make test    lint, types and all tests"
	@echo "make lint    lint and types only"
	@echo "make test-next  the adapters on Python 3.13 with PyMC 6 and ArviZ 1, where that interpreter is"
	@echo "make docs    the documentation, into build/docs"
	@echo "make bench   how fast it is on this machine"
	@echo "make bench-check  the same, and what is slower than in the committed run"
	@echo "make clean   remove what these made, .venv included"

demo: $(READY)
	$(BIN)/steincv demo --out demo.png

test: style
	# types beside the tests. One thread a worker: two workers fill two cores, and spinning BLAS threads slow each other
	@$(BIN)/mypy > $(VENV)/types.txt & OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal; tests=$$?; \
		wait $$!; types=$$?; cat $(VENV)/types.txt; exit $$((tests | types))

# The data model of ArviZ changed with Python 3.12: the adapters are tested on both sides of that.
NEXT ?= $(shell python3.13 -c 'import sys; print(sys.executable)' 2>/dev/null || \
	ls "$$(pyenv root 2>/dev/null)"/versions/3.13.*/bin/python3.13 2>/dev/null | tail -n 1)

test-next:
ifeq ($(NEXT),)
	@echo "test-next: skipped, there is no python3.13 here"
else
	test -x .venv-next/bin/python || $(NEXT) -m venv .venv-next
	.venv-next/bin/python -m pip install --quiet --disable-pip-version-check -e '.[all]' \
		pytest pytest-xdist hypothesis beartype "h5netcdf[h5py]" -c constraints-next.txt
	OPENBLAS_NUM_THREADS=1 .venv-next/bin/python -m pytest -n 2 tests/adapters
endif

lint: style
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

bench: $(READY)
	$(BIN)/steincv bench

bench-check: $(READY)
	$(BIN)/steincv bench --check benchmarks/results/bench.json

# Everything once, and again when the dependencies change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "steincv needs Python 3.11 or newer. Run: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# Python compiles the modules that are used when they are; pip would compile them all, for half a minute
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]' -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-next .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist demo.png
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
