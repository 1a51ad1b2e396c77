# The verbs people use; CI calls the same ones. `make help` lists them.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
TASK ?= list the files here and say what this project is
# Extra arguments for installing torch alone: see requirements/README.md (CPU and CUDA recipes).
TORCH_ARGS ?=
MODEL ?= smollm2
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install protos run model test lint format bench clients system-deps docs lock clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml hatch_build.py requirements/lock.txt requirements/torch.txt $(wildcard protos/tidemill/*/v1/*.proto)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "Tidemill needs Python 3.11 to 3.13; set PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned packages into $(VENV) (the first time takes a few minutes)"
	@$(BIN)/pip install -q --require-hashes -r requirements/lock.txt
	@$(BIN)/pip install -q --no-deps $(TORCH_ARGS) -r requirements/torch.txt
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@

install: $(STAMP) ## install everything into .venv

protos: $(STAMP) ## compile protos/ into gen/
	@$(BIN)/python hatch_build.py

model: $(STAMP) ## fetch and convert the default model
	@$(BIN)/tidemill model add $(MODEL)

run: model ## run an agent task: make run TASK="..."
	@$(BIN)/tidemill run "$(TASK)"

test: model ## all tests that need no cluster (README's test command)
	@$(BIN)/python -m pytest -q

lint: $(STAMP) ## every configured rule: ruff, mypy, import-linter, buf
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/buf lint protos
	@$(BIN)/buf format -d --exit-code protos

format: $(STAMP) ## apply the formatters
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/buf format -w protos

bench: ## list the benchmarks
	@echo "No benchmark yet. Each will be a verb bench-<name> that prints a table and appends to docs/performance.md."

clients: model ## unmodified clients against a running stack: Codex CLI (npm), openai SDK
	@$(BIN)/python -m tests.clients

system-deps: ## Debian packages that add to what Python brings (needs root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap nodejs npm

docs: $(STAMP) ## write docs/configuration.md anew from the settings
	@$(BIN)/python -m tests.contract.configuration_docs

lock: $(STAMP) ## pin every dependency with hashes, naming no index; checks that wheels exist for each Python
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --no-emit-package torch --override requirements/torch-override.txt --all-extras pyproject.toml requirements/torch-needs.in -o requirements/lock.txt
	@for python in 3.11 3.12 3.13; do \
	  $(BIN)/uv pip install -q --dry-run --only-binary :all: --python-version $$python --target build/lock-$$python -r requirements/lock.txt || exit 1; \
	  echo "wheels for Python $$python: all there"; done

clean: ## remove what make made
	rm -rf $(VENV) gen build .mypy_cache .ruff_cache .pytest_cache .hypothesis node_modules
