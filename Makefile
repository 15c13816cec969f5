# Every target works from a fresh clone: it makes .venv when missing, and installs again only when
# pyproject.toml or constraints.txt changed.
#
#   make demo                      the main job end to end, about two minutes on two cores
#   make test PYTEST_ARGS='-k store'    part of the suite
#   make bench                     the comparisons of fpa-lab bench under pytest-benchmark
#   make install PYTHON=python3.12      another interpreter (3.11 or newer)

PYTHON ?= python3
PYTEST_ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed

# Two test workers with one thread each: on two cores, worker threads would only wait for one another.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.PHONY: install demo test test-all bench lint format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; name one with PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/fpa-lab demo

test: $(STAMP)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m 'not slow and not cluster' $(PYTEST_ARGS)

test-all: $(STAMP)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# Timed, so alone on the machine; numbers for all that is measured: fpa-lab bench.
bench: $(STAMP)
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only --benchmark-columns=median,iqr,rounds $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
