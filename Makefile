# rideout: proof that a task dispatcher rides out an unavailable Kubernetes API.
# `make help` lists the commands. Everything runs from `.venv`, made from hashed locks on first use.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?=
PROFILE ?= full
PYTEST_ARGS ?=
PYTEST = $(BIN)/pytest -q -m "not slow" $(PYTEST_ARGS)

export PYTHONDONTWRITEBYTECODE := 1

##@ Prove it
.PHONY: chaos-upgrade chaos-webhook
chaos-upgrade: $(READY) ## A control-plane upgrade of 4 min under load (8 min; first build 10 min more)
	@$(BIN)/python -m chaos run upgrade --profile $(PROFILE) $(if $(SEED),--seed $(SEED))

chaos-webhook: $(READY) ## A fail-closed webhook away for 4 min, then denying a share (10 min)
	@$(BIN)/python -m chaos run webhook --profile $(PROFILE) $(if $(SEED),--seed $(SEED))

##@ Look at it
.PHONY: up down chaos-heal
up: $(READY) ## Hold the embedded control plane open; prints how to point kubectl and psql at it
	@$(BIN)/python -m chaos.testbed up

down: $(READY) ## Stop what `make up` started
	@$(BIN)/python -m chaos.testbed down

chaos-heal: $(READY) ## Undo the open faults of a run that was killed
	@$(BIN)/python -m chaos heal

##@ Work on it
.PHONY: test lint types unit integration cluster quick nightly build lock clean
test: lint types unit integration cluster quick ## All that a change has to pass: lint, types, tests, the upgrade in quick

lint: $(READY) ## ruff, and the layers by import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/lint-imports --no-cache | tail -n 12

types: $(READY) ## mypy, strict
	@$(BIN)/mypy

unit: $(READY) ## Unit tests, and the checkers on stored histories
	@$(PYTEST) tests/unit tests/checkers

integration: $(READY) ## Tests on a real PostgreSQL
	@$(PYTEST) tests/integration

cluster: $(READY) build ## Tests on the real control plane
	@$(PYTEST) tests/cluster

quick: $(READY) build ## The upgrade scenario with all durations divided by ten
	@# Unknown (2) proves nothing, so it is worth one repetition on a busy machine; it is never taken for green.
	@$(BIN)/python -m chaos run upgrade --profile quick || { code=$$?; [ $$code -eq 2 ] || exit $$code; \
	  echo "unknown proves nothing either way: once more"; $(BIN)/python -m chaos run upgrade --profile quick; }

nightly: test ## What takes longer: the full scenarios and every slow test
	@$(BIN)/pytest -q -m slow tests $(PYTEST_ARGS)
	@$(BIN)/python -m chaos run upgrade --profile full
	@$(BIN)/python -m chaos run webhook --profile full

build: $(READY) ## Build the control plane's binaries into the cache (some 10 min when cold)
	@$(BIN)/python -m chaos.testbed build

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rideout needs Python >= 3.11, this is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2])'
	@echo "making $(VENV) from requirements/dev.txt (about a minute) …"
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): install your system's python3-venv package"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt \
	  || { echo "the pinned packages could not be installed: is a Python package index reachable, and is there disk space?"; exit 2; }
	@touch $@

lock: $(READY) ## Pin requirements/*.in anew, with hashes
	@$(BIN)/python -m pip install --quiet uv
	@for name in dispatcher dev; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    requirements/$$name.in -o requirements/$$name.txt; done

clean: ## Remove the environment and the runs; the binaries' cache stays
	@rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\n  SEED=7 replays a schedule; PROFILE=quick divides durations by ten. Exit codes: 0 valid, 1 invalid, 2 unknown.\n'
