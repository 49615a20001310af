# On a fresh machine with Python 3.11, 3.12 or 3.13 and make:
#     make demo    trains a team, ranks it, writes a page to watch it
#     make test    runs the tests
# Both install into .venv/ here first, at the versions of constraints.txt; nothing outside this folder changes.
#
# PYTHON=python3.12 make test           picks the interpreter (only asked for while .venv does not exist)
# On Linux PyPI's torch brings its CUDA libraries, 3 GB that a machine without an NVIDIA GPU never uses. PyTorch's own
# index has the CPU build, 0.2 GB, of the same version:
#     PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo

# The first interpreter that is new enough and can make environments.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
  $$python -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
  && { echo $$python; break; }; done)
INSTALL = .venv/bin/pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-cluster test-device lint bench web docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r target does; do \
	  printf '  %-16s %s\n' "$$target" "$$does"; done

demo: .venv/train,arena.stamp  ## train a team from nothing, rank it, write a page with its best goals
	@.venv/bin/palus demo

# Three processes on two cores, too: many tests wait for browsers, servers and processes of their own.
test: .venv/dev.stamp  ## the tests, without the slow ones
	@.venv/bin/pytest -n 3 --dist loadfile

# What pyproject.toml gives a test, in seconds, is not meant for these.
LONG = --timeout 3600 -o faulthandler_timeout=0

test-slow: .venv/dev.stamp  ## only the tests that take minutes: training to a score, kills by the dozen, intervals
	@.venv/bin/pytest -m slow $(LONG)

test-cluster: .venv/dev,cluster.stamp  ## the tests that start a Ray cluster on this machine, and kill parts of it
	@.venv/bin/pytest -m cluster $(LONG)

DEVICE ?= cuda
test-device: .venv/dev.stamp  ## the tests of torch's path on a device: DEVICE=cuda, cuda:1, mps, or elsewhere, which needs no GPU
	@PALUS_TEST_DEVICE=$(DEVICE) .venv/bin/pytest -m '' tests/learn/test_device.py tests/nn/test_crowd.py tests/run/test_devices.py

lint: .venv/dev.stamp  ## style, formatting, types
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

bench: .venv/dev.stamp  ## measure the speed of training; writes benchmarks/results/
	@.venv/bin/python benchmarks/throughput.py

web: .venv/dev.stamp  ## rebuild the pages' types and assets from the code and web/ (the one target that needs Node)
	@mkdir -p web/build && .venv/bin/python web/types/document.py > web/build/openapi.json && .venv/bin/python web/types/pitches.py > web/src/replay/pitches.json
	@cd web && npm ci --no-audit --no-fund --silent && npm run build --silent --workspace types && npm run build --silent

docs: .venv/dev.stamp  ## write docs/run-file.md anew, the page that is made from the code
	@.venv/bin/python docs/run_file_page.py > docs/run-file.md.new
	@mv docs/run-file.md.new docs/run-file.md

clean:  ## remove the environment and every cache; runs and results stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist web/node_modules web/types/node_modules
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.venv/pyvenv.cfg:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "palus needs Python 3.11, 3.12 or 3.13 with its venv module; found $$(python3 --version 2>&1)." >&2; \
	  echo "On Debian and Ubuntu: sudo apt install python3-venv. Elsewhere: PYTHON=/path/to/python3.12 make ..." >&2; \
	  exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "palus needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv

# A stamp is the moment of the last successful install; a changed requirement makes it stale.
.venv/%.stamp: .venv/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing palus[$*] into .venv (once; a few minutes, more where the network is slow)"
	@$(INSTALL) -e '.[$*]'
	@touch $@
