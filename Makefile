# Each target makes its own virtual environment and installs all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip

.PHONY: demo test lint docs clean
demo: $(VENV)/demo.done
	$(BIN)/vtrim demo

test: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -c "from vtrim.models.smollm2 import ensure_smollm2; ensure_smollm2()"
	$(BIN)/python tests/fetch_tokenizers.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/dev.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.done
	$(BIN)/mkdocs build --strict

# torch first, at the version in constraints.txt: a later one may bring gigabytes of CUDA
$(VENV)/demo.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/dev.done: $(VENV)/demo.done
	$(PIP) install -q -c constraints.txt -e '.[demo,fast,ray]' --group dev
	touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
