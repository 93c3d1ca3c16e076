# Everything starts here. Needs Python >= 3.10, a C++20 compiler and make; each target does its own set-up, once.
#
#   make demo                 optimise a benchmark model and show the report     make demo MODEL=path.onnx   your own
#   make test                 the test suite                                     make help                   all targets
#
# Settings: PYTHON=python3.12  VENV=.venv  CXX=clang++  JOBS=2  BUDGET=60s  SEARCH=…  COST=…  DEMO_MODEL=…

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= .venv-extras
PEERS ?= .venv-peers
JOBS ?= 2
MODEL ?=
DEMO_MODEL ?= llama-decoder-step
BUDGET ?= 60s
OUT ?= build/demo

BIN := $(VENV)/bin
RLFLOW := $(BIN)/rlflow
PIP := $(BIN)/python -m pip --disable-pip-version-check
# What the compiled core is made from; rlflow/*.py is used in place (an editable install), so it is not listed.
CORE := $(shell test ! -d cext || find cext -name '*.cc' -not -path 'cext/tests/*' -o -name '*.h' -not -path 'cext/tests/*' -o -name '*.py[xd]' -o -name '*.pxi')
RECIPE := setup.py pyproject.toml constraints.txt
CPP := $(shell test ! -d cext || find cext -name '*.cc' -o -name '*.h')

# Every process of the tests would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

# A compiler that was asked for is handed to the build; otherwise Python's own choice stands.
ifneq ($(origin CXX),default)
export CXX
endif

##@ Start here

.PHONY: help
help: ## this list
	@awk '/^##@ /{ printf "%s%s\n", n++ ? "\n" : "", substr($$0, 5) } \
	  /^[a-z-]+:.*## /{ t = $$0; sub(/:.*/, "", t); a = $$0; sub(/^[^#]*## /, "", a); printf "  make %-16s %s\n", t, a }' \
	  $(firstword $(MAKEFILE_LIST))

.PHONY: check
check: ## say what this machine lacks
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { echo "make: '$(PYTHON)' was not found: install Python 3.10 or newer, or say which one to use: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "make: $(PYTHON) is $$("$(PYTHON)" --version 2>&1), but rlflow needs Python 3.10 or newer: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments (its venv or ensurepip module is missing): on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@"$(PYTHON)" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { echo "make: the headers of $(PYTHON) (Python.h) are missing: on Debian or Ubuntu, apt-get install python3-dev" >&2; exit 1; }
	@command -v $(firstword $(CXX)) >/dev/null 2>&1 || { echo "make: no C++ compiler ('$(firstword $(CXX))' was not found): install one (Debian or Ubuntu: apt-get install g++), or name it: make CXX=clang++ …" >&2; exit 1; }
	@printf '#include <concepts>\n#include <span>\nint main() { return 0; }\n' | $(CXX) -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "make: $(CXX) does not compile C++20: rlflow needs g++ 11, clang++ 14 or newer" >&2; exit 1; }

$(VENV)/bin/python:
	@$(MAKE) --no-print-directory check
	"$(PYTHON)" -m venv "$(VENV)"

# A fault in the kernels' build does not fail the install, and pip hides what is said of it.
TELL := $(BIN)/python -c 'from rlflow.kernels.shared_library import unavailable as why; print(f"make: no --kernels here: {why()} (pip install -v says more)") if why() else None'

# The two installs share one environment; the larger one counts as the smaller one too.
$(VENV)/.base: $(CORE) $(RECIPE) | $(VENV)/bin/python
	@echo "Installing rlflow into $(VENV); the native core is compiled on the way, which takes a minute or two."
	@$(PIP) install --quiet -c constraints.txt -e .
	@$(TELL)
	@touch $@

$(VENV)/.dev: $(CORE) $(RECIPE) | $(VENV)/bin/python
	@echo "Installing rlflow and the development tools into $(VENV); the native core is compiled on the way, a minute or two."
	@$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@$(TELL)
	@touch $(VENV)/.base $@

# The second environment: what the extras need, torch and TVM first of all. The core's objects are those of the first,
# and of the packages only what is imported becomes bytecode.
$(EXTRAS)/.extras: $(CORE) $(RECIPE) | $(VENV)/.dev
	@test -x $(EXTRAS)/bin/python || "$(PYTHON)" -m venv "$(EXTRAS)"
	@echo "Installing rlflow with its extras into $(EXTRAS): torch and TVM are large, which takes some minutes."
	@$(EXTRAS)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt -e '.[dev,rl,torch,tuner,ray]'
	@touch $@

# The third: projects that rlflow works with, and that want other versions of transformers than our exports.
$(PEERS)/.peers: $(CORE) $(RECIPE) | $(VENV)/.dev
	@test -x $(PEERS)/bin/python || "$(PYTHON)" -m venv "$(PEERS)"
	@mkdir -p build && grep -v '^transformers==' constraints.txt > build/peers.txt
	@echo "Installing rlflow, Olive and Optimum into $(PEERS): torch and transformers are large, which takes some minutes."
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet -c build/peers.txt -e '.[dev,olive]' optimum-onnx==0.1.0
	@touch $@

.PHONY: install
install: $(VENV)/.base ## a virtual environment with rlflow in it
	@echo "rlflow is ready: $(RLFLOW) --help"

.PHONY: demo
demo: $(VENV)/.base ## optimise a benchmark model, or MODEL=path.onnx, and show the report
	@mkdir -p $(OUT)
ifeq ($(MODEL),)
	@test -f $(OUT)/$(DEMO_MODEL).onnx || $(RLFLOW) zoo export $(DEMO_MODEL) -o $(OUT)/$(DEMO_MODEL).onnx
	$(RLFLOW) optimize $(OUT)/$(DEMO_MODEL).onnx -o $(OUT)/$(DEMO_MODEL).optimized.onnx --budget $(BUDGET) --threads 1 $(if $(SEARCH),--search $(SEARCH)) $(if $(COST),--cost $(COST)) --json $(OUT)/$(DEMO_MODEL).json
else
	$(RLFLOW) optimize "$(MODEL)" -o "$(OUT)/$(basename $(notdir $(MODEL))).optimized.onnx" --budget $(BUDGET) $(if $(SEARCH),--search $(SEARCH)) $(if $(COST),--cost $(COST)) --json "$(OUT)/$(basename $(notdir $(MODEL))).json"
endif

##@ Tests

.PHONY: test
test: $(VENV)/.dev ## the test suite (a quarter of an hour on two cores, more on slow ones)
	@mkdir -p build
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup --skips=build/skips-base.json $(TESTS)

COVERED = COVERAGE_CORE=$$($(1)/bin/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
  $(1)/bin/python -m pytest -q -n $(JOBS) --dist loadgroup --cov --cov-report=

.PHONY: coverage
coverage: $(VENV)/.dev $(EXTRAS)/.extras ## the tests of both environments, counting which lines of rlflow they run and prints the total (half as long again)
	@mkdir -p build/coverage
	$(call COVERED,$(VENV)) --skips=build/skips-base.json $(TESTS)
	@$(BIN)/python tests/ci/skips.py build/skips-base.json --in base --again build/again.txt
	$(call COVERED,$(EXTRAS)) --cov-append @build/again.txt
	@$(BIN)/python -m coverage report --skip-covered --sort=cover | tail -n +3 > build/coverage/lines.txt
	@echo "$$($(BIN)/python -m coverage report --format=total) % of the lines of rlflow/ were run in the tests' own processes; by file: build/coverage/lines.txt"

.PHONY: test-extras
test-extras: $(EXTRAS)/.extras ## the tests that `make test` skipped for want of torch or TVM, in an environment that has them
	@mkdir -p build
	@test -f build/skips-base.json || { echo "make: run the first environment's tests before these: make test" >&2; exit 1; }
	@$(BIN)/python tests/ci/skips.py build/skips-base.json --in base --again build/again.txt
	@test -s build/again.txt || { echo "make: make test skipped no test that these extras would let run" >&2; exit 1; }
	$(EXTRAS)/bin/python -m pytest -q -n $(JOBS) --dist loadgroup --skips=build/skips-extras.json @build/again.txt
	@$(BIN)/python tests/ci/skips.py build/skips-extras.json --in extras

.PHONY: test-peers
test-peers: $(PEERS)/.peers ## rlflow as a pass of the real Olive, and its files in the real Optimum, in an environment of their own (not in CI)
	$(PEERS)/bin/python -m pytest -q -m peers tests/test_olive.py tests/test_optimum.py

.PHONY: test-all
test-all: $(VENV)/.dev ## the test suite with the slow tests
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "" $(TESTS)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## every reader of files for SECONDS=60 each; then 2,000 random sequences of 30 rewrites, outputs compared (resumes)
	$(BIN)/python tests/fuzz/driver.py --seconds $(or $(SECONDS),60) $(TARGETS)
	$(BIN)/python tests/conformance/fuzz.py --jobs $(JOBS) --seeds $(or $(SEEDS),0:2000)

.PHONY: mutants
mutants: $(EXTRAS)/.extras ## 200 small faults, one at a time: does a test notice? Goes on where it was stopped (an hour; ONLY="NAME …")
	$(EXTRAS)/bin/python tests/mutants/run.py --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

.PHONY: native-test
native-test: check ## the C++ unit tests under the address and undefined-behaviour sanitizers
	"$(PYTHON)" tests/native/build_native.py --sanitize --run

.PHONY: native-thread-test
native-thread-test: check ## those that start threads under the sanitizer of threads: data races of the kernels' tasks (a minute or two)
	"$(PYTHON)" tests/native/build_native.py --sanitize thread --run

.PHONY: backend-test
backend-test: $(VENV)/.dev ## load, save and run every ONNX operator case and the nine CNNs of the onnx package
	$(BIN)/python -m pytest -q -m "" tests/frontends/test_backend_cases.py tests/frontends/test_light_models.py

.PHONY: gpu-compile
gpu-compile: check ## the cudnn back end against NVIDIA's headers, compilers and cuDNN's own plans; no GPU needed (fetches 1 GB, once)
	"$(PYTHON)" reproduce/gpu/compile_check.py

.PHONY: gpu-check
gpu-check: ## on a machine with a GPU: right answers, operators beside torch, calibration, five models optimised, a table of it (ten minutes; PYTHON has torch and cython)
	"$(PYTHON)" reproduce/gpu/check.py

##@ Code and documents

.PHONY: lint
lint: $(VENV)/.dev ## ruff, mypy, and the layout of the C++ (make tidy: its faults)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

# clang-tidy takes some seconds a file, so that a file is read again only when it or a header has changed.
BRIDGES := $(filter cext/cython/%.h,$(CPP))
TIDY_STAMPS := $(patsubst cext/%,build/tidy/%.ok,$(filter %.cc,$(CPP)) $(BRIDGES))
TIDY_FLAGS := -x c++ -std=c++20 -Icext/include -Icext/src -Icext/kernels -Icext/tests -Icext/cython
PYTHON_HEADERS = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')

.PHONY: tidy
tidy: $(TIDY_STAMPS) ## clang-tidy over the C++ that changed (all of it: ten minutes on one core; make -j2 tidy)

build/tidy/%.ok: cext/% cext/.clang-tidy cext/tests/.clang-tidy $(filter %.h,$(CPP)) | $(VENV)/.dev
	@mkdir -p $(dir $@)
	@echo "clang-tidy $<"
	@$(BIN)/clang-tidy --quiet $< -- $(TIDY_FLAGS) -isystem $(PYTHON_HEADERS)
	@touch $@

.PHONY: format
format: $(VENV)/.dev ## lay out the C++ as cext/.clang-format says
	$(BIN)/clang-format -i $(CPP)

.PHONY: doc-tables
doc-tables: $(VENV)/.dev ## renew the tables in docs/ that are made from code
	$(BIN)/python tests/test_layers.py --write
	$(BIN)/python tests/test_operators.py --write

.PHONY: docs
docs: $(VENV)/.dev ## how long the sentences of the pages are; fails where those for newcomers are too long
	$(BIN)/python tests/sentences.py

$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

.PHONY: site
site: $(VENV)/.docs ## build/site: the documents as a site, with a reference made from the code; fails at a warning
	$(BIN)/python docs/site/build.py
	$(BIN)/python -m mkdocs build --strict --quiet

.PHONY: page-check
page-check: $(VENV)/.dev ## the HTML report in headless Chromium, at two widths and printed; keeps pictures (needs chromium; MODELS="…")
	$(BIN)/python tests/report/look.py $(MODELS)

.PHONY: sessions
sessions: $(VENV)/.dev ## docs/sessions.md: what the commands show in a terminal, at 80 and 200 columns; fails where something is cut
	$(BIN)/python tests/report/sessions.py

.PHONY: prove
prove: $(VENV)/.dev ## prove every rule of the library again
	$(RLFLOW) rules prove --all

##@ Tables and benchmarks

.PHONY: fetch-data
fetch-data: check ## the files of other projects that some tables need: where each is from, its licence, its hash (FETCH="--list" or "--check")
	"$(PYTHON)" reproduce/fetch_data.py $(FETCH)

.PHONY: reproduce-quick
reproduce-quick: $(VENV)/.dev ## a small version of nine tables, in build/reproduce (under 25 minutes on two cores; ONLY="micro …")
	$(BIN)/python reproduce/quick.py $(if $(ONLY),--only $(ONLY))
	$(BIN)/python reproduce/claims.py

.PHONY: reproduce
reproduce: micro zoo-table zoo-all rules-table tensat-table cost-fidelity ## the large tables, one after the other (five hours; needs make fetch-data)
	$(BIN)/python reproduce/output_check/run.py
	$(BIN)/python reproduce/search_toys/run.py
	$(BIN)/python reproduce/strategies/run.py
	$(BIN)/python reproduce/kernels/run.py
	$(BIN)/python reproduce/taso/run.py
	$(BIN)/python reproduce/claims.py --write

.PHONY: micro
micro: $(VENV)/.base ## the micro-benchmarks of the native core, each against its bar
	$(BIN)/python reproduce/micro/run.py --json reproduce/micro/results/latest.jsonl

.PHONY: zoo-table
zoo-table: $(VENV)/.base ## optimise the seven zoo models and print the table of gains
	$(BIN)/python reproduce/foundation/run.py

.PHONY: zoo-all
zoo-all: $(VENV)/.base ## optimise all 27 zoo models with the default budget (an hour); goes on where it was stopped
	$(BIN)/python reproduce/zoo/run.py --resume

.PHONY: tensat-table
tensat-table: $(VENV)/.dev ## every strategy on Tensat's eight models, with Tensat's ablations (two hours; needs ../shared; resumes)
	$(BIN)/python reproduce/tensat/run.py --data ../shared/data

.PHONY: rules-table
rules-table: $(VENV)/.dev ## account for every rule of TASO's and Tensat's files (half an hour; needs ../shared/data)
	$(BIN)/python reproduce/rules/run.py

.PHONY: cost-fidelity
cost-fidelity: $(VENV)/.dev ## predicted against measured time, twelve models and thirty variants each (an hour; resumes)
	$(BIN)/python reproduce/cost_fidelity/run.py

.PHONY: learning
learning: $(EXTRAS)/.extras ## does learning earn its place? every strategy and its doubles on families that no agent saw (minutes; SIZE=full: hours, resumes)
	$(EXTRAS)/bin/python reproduce/learning/run.py --size $(or $(SIZE),quick) --resume

.PHONY: agents
agents: $(EXTRAS)/.extras ## train every agent that ships, from nothing, and say which files are those that ship (an hour of one core; goes on where it was)
	$(EXTRAS)/bin/python reproduce/ship.py --out build/agents

##@ Packages and cleaning

.PHONY: sdist
sdist: $(VENV)/.dev ## build/dist: the source distribution
	$(BIN)/python -m build --sdist --outdir build/dist .

.PHONY: wheel
wheel: $(VENV)/.dev ## build/dist: a wheel for this Python, with its manylinux tag, installed without a compiler into a bare environment and tried there
	rm -rf build/untagged
	$(BIN)/python -m build --wheel --outdir build/untagged .
	$(BIN)/python .ci/tag_wheel.py build/untagged/*.whl --into build/dist
	rm -rf build/bare && "$(PYTHON)" -m venv build/bare
	build/bare/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: -c constraints.txt "$$(ls -t build/dist/*.whl | head -n 1)"
	env -i HOME="$$HOME" PATH="$(abspath build/bare/bin)" build/bare/bin/python .ci/try_wheel.py "$$(ls -t build/dist/*.whl | head -n 1)"

# Those of a release, as the workflow `wheels` builds them. The engine runs cibuildwheel's image of manylinux_2_28.
ENGINE ?= $(firstword $(foreach one,docker podman,$(if $(shell command -v $(one)),$(one))))

.PHONY: wheels
wheels: $(VENV)/.dev ## build/wheels: a manylinux_2_28 wheel for every promised Python, each tried, by cibuildwheel (needs docker or podman)
	@test -n "$(ENGINE)" || { echo "make: no container engine was found: install docker or podman, or name it: make wheels ENGINE=…" >&2; exit 1; }
	@$(PIP) install --quiet -c constraints.txt cibuildwheel
	CIBW_CONTAINER_ENGINE=$(ENGINE) $(BIN)/python -m cibuildwheel --platform linux --output-dir build/wheels .

# What the Dockerfile's two stages do: wheels of rlflow and of all that it needs, and an environment made of them alone.
EXTRAS_OF ?= eqsat,prove,report,reproduce
WHEELHOUSE := build/wheelhouse

.PHONY: wheelhouse
wheelhouse: check ## build/wheelhouse: wheels of rlflow[EXTRAS_OF] and of everything that it needs
	"$(PYTHON)" -m venv build/wheeling
	build/wheeling/bin/python -m pip --disable-pip-version-check wheel --quiet -c constraints.txt -w $(WHEELHOUSE) '.[$(EXTRAS_OF)]'

.PHONY: install-wheelhouse
install-wheelhouse: ## the virtual environment out of build/wheelhouse: no compiler, no network
	"$(PYTHON)" -m venv "$(VENV)"
	$(PIP) install --quiet --no-index --find-links $(WHEELHOUSE) 'rlflow[$(EXTRAS_OF)]'
	touch $(VENV)/.base $(VENV)/.dev

.PHONY: pin-base
pin-base: ## write the digest of the Dockerfile's base image into it (asks docker or skopeo; or DIGEST=sha256:…)
	@"$(PYTHON)" .ci/pin_base.py --digest "$(DIGEST)"

# Whether the pins go together on every promised Python; needs uv, and asks the package index, but installs nothing.
.PHONY: constraints-check
constraints-check: ## constraints.txt on Python 3.10 to 3.14 (needs uv)
	@for python in 3.10 3.11 3.12 3.13 3.14; do \
	  uv pip compile --quiet --python-version $$python -c constraints.txt --extra dev --extra rl --extra torch --extra ray pyproject.toml -o /dev/null \
	    && echo "Python $$python: the constraints resolve" || exit 1; done

.PHONY: clean-room
clean-room: check ## the Dockerfile's steps in a fresh clone with an empty environment; then the wheel and the sdist, installed
	PYTHON="$(PYTHON)" .ci/clean-room

.PHONY: container-check
container-check: ## the Dockerfile built by buildah and tried, also where there is no registry (root, buildah, debootstrap; BASE=image ONLY="micro …")
	BASE="$(BASE)" ONLY="$(ONLY)" .ci/container

.PHONY: release-notes
release-notes: ## what CHANGELOG.md says of VERSION=0.2.0 (by default of what is unreleased)
	@"$(PYTHON)" .ci/release_notes.py $(VERSION)

.PHONY: clean
clean: ## remove what was built (the virtual environment stays)
	rm -rf build dist *.egg-info rlflow/_core*.so rlflow/_kernels.so rlflow/_core.pyi .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(VENV)/.base $(VENV)/.dev $(EXTRAS)/.extras $(PEERS)/.peers

.PHONY: distclean
distclean: clean ## remove the virtual environments too
	rm -rf "$(VENV)" "$(EXTRAS)" "$(PEERS)"
