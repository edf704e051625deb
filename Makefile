# Everything a person runs. Each target first installs what it lacks; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help setup test test-full test-long demo bench lint docs clean

# Which torch, as pip is told. One that was chosen outside this file is remembered in the .venv until
# another is chosen. PIP_ARGS goes to every pip install, e.g. to name an index.
VENV := .venv
-include $(VENV)/choice.mk
TORCH ?= torch==2.13.0
PIP_ARGS ?=
PYTHON ?= /usr/bin/python3

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# ccache: paths count from here, so that another checkout's objects fit.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(VENV)/bin/python -m pip install $(PIP_ARGS)
# pip's own progress bar is lost in a log: keep the lines that say how far it is.
PIP_LINES := sed -un 's/^ *\(Downloading\|Installing collected\|Successfully\)/setup: \1/p'

empty :=
space := $(empty) $(empty)
PACKAGES_DONE := build/.packages
VENV_DONE := $(VENV)/.created
PYTHON_DONE := $(VENV)/.requirements
TORCH_DONE := $(VENV)/.torch-$(subst $(space),-,$(subst /,-,$(subst =,-,$(TORCH))))
PAWL_DONE := $(VENV)/.pawl
# Where it is compiled: an environment of tools/torches.txt has a folder of its own.
WHEEL := build/wheel$(patsubst .venv,,$(subst build/torch/,-,$(VENV)))
PAWL_SOURCES := $(shell find src include python meson.build meson_options.txt pyproject.toml \
	-type f -not -path '*/__pycache__/*')

help: ## this list
	@echo "Pawl. Each target installs what it needs first (Debian or Ubuntu packages, a .venv)."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/    make \1	\2/p' Makefile | expand -t 24

setup: $(PAWL_DONE) ## packages, .venv with torch, and this project in it
	@echo "setup: done; $(VENV)/bin/python and $(VENV)/bin/pawl are ready"

test: setup ## lint, builds by gcc and clang, C tests plain and sanitized, Python tests
	@tools/integrations.sh -- $(PIP_ARGS)
	@$(VENV)/bin/python tools/test.py

test-full: setup ## the same with all slow tests, of which `make test` takes an eighth
	@tools/integrations.sh -- $(PIP_ARGS)
	@tools/torches.sh -- $(PIP_ARGS)
	@$(VENV)/bin/python tools/test.py --full

test-long: setup ## the same with the long tests, and clang-tidy over all files
	@tools/integrations.sh --long -- $(PIP_ARGS)
	@tools/torches.sh --long -- $(PIP_ARGS)
	@$(VENV)/bin/python tools/test.py --long

demo: setup ## trains, is killed, goes on; a table, and demo/report.png
	@$(VENV)/bin/python demo/demo.py

bench: setup ## all benchmarks, or ONLY="reshard restart"; writes docs/benchmarks.md
	@tools/packages.sh --bench
	@tools/integrations.sh -- $(PIP_ARGS)
	@$(VENV)/bin/python tools/bench.py $(ONLY)

lint: $(TORCH_DONE) ## layout, tools/tidy.py, ruff, clang-tidy
	@$(VENV)/bin/python tools/test.py --only lint

docs: $(TORCH_DONE) ## checks that what the documents link to is there
	@$(VENV)/bin/python tools/docs.py

clean: ## removes what was built; .venv stays (remove it by hand)
	rm -rf build demo/out demo/report.png

$(PACKAGES_DONE): tools/packages.sh
	@tools/packages.sh
	@mkdir -p build && touch $@

# The order-only prerequisite: `make clean` forgets the packages, which does not age the .venv.
$(VENV_DONE): | $(PACKAGES_DONE)
	@echo "setup: $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "setup: Python 3.10 or later is needed")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(PYTHON_DONE): tools/requirements.txt $(VENV_DONE)
	@echo "setup: pip install -r tools/requirements.txt"
	@$(PIP) --quiet "$$(grep '^pip==' tools/requirements.txt)"
	@$(PIP) --progress-bar off -r tools/requirements.txt | $(PIP_LINES)
	@touch $@

$(TORCH_DONE): $(PYTHON_DONE)
	@echo "setup: pip install $(TORCH) (large; README.md says how to choose another build)"
	@$(PIP) --progress-bar off $(TORCH) | $(PIP_LINES)
	@$(if $(filter-out file,$(origin TORCH)),echo 'TORCH ?= $(TORCH)' >$(VENV)/choice.mk)
	@rm -f $(VENV)/.torch-* && touch $@

$(PAWL_DONE): $(PAWL_SOURCES) $(TORCH_DONE) | $(PACKAGES_DONE)
	@echo "setup: pip install . (compiles the C part)"
	@$(PIP) --quiet --no-deps --no-build-isolation --force-reinstall -C build-dir=$(WHEEL) .
	@touch $@
