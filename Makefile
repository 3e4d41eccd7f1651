# `make help` lists the targets. Needs Python 3.11 or newer, make and git; everything else goes into .venv.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo native native-android test lint format families golden docs release clean

# The first interpreter that is new enough; override with `make PYTHON=... demo`.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
DEMO := build/storyteller
STORY := examples/storyteller
PYTEST := $(BIN)/python -m pytest
WORKERS ?= 2

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | column -t -s @ 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' Makefile

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "partc needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; exit 1; }

# The stamps are older than these files only after a change, so a second run installs nothing.
.venv/native.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing zig into .venv"
	@$(PIP) -e '.[link]'
	@touch $@

.venv/demo.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing partc into .venv (the first time takes some minutes)"
	@$(PIP) -e '.[compile,tvm,link]'
	@touch .venv/native.stamp $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing partc and its development tools into .venv (the first time takes some minutes)"
	@$(PIP) -e '.[compile,tvm,link,serve,dev,docs,release]'
	@touch .venv/native.stamp .venv/demo.stamp $@

setup: .venv/dev.stamp  ## install everything that development needs into .venv

demo: .venv/demo.stamp  ## compile the example for three devices, run it as a ring, prove it equal
	$(BIN)/partc compile $(STORY)/model.yaml --target $(STORY)/devices.yaml -o $(DEMO)
	$(BIN)/partc run $(DEMO) --prompt "Once upon a time"
	$(BIN)/partc verify $(DEMO)

native: .venv/native.stamp  ## build the runner in C++ for this machine, or for PLATFORM
	@$(BIN)/python -m native.zig $(PLATFORM)

native-android: .venv/native.stamp  ## the same for phones: one static file
	@$(BIN)/python -m native.zig aarch64-linux-android

lint: .venv/dev.stamp  ## ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint  ## lint, then the tests (all tiers but slow)
	$(PYTEST) -n $(WORKERS)

format: .venv/dev.stamp  ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

families: .venv/dev.stamp  ## compile and verify every family of transformers (long); ARGS="--target tvm"
	$(BIN)/python -m tests.families $(ARGS) --markdown docs/families.md

golden: .venv/dev.stamp  ## rewrite the expected results of the golden cases; read the diff before committing
	$(PYTEST) -n $(WORKERS) tests/golden --update-golden

docs: .venv/dev.stamp  ## the manuals, the help of commands and the Python API as a site, into build/site/
	@$(BIN)/python -m release.site

release: .venv/dev.stamp  ## wheels, source archive, bill of materials and sums of this commit, into dist/
	@$(BIN)/python -m release

clean:  ## remove .venv, build/ and every cache
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
