# Every target does its own set-up: a virtual environment under .venv, made once and remade when its inputs change.
# PYTHON picks the interpreter (3.11 or newer), TORCH the torch requirement.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOOLS := .cache/tools
RELEASES := .cache/releases
# With an NVIDIA driver the ordinary wheel is wanted; without one the far smaller CPU build.
TORCH ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo torch || echo torch==2.13.0)
TORCH_INDEX ?= $(shell command -v nvidia-smi >/dev/null 2>&1 || echo https://download.pytorch.org/whl/cpu)
# Most tests wait more than they compute. A file's tests stay together, for what they share.
SIDE_BY_SIDE := -n 2 --dist loadfile
export PYTHONPATH := daemon:trainer:protos:tests:examples

.PHONY: help demo test lint check integration cluster fuzz deb nspawn bench protos man tools clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

$(VENV)/.ready: setup.cfg pyproject.toml packaging/venv.sh
	sh packaging/venv.sh "$(PYTHON)" "$(VENV)" "$(TORCH)" "$(TORCH_INDEX)"

.cache/protovenv/.ready: protos/requirements.txt
	sh packaging/protovenv.sh "$(PYTHON)" .cache/protovenv

tools: $(TOOLS)/.ready  ## unpack chronyd and linuxptp below .cache, without installing them

$(TOOLS)/.ready: packaging/fetch-tools.sh
	sh packaging/fetch-tools.sh $(TOOLS) chrony linuxptp mandoc prometheus
	touch $@

demo: $(VENV)/.ready  ## a clock-gated QLoRA run on two CPU ranks: save, kill, resume (4 minutes)
	@sh packaging/fetch-tools.sh $(TOOLS) chrony || echo "demo: no chronyd here; the kernel's clock alone will be read" >&2
	$(BIN)/python examples/demo/run.py

lint: $(VENV)/.ready .cache/protovenv/.ready  ## format, lint, types, arrows, fresh protos
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg
	PYTHONWARNINGS=ignore .cache/protovenv/bin/python protos/generate.py --check

check: lint  ## lint and unit tests
	$(BIN)/pytest -q $(SIDE_BY_SIDE) tests/unit

test: $(VENV)/.ready  ## unit and integration tests; the latter need root and network namespaces
	@sh packaging/fetch-tools.sh $(TOOLS) chrony linuxptp mandoc prometheus || echo "test: tests that need real time daemons will skip" >&2
	@[ -e $(RELEASES)/trixie/versions ] || sh packaging/fetch-release-tools.sh $(RELEASES) trixie || \
		echo "test: plans are tried on this machine's time daemons alone" >&2
	$(BIN)/pytest -q $(SIDE_BY_SIDE) tests/unit tests/integration

integration: $(VENV)/.ready tools  ## the tests with real chronyd, ptp4l, grpcurl and torchrun alone
	$(BIN)/pytest -q tests/integration

cluster: $(VENV)/.ready tools  ## training under faults on purpose (root; 6 minutes); SEED=N or FAULT=NAME for one
	$(BIN)/python -W error -m support.chaos $(if $(SEED),--seed "$(SEED)") $(if $(FAULT),--fault "$(FAULT)") $(CHAOS)

deb: $(VENV)/.ready  ## the Debian package in dist/, built twice, linted, tested on Debian and Ubuntu (root; 8 minutes)
	sh packaging/make-deb.sh $(BIN)/python dist $${CLOCKGATE_SUITES:-bookworm trixie noble}

fuzz: $(VENV)/.ready  ## random and almost right requests for a real daemon, 60 s; SEED=N for the same again
	$(BIN)/python -W error -m support.fuzz_api $(if $(SEED),--seed "$(SEED)")

nspawn: $(VENV)/.ready  ## the quick form of deb: one build, no lintian, one release (CLOCKGATE_DEBIAN=bookworm)
	sh packaging/build-deb.sh --quick dist
	$(BIN)/python -m support.debian_root $${CLOCKGATE_DEBIAN:-bookworm}
	$(BIN)/pytest -q tests/deb

bench: $(VENV)/.ready  ## figures: gate overhead, vote, Gate.Check latency (never asserted)
	$(BIN)/python bench/run.py

protos: .cache/protovenv/.ready  ## regenerate the committed code beside the .proto files
	PYTHONWARNINGS=ignore .cache/protovenv/bin/python protos/generate.py

man: $(VENV)/.ready  ## renew the options and keys in the man pages
	$(BIN)/python docs/man/generate.py

clean:  ## remove everything that a target made
	rm -rf .venv .cache build dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
