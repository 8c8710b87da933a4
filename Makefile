# `make demo` and `make test` work from a fresh clone with Python 3.11+ and nothing else prepared.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
# Pinned dependencies, with hashes: what runs, what runs with every extra, what tests it, what builds the package, what is in the image.
RUNTIME_LOCK := requirements/runtime.lock
ALL_LOCK := requirements/all.lock
DEV_LOCK := requirements/dev.lock
BUILD_LOCK := requirements/build.lock
IMAGE_LOCK := requirements/image.lock
INSTALLED := $(VENV)/.runtime
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST_ARGS ?=
# Tests of one file stay together: they may share a server.
WORKERS ?= 2
# Kept out of `make test`, which must stay below ten minutes; `make slow` runs them, and CI does.
SLOW := tests/vm tests/soak tests/drills tests/scenarios tests/e2e tests/browser tests/conformance/test_other_cpus.py tests/docs/test_demo_captures.py tests/docs/test_site.py tests/release \
        tests/unit/replay/test_pictures.py tests/prom/test_grafana.py tests/cluster/test_recommender_writes.py tests/cluster/test_recommender_loop.py \
        tests/cluster/test_updater_leadership.py tests/cluster/test_hpa_headroom.py tests/cluster/test_hpa_alone.py \
        tests/docs/test_first_hour.py tests/unit/replay/test_workers.py tests/unit/replay/test_recordings.py

.PHONY: help demo test slow again lint format types contracts bench quality presubmit e2e real screenshots containerd vm-kernel conformance soak drills lock wheels advisories docs site release image-parts clean

help: ## Show what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): $(RUNTIME_LOCK) $(BUILD_LOCK) pyproject.toml
	@python=""; for candidate in "$$PYTHON" python3.11 python3.12 python3.13 python3; do \
	  if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$candidate"; break; fi; done; \
	if [ -z "$$python" ]; then echo "kubetide needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; fi; \
	echo "Making $(VENV) with $$("$$python" --version)…"; \
	"$$python" -m venv $(VENV)
	@$(PIP) install --require-hashes -r $(RUNTIME_LOCK)
	@# The build backend stays out of the environment: it is needed for this one step.
	@backend=$$(mktemp -d) && trap 'rm -rf "$$backend"' EXIT && $(PIP) install --require-hashes --target "$$backend" -r $(BUILD_LOCK) && \
	  PYTHONPATH="$$backend" $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(INSTALLED) $(DEV_LOCK)
	@echo "Adding the development tools to $(VENV)…"
	@$(PIP) install --require-hashes -r $(DEV_LOCK)
	@touch $@

demo: $(INSTALLED) ## A simulated cluster under load with every controller at work
	@$(BIN)/kubetide demo

test: $(READY) ## All tests this machine can run, but for the slow ones; says which were skipped and why
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(SLOW:%=--ignore=%) $(PYTEST_ARGS)

slow: $(READY) ## An emulated machine with cgroup v2, churn, whole days, real servers, the vectors without this CPU's extra features: minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(SLOW) $(PYTEST_ARGS)

again: $(READY) ## The tests that failed last, once more and alone; what passes now has a race to repair
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 1 -rA --tb short $(PYTEST_ARGS)

lint: $(READY) ## Ruff, mypy strict, import contracts
	@$(BIN)/ruff check src tests benchmarks
	@$(BIN)/ruff format --check src tests benchmarks
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## Let ruff tidy up
	@$(BIN)/ruff check --fix src tests benchmarks
	@$(BIN)/ruff format src tests benchmarks

types: $(READY) ## mypy alone
	@$(BIN)/mypy

contracts: $(READY) ## Import contracts alone
	@$(BIN)/lint-imports

presubmit: lint test ## What CI runs

e2e: $(READY) ## Tests against a real kube-apiserver (KUBEBUILDER_ASSETS, or ~/.cache/kubetide/envtest)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/e2e $(PYTEST_ARGS)

real: $(READY) ## kubetide on a whole real cluster of one node, in a private network: kubelet, containerd, helm, the chart (root)
	@unshare --net --mount --propagation private sh -c 'ip link set lo up && ip addr add 10.123.45.1/32 dev lo && exec "$$@"' sh \
	  $(abspath $(BIN))/python -m pytest -s tests/real $(PYTEST_ARGS)

containerd: ## Fetch a containerd with NRI for the tests of real containers (apt's mirror; nothing is installed)
	@python3 tests/tools/debian_packages.py --into "$${XDG_CACHE_HOME:-$$HOME/.cache}/kubetide/cri" --program containerd containerd=1.7

vm-kernel: ## Fetch a Debian kernel for the tests in an emulated machine (apt's mirror; nothing is installed)
	@tests/tools/debian_kernel.sh "$${XDG_CACHE_HOME:-$$HOME/.cache}/kubetide/vm"

conformance: $(READY) ## Golden vectors, suite by suite
	@$(BIN)/python tests/conformance/run.py tests/vectors

bench: $(READY) ## Benchmarks: ratios against a stated baseline, in one run, with memory
	@for file in $(filter-out benchmarks/soak_% benchmarks/compare.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

# The judge and its traces are not part of kubetide; any folder with the same files will do.
JUDGE ?= $(wildcard ../shared/quality)
TRACES ?= $(wildcard ../shared/traces)

quality: $(READY) ## Decisions on recorded traces, beside other rules (JUDGE=folder TRACES=folder); takes half an hour
	@if [ ! -f "$(JUDGE)/runner.py" ] || [ ! -f "$(TRACES)/index.json" ]; then \
	  echo "quality: skipped, JUDGE needs runner.py, score.py and baselines.py, TRACES needs index.json"; exit 0; fi; \
	work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	for kind in usage load; do \
	  echo "## $$kind: other rules"; $(BIN)/python "$(JUDGE)/baselines.py" $$kind --traces "$(TRACES)" || exit 1; done; \
	for run in usage:adaptive:3600 usage:adaptive-one usage:vpa usage:krr load:headroom load:hpa:70; do \
	  kind=$${run%%:*}; rest=$${run#*:}; period=""; \
	  case $$rest in *:3600) period="--period 3600"; rest=$${rest%:3600};; esac; \
	  echo "## $$kind: $$rest $$period"; \
	  $(BIN)/python "$(JUDGE)/runner.py" $$kind --traces "$(TRACES)" --decisions "$$work/decisions" $$period -- \
	    $(BIN)/kubetide replay --stdio $$kind --policy $$rest && \
	  $(BIN)/python "$(JUDGE)/score.py" $$kind --traces "$(TRACES)" --decisions "$$work/decisions" || exit 1; done

screenshots: $(READY) ## Pictures of every page of the dashboard, for the docs, by the browser tests
	@KUBETIDE_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

drills: $(READY) ## Everything that goes wrong, on purpose, with a bound each; whole, and the page of results: an hour
	@cd tests && $(abspath $(BIN))/python -m drills --page ../docs/reference/drills.md -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

soak: $(READY) ## Hours of simulated churn
	@$(BIN)/python -m benchmarks.soak_node
	@$(BIN)/python -m benchmarks.soak_recommender
	@$(BIN)/python -m benchmarks.soak_determinism

docs: $(READY) ## Write the pages that are generated from the code
	@$(BIN)/kubetide settings --format markdown > docs/reference/settings.md
	@$(BIN)/kubetide compat --format markdown > docs/reference/compat.md
	@$(BIN)/kubetide verdicts --format markdown > docs/reference/verdicts.md
	@$(BIN)/python tests/tools/metrics_page.py > docs/reference/metrics.md
	@$(BIN)/kubetide manifests all --image kubetide:latest > deploy/kubetide.yaml
	@$(BIN)/kubetide manifests --image kubetide:latest --write deploy
	@for size in 80x24 160x50; do $(BIN)/kubetide demo --duration 3h4m --capture $$size > docs/reference/demo-$$size.txt; done

site: $(READY) ## The documentation as a web site, below build/site; a broken link fails
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

release: $(READY) ## Wheel, sdist, bill of materials and kubectl plugin below dist, checked; nothing is published
	@$(BIN)/python tests/tools/release.py --into dist

image-parts: $(READY) ## What the image is made of, installed into an empty prefix and run by nobody, without Docker
	@$(BIN)/python -m pytest tests/release/test_image.py $(PYTEST_ARGS)

lock: $(READY) ## Resolve the dependencies anew: runtime, all extras, development
	@$(BIN)/python -m pip install --quiet uv
	@compile="$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml"; \
	$$compile --group dev --all-extras -o $(DEV_LOCK); \
	$$compile --all-extras -c $(DEV_LOCK) -o $(ALL_LOCK); \
	$$compile -c $(DEV_LOCK) -o $(RUNTIME_LOCK); \
	$$compile --extra agent --extra fast --extra otel -c $(DEV_LOCK) -o $(IMAGE_LOCK); \
	printf 'hatchling\neditables\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header - -c $(DEV_LOCK) -o $(BUILD_LOCK)

wheels: $(READY) ## Write down which wheels of the lock fit arm64 and macOS; asks the package index
	@$(BIN)/python tests/tools/wheels.py

advisories: $(READY) ## Known advisories about what the lock pins; skipped with a reason where OSV cannot be reached
	@$(BIN)/python tests/tools/advisories.py

clean: ## Remove what was made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
