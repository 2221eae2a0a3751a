# Commands for developers. Everything is installed in this clone: .venv (Python), .geminids (Gemini
# CLI, Node, homes), .referees (third-party clients), .mkdocs (the builder of the documentation site).

PYTHON ?= python3
PROMPT ?= What is in this folder?
GEMINI ?= 0.61.0
JOBS ?= 3
CCUSAGE := 20.0.24
export PROMPT
export GEMINIDS_HOME ?= $(CURDIR)/.geminids
export PIP_DISABLE_PIP_VERSION_CHECK = 1

BIN := .venv/bin
# Pure packages: their own tests must cover every branch.
COVERED := tests/gemini/protocol tests/events tests/dialects
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: setup run test test-deep matrix check format reference docs picture referees bench bench-quick clean
.DEFAULT_GOAL := run

setup: .venv/ready          ## create the environment in .venv

.venv/ready: pyproject.toml constraints.txt
	@echo "setting up .venv ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "geminids needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable .
	@touch $@

.venv/dev-ready: .venv/ready
	@echo "installing the tools for tests and checks ..."
	@$(PIP) --editable ".[dev]"
	@touch $@

run: .venv/ready            ## set up, then run the agent with $PROMPT; without GEMINI_API_KEY a script replaces the model
	@test -d "$(GEMINIDS_HOME)/gemini/$(GEMINI)" || $(BIN)/geminids install $(GEMINI)
	@printf '%s' "$$PROMPT" | $(BIN)/geminids run - --gemini $(GEMINI) --output pretty $(if $(GEMINI_API_KEY),,--offline)

check: .venv/dev-ready      ## lint, format, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: check                 ## checks and quick tests, on the newest release
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m coverage run -m pytest -q -n $(JOBS) -m "not deep" $(COVERED)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage json --quiet -o - | $(BIN)/python tests/branches.py
	@$(BIN)/python -m pytest -q -n $(JOBS) --durations=25 -m "not deep" $(COVERED:%=--ignore=%)

test-deep: .venv/dev-ready  ## all tests
	@$(BIN)/python -m pytest -q -n $(JOBS)

matrix: .venv/dev-ready     ## tests that are too slow for CI
	@$(BIN)/python -m pytest -q -n $(JOBS) -m matrix

referees: .venv/dev-ready .referees/ready .referees/ccusage/ready  ## check our output with third-party clients
	@.referees/bin/python tests/referees/claude_sdk.py tests/recordings/dialects/claude tests/recordings/dialects/claude-partial
	@$(BIN)/python tests/referees/code_log.py .referees/bin/claude-code-log
	@$(BIN)/python tests/referees/ccusage.py .referees/ccusage/node_modules/@ccusage/ccusage-linux-x64/bin/ccusage

# A separate environment: claude-agent-sdk alone takes 350 MB.
.referees/ready: tests/referees/requirements.txt
	@echo "setting up .referees ..."
	@test -x .referees/bin/python || $(PYTHON) -m venv .referees
	@.referees/bin/python -m pip install --quiet --requirement $<
	@touch $@

# ccusage selects its binary package by platform. With that package named too, npm installs both or
# reports why not.
.referees/ccusage/ready:
	@echo "setting up ccusage ..."
	@mkdir -p $(@D)
	@npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(@D) ccusage@$(CCUSAGE) @ccusage/ccusage-linux-x64@$(CCUSAGE)
	@chmod +x $(@D)/node_modules/@ccusage/ccusage-linux-x64/bin/ccusage
	@touch $@

bench: .venv/dev-ready      ## benchmarks, compared with other tools
	@$(BIN)/python -m benchmarks

bench-quick: .venv/dev-ready  ## benchmarks with fewer rounds, in about 3 minutes
	@$(BIN)/python -m benchmarks --quick

reference: .venv/ready      ## write docs/reference/options.md from the schema
	@$(BIN)/python -c 'from geminids.config import reference_page; print(reference_page(), end="")' > docs/reference/options.md

docs: .mkdocs/ready         ## build the documentation site in site/; a warning or a broken link is an error
	@NO_MKDOCS_2_WARNING=1 .mkdocs/bin/mkdocs build --strict
	@$(PYTHON) tests/referees/docs_site.py site

# A separate environment, so that `make setup` stays small.
.mkdocs/ready: docs/requirements.txt
	@echo "setting up .mkdocs ..."
	@test -x .mkdocs/bin/python || $(PYTHON) -m venv .mkdocs
	@.mkdocs/bin/python -m pip install --quiet --requirement $<
	@touch $@

picture: .venv/ready        ## write docs/images/run.svg from an offline run in a terminal (needs tmux)
	@$(BIN)/python docs/picture.py docs/images/run.svg

format: .venv/dev-ready     ## fix lint and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:                      ## remove everything that was installed here
	rm -rf .venv .geminids .referees .mkdocs site
