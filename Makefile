# README has `make demo`, `make shop` and `make test`; the rest is for contributors.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Recreated when the dependencies change.
STAMP := $(VENV)/.installed
SHOP_STAMP := $(VENV)/.installed-shop
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo shop bytecode parts test suite test-consumer test-spark bench lint docs links clean

demo: $(STAMP)
	$(BIN)/window-consumer demo

# SQLite, or the database of DATABASE_URL; see examples/shop.
shop: $(SHOP_STAMP)
	exec $(BIN)/python examples/shop/run.py

# Otherwise, where Python may not write bytecode, each command that tests start would compile everything.
bytecode: $(DEV_STAMP)
	@$(BIN)/python -m compileall -q -j 0 window_consumer tests

# Installs Chromium, promtool, PostgreSQL, zsh, fish, javac, Kafka, a client for JavaScript, faust, Spring Kafka and
# Spark's connectors, and names what it cannot install.
parts: bytecode
	@$(BIN)/python -m tests.parts

# In parallel: linters take two minutes of a core, and tests often wait.
test: $(DEV_STAMP)
	@$(BIN)/python -m tests.suite --what
	@$(MAKE) --no-print-directory -j 2 lint suite

suite: parts
	$(BIN)/python -m tests.suite

test-consumer: parts
	$(BIN)/python -m tests.suite consumer

test-spark: parts
	$(BIN)/python -m tests.suite spark

bench: $(DEV_STAMP)
	$(BIN)/python -m benchmarks all

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# The site, in build/site. `mkdocs serve` shows it while you write.
docs: $(DEV_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Requests the pages' external links; CI has no network for this.
links: $(DEV_STAMP)
	$(BIN)/python -m docs.external_links

clean:
	rm -rf $(VENV) .kafka .javascript build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "window_consumer needs Python 3.11 or later: run PYTHON=python3.12 make ...")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(SHOP_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[sql]' 'psycopg[binary]>=3.2'
	@touch $@ $(STAMP)

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(STAMP) $(SHOP_STAMP)
