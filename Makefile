# Every target sets up what it needs, in .venv, on a fresh machine. A stamp file there says that an install finished; an
# edited pyproject.toml or constraints.txt causes a new one, and .venv is made afresh after one that was cut off.
# Every install is constrained: an unpinned torch may pull several GB of CUDA packages.

PYTHON ?= python3
# Test workers. Each computes on one thread, so that they do not fight over the cores.
JOBS ?= 2
# Which tests (pytest -m); `make test MARK=slow` for the slow ones, `make test MARK=` for all of them.
MARK ?= not slow
# Passed on to the command a target runs, e.g. make demo ARGS=--help, make test ARGS="-k poisson -x".
ARGS ?=
# Which benchmarks, e.g. make bench BENCH=benchmarks/layer.py
BENCH ?= $(wildcard benchmarks/[!_]*.py)

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt
SPEC := pyproject.toml constraints.txt
DOC_PAGES = $(wildcard README.md) $(shell test -d docs && find docs -name '*.md' | sort)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format types doctest docs bench clean distclean

help: ## show this list
	@echo "make TARGET [ARGS=\"flags for the command\"]"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-base ## three heads on handwritten digits, ten labels a class: runs `gll demo`
	$(BIN)/gll demo $(ARGS)

test: $(VENV)/.installed-dev ## run the tests, JOBS=2 at a time, but the slow ones (MARK=slow for those)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg \
	  $(BIN)/python -m pytest -n $(JOBS) -m "$(MARK)" tests $(ARGS)

lint: $(VENV)/.installed-dev ## check style and likely mistakes (ruff)
	$(BIN)/ruff check $(ARGS) .
	$(BIN)/ruff format --check --diff --quiet .

format: $(VENV)/.installed-dev ## rewrite the files in the style that lint asks for
	$(BIN)/ruff check --fix $(ARGS) .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev ## check the types of gll/ (mypy)
	$(BIN)/mypy $(ARGS)

doctest: $(VENV)/.installed-dev ## run the examples of the docstrings, the README and the docs
	MPLBACKEND=Agg $(BIN)/python -m pytest --doctest-modules --doctest-glob='*.md' gll $(DOC_PAGES) $(ARGS)

docs: $(VENV)/.installed-docs ## build the documentation into site/, warnings being errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo "built site/index.html"

bench: $(VENV)/.installed-dev ## run the benchmarks, or those of BENCH="..."
	@test -n "$(strip $(BENCH))" || { echo "no benchmarks found"; exit 1; }
	@set -e; for script in $(BENCH); do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

clean: ## remove caches and built files (not .venv, data/ or out/)
	rm -rf build dist site .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv too
	rm -rf $(VENV)

# --- set-up ----------------------------------------------------------------------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "gll needs Python 3.11 or later, not '$(PYTHON)': make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "== making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# $(call install,WHAT,REQUIREMENT). While pip runs, .installing holds the shell's process number. Found when that
# process is gone, it tells that the packages are in an unknown state (a wheel half written stops every later pip).
define install
	@if test -e $(VENV)/.installing && ps -o stat= -p "$$(cat $(VENV)/.installing)" 2>/dev/null | grep -qv Z; then \
	  echo "another make is installing into $(VENV): wait for it (if there is none: rm -rf $(VENV))" >&2; exit 1; fi
	@if test -e $(VENV)/.installing; then \
	  echo "== the last install was cut off: making $(VENV) afresh"; \
	  $(PYTHON) -m venv --clear $(VENV) && touch $(VENV)/.made; fi
	@echo "== installing $(1) into $(VENV) (a few minutes the first time)"
	@echo $$$$ > $(VENV)/.installing; $(PIP_INSTALL) -e '$(2)' > $(VENV)/install.log 2>&1; status=$$?; \
	  rm -f $(VENV)/.installing; test $$status = 0 \
	  || { tail -n 20 $(VENV)/install.log; echo "the install failed: see $(VENV)/install.log"; exit $$status; } >&2
	@touch $(VENV)/.installed-base $@
endef

$(VENV)/.installed-base: $(VENV)/.made $(SPEC)
	$(call install,gll and what it needs,.)

$(VENV)/.installed-dev: $(VENV)/.made $(SPEC)
	$(call install,gll and the development tools,.[dev])

$(VENV)/.installed-docs: $(VENV)/.made $(SPEC)
	$(call install,gll and the documentation tools,.[docs])
