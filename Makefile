PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
DOCS ?= .venv-docs

.PHONY: install demo test test-slow test-gpu test-adapters test-lowest coverage mutants fuzz kills lint \
	bars bench reproduce dist docs clean

install: $(VENV)/.installed

# The stamp makes `make test` after `make demo` start at once.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

demo: install
	$(BIN)/assay demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One thread to a process, and a process to a core.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

test-slow: install
	$(BIN)/python -m pytest -m slow

# Bad and odd values for every public call: all kinds once, then mixtures, for so many seconds.
SECONDS ?= 600
fuzz: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.robustness.fuzz $(SECONDS)

# 300 kills of everything that writes files: nothing is lost, and nothing is left.
kills: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.robustness.kills 300

# Lines of the library that no test runs; those that workers of executors run are not seen.
coverage: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --cov=assay --cov-report=term:skip-covered \
		--cov-fail-under=95

# The library is broken in one place after another, in a copy: a test must fail each time.
mutants: install
	$(BIN)/python -m tests.mutants

test-gpu: install
	$(BIN)/python -m pytest -m gpu

# Libraries that are heavy, in an environment of their own.
.venv-adapters/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	.venv-adapters/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt \
		-e '.[adapters]' pytest
	touch $@

# The lowest versions that pyproject.toml allows. Their warnings are theirs, and results are compared
# with those of the newest peers alone. Torch is that of constraints.txt unless told otherwise:
# make test-lowest TORCH=torch==2.4.0
TORCH ?= torch
.venv-lowest/.installed: pyproject.toml .ci/lowest.py
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check \
		$(if $(filter torch,$(TORCH)),-c constraints.txt) $(TORCH)
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check -c .venv-lowest/lowest.txt \
		-e '.[plots,cli,report,files,zuko]' pytest pytest-xdist
	touch $@

test-lowest: .venv-lowest/.installed
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n auto -o filterwarnings=default \
		-k "not scikit_learn and not against_scipy" $(LOWEST)

LOWEST := tests/support tests/test_io.py tests/test_results.py tests/classifiers tests/cli tests/level \
	tests/test_nulls.py tests/plots tests/report

# BayesFlow with each of the backends that are there.
test-adapters: export OMP_NUM_THREADS := 1
test-adapters: .venv-adapters/.installed
	KERAS_BACKEND=jax .venv-adapters/bin/python -m pytest -m adapters tests/adapters/test_heavy.py
	KERAS_BACKEND=torch .venv-adapters/bin/python -m pytest -m adapters -k bayesflow \
		tests/adapters/test_heavy.py

# How often the sentences of a check are true: hours, resumable, with records in results/bars; or a
# share of the repetitions, make bars SHARE=0.1 RECORDS=build/bars.
SHARE ?= 1.0
RECORDS ?= results/bars
bars: export PYTHONPATH := .
bars: install
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.bars $(or $(STUDIES),all) --share $(SHARE) --out $(RECORDS)

# Experiments and benchmarks lie beside the package, and are not installed.
bench: export PYTHONPATH := .
bench: install $(DOCS)/.installed bars
	$(BIN)/python -m benchmarks.bars leak,leak-networks
	$(BIN)/python -m benchmarks.alternatives --half held --out results/bars/alternatives.json
	$(BIN)/python -m benchmarks.simulator --out results/bars/simulator.json
	$(BIN)/python -m benchmarks.level
	$(BIN)/python -m benchmarks.speed_check
	$(BIN)/python -m benchmarks.speed peer --out results/speed/peer.json
	$(BIN)/python -m benchmarks.speed threads --out results/speed/threads.json
	$(BIN)/python -m benchmarks.speed sizes --out results/speed/sizes.json
	$(BIN)/python -m benchmarks.speed memory --out results/speed/memory.json
	$(BIN)/python -m benchmarks.speed_compat
	$(BIN)/python -m benchmarks.speed_ranks
	$(BIN)/python -m benchmarks.speed_c2st
	$(BIN)/python -m benchmarks.speed_jansen_rit
	$(BIN)/python -m benchmarks.tasks
	$(DOCS)/bin/python -m benchmarks.peers --out results/speed/peers.json
	$(DOCS)/bin/python -m benchmarks.reach
	$(BIN)/python -m benchmarks.page

# Every figure and table of the paper: at a small budget, under half an hour on two cores, or with
# BUDGET=paper. A run that was stopped goes on.
BUDGET ?= smoke
reproduce: install
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments all --budget $(BUDGET) --workers 2

# The wheel and the source are built and checked; the wheel, without extras, runs alone.
PIP := python -m pip install -q --disable-pip-version-check
dist:
	rm -rf dist build
	$(PYTHON) -m venv build/tools
	build/tools/bin/$(PIP) build twine
	build/tools/bin/python -m build -q
	build/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv build/alone
	build/alone/bin/$(PIP) -c constraints.txt torch
	build/alone/bin/$(PIP) -c constraints.txt dist/*.whl
	build/alone/bin/python -I .ci/core.py

# The site, in an environment of its own; cells of its pages are run, and kept until they change.
docs: $(DOCS)/.installed
	OMP_NUM_THREADS=1 $(DOCS)/bin/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

$(DOCS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(DOCS)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(DOCS) .venv-lowest docs/_build build dist
