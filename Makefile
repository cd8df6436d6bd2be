# make run    install and compare SCARLET with DS-FL on the embedded data
# make test   install what the tests need and run them, but for the next two
# make test-e2e   whole runs: those that learn, those that are killed, simulated faults, sweeps, examples, benchmarks, the wheel, a browser
# make test-flower   install Flower as well and run its tests: real SuperLinks and SuperNodes, behind nginx
# make docs   build the documentation into site/; a broken link is an error
# make lint   ruff, mypy and the direction of imports

PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-e2e test-flower docs lint clean

run: .venv/installed
	$(BIN)/scarlet compare scarlet dsfl

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q --ignore tests/e2e --ignore tests/faults --ignore tests/flower

test-e2e: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q tests/e2e tests/faults

test-flower: .venv/installed-flower
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q tests/flower

docs: .venv/installed-docs
	$(BIN)/zensical build --strict

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src benchmarks tests/faults
	$(BIN)/lint-imports --no-cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

.venv/installed-flower: .venv/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,flower]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf .venv
