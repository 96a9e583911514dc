# The two commands of the README are `make demo` and `make test`; the rest is for contributors.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Made anew when the dependencies change.
STAMP := $(VENV)/.installed
SHOP_STAMP := $(VENV)/.installed-shop
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo shop bytecode parts test suite test-consumer test-spark bench lint docs links clean

demo: $(STAMP)
	$(BIN)/window-consumer demo

# SQLite, or the database of DATABASE_URL; see examples/shop.
shop: $(SHOP_STAMP)
	exec $(BIN)/python examples/shop/run.py

# Where Python may write no bytecode, each of the commands that tests start would compile all of it.
bytecode: $(DEV_STAMP)
	@$(BIN)/python -m compileall -q -j 0 window_consumer tests

# Brings Chromium, promtool, PostgreSQL, zsh, fish, javac, Kafka, a client for JavaScript, faust, Spring Kafka and Spark's connectors where it may; names what it may not bring.
parts: bytecode
	@$(BIN)/python -m tests.parts

# The checks of the code take two minutes of a core, and tests wait often.
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

# The site, in build/site. `mkdocs serve` shows it while pages are written.
docs: $(DEV_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Requests the pages' links to other sites; CI has no network for it.
links: $(DEV_STAMP)
	$(BIN)/python -m docs.external_links

clean:
	rm -rf $(VENV) .kafka .javascript build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "window_consumer needs Python 3.11 or later; say PYTHON=python3.12 make ...")'
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
