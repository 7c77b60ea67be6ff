# Every target sets up what it needs; a second call installs nothing again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# protobuf:grpcio
COMPAT ?= 3.20.3:1.51.3 4.25.8:1.60.2 5.29.5:1.68.1 6.33.0:1.76.0

.PHONY: demo test test-compat lint campaign bench protos clean

demo: $(VENV)/.run  ## Train a small language model, lose a rank on the way, recover.
	rm -rf demo-checkpoint
	$(BIN)/elastic-run --nproc-per-node 4 --max-restarts 3 examples/train_lm.py \
	  --steps 40 --save-every 10 --checkpoint demo-checkpoint --die-at 25 --die-rank 2

test: $(VENV)/.test  ## The suite; TIERS=--slow adds the comparison with torchrun and the gloo spike.
	$(BIN)/python tests/tiers.py $(TIERS)

test-compat: $(VENV)/.run  ## The wire with old and new protobuf and grpcio, each in an environment of its own.
	for pair in $(COMPAT); do \
	  place=.venv-wire-$${pair%:*}; \
	  test -x $$place/bin/python || $(PYTHON) -m venv $$place || exit 1; \
	  $$place/bin/pip install --quiet --disable-pip-version-check click rich pytest hypothesis \
	    protobuf==$${pair%:*} grpcio==$${pair#*:} || exit 1; \
	  echo "protobuf $${pair%:*}, grpcio $${pair#*:}"; \
	  $$place/bin/python -m pytest -q tests/wire || exit 1; \
	done

lint: $(VENV)/.test  ## ruff and mypy.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p elastic_run

campaign: $(VENV)/.test  ## Long repetitions: 100 deaths of a rank, many seeds, all mutants.
	$(BIN)/python -m pytest -m campaign -s tests

bench: $(VENV)/.run  ## elastic-run beside torchrun, ft_launcher (ARGS="--reps 9 --only start"), then the server at scale.
	$(BIN)/python bench/run.py $(ARGS)
	$(BIN)/python bench/scale.py

protos: $(VENV)/.test  ## Write elastic_run/clusterd/pb/ again from protos/.
	$(PIP) -e .[protos]
	$(BIN)/python protos/generate.py

clean:
	rm -rf $(VENV) .venv-* build demo-checkpoint elastic-run-logs

# torch first and by its exact version: an index may offer a build for accelerators that is gigabytes larger.
$(VENV)/.run: constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0 numpy
	$(PIP) -e .
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) -e .[test,lint]
	touch $@
