# Every target sets up what it needs in .venv and leaves the rest of the machine alone.
#   make demo        run a team on real data          make setup       only .venv
#   make test        the tests, in five minutes       make test-full   all of them: Docker, Studio, attacks, every wall
#   make lint        style                            make types       mypy
#   make contract    which package imports which      make check       test, lint, types, contract
#   make docs        the documentation, in site/      make dist       what is published, in dist/, tried out

SHELL := /bin/bash
VENV := .venv
# Without compiled modules, each process of the tests would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# The demo needs a small part of that, which the rest is added to.
DEMO_STAMP := $(VENV)/.demo
DEMO = $(BIN)/coderoom run analyst "$(TASK)" --file examples/nile.csv --model replay:examples/nile.replay.yaml
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
REST := allwalls or attack or browser or docker or slow or studio
TASK := When did the annual flow of the Nile at Aswan drop, and by how much? Draw it, with the means before and after.

.PHONY: demo test test-rest test-full check lint types contract docs dist setup clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 6

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) dev

$(DEMO_STAMP): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) demo

# Matplotlib would keep its caches in the home folder.
demo: export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
demo: $(DEMO_STAMP)
	@if [ -n "$$OPENAI_API_KEY" ]; then \
		$(BIN)/coderoom run analyst "$(TASK)" --file examples/nile.csv; \
	else \
		$(DEMO) || { \
			[ $$? = 3 ] || exit 1; \
			echo "The code of this demo is CodeRoom's own, so that it runs without a wall where none can be built:"; \
			$(DEMO) --wall none; \
		}; \
	fi

test: $(STAMP)
	$(PYTEST) -m "not ($(REST))" --hypothesis-profile=quick $(PYTEST_ARGS)

# What `make test` leaves out.
test-rest: $(STAMP)
	$(PYTEST) -m "$(REST)" $(PYTEST_ARGS)

test-full: $(STAMP)
	$(PYTEST) --cov --cov-report=term $(PYTEST_ARGS)

check: test lint types contract

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/options --check

types: $(STAMP)
	$(BIN)/mypy

contract: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)
	@scripts/setup $(VENV) docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(DEMO_STAMP)
	@scripts/setup $(VENV) dist
	$(BIN)/python scripts/dist build dist
	$(BIN)/python scripts/dist check dist "$(TASK)"

clean:
	rm -rf dist site $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
