# Fleetward: what a person can do here. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PY := .venv/bin/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## List what you can do
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: venv
venv: ## Make or refresh the development environment (.venv)
	@hack/venv.sh

.PHONY: lock
lock: ## Resolve the locks in requirements/ anew
	@hack/lock.sh

# --- the main job -----------------------------------------------------------
.PHONY: up
up: venv ## Everything: cluster, images, chart, quickstart, story; CLUSTER=existing REGISTRY=…: on yours
	@$(PY) -m e2e.demo up --cluster "$(CLUSTER)"

.PHONY: down
down: ## Stop all that `make up` or a test started; CLUSTER=existing: remove the release from yours
	@if [ -n "$(filter-out local,$(CLUSTER))" ]; then $(PY) -m e2e.demo down --cluster "$(CLUSTER)"; \
	elif [ -x $(PY) ]; then $(PY) -m e2e.cluster down; else echo "nothing to stop: .venv does not exist"; fi

.PHONY: redeploy
redeploy: venv ## Bring a change of our Python code to the running cluster
	@$(PY) -m e2e.demo redeploy --cluster "$(CLUSTER)"

.PHONY: images
images: venv ## Build the two images with buildah
	@$(PY) -m e2e.images build

.PHONY: cluster-up
cluster-up: venv ## Start the local Kubernetes alone
	@$(PY) -m e2e.cluster up

.PHONY: cluster-down
cluster-down: down ## Stop the local Kubernetes

# --- generated files --------------------------------------------------------
.PHONY: generate
generate: venv ## Print CRDs, chart copies and docs/conditions.md from the code
	@hack/generate.sh

# --- checks and tests -------------------------------------------------------
.PHONY: check
check: venv ## Lint, types, import layers, drift of generated files
	@hack/check.sh

.PHONY: test-unit
test-unit: venv ## Unit and property tests
	@$(PY) -m e2e.figures time unit-seconds -- $(PY) -m pytest -q -n 2 --dist loadfile tests/unit

.PHONY: test-engine
test-engine: venv ## The engine against Hugging Face transformers
	@$(PY) -m pytest -q tests/engine

.PHONY: test-fire
test-fire: venv ## Engine and gateway as running servers, and the protocol, under fire (short form of `make chaos`)
	@$(PY) -m pytest -q tests/fire

.PHONY: test-integration
test-integration: venv ## Everything that needs a real API server
	@$(PY) -m pytest -q -n 2 --dist loadfile tests/integration

.PHONY: test-e2e
test-e2e: venv ## Real pods: takes the local cluster from an empty state
	@$(PY) -m pytest -q -p no:cacheprovider e2e/tests

.PHONY: test
test: venv ## All that must pass
	@$(PY) -m e2e.figures time test-seconds -- $(MAKE) --no-print-directory test-all

.PHONY: test-all
test-all: check test-unit test-fire test-engine test-integration test-e2e
	@$(MAKE) --no-print-directory down

# --- figures ----------------------------------------------------------------
.PHONY: figures
figures: venv ## Print every measured figure; fail on a missing one
	@$(PY) -m e2e.figures print

.PHONY: bench-throughput
bench-throughput: venv ## Tokens per second beside transformers' continuous batching
	@$(PY) engine-image/bench/throughput.py

.PHONY: bench-kv-quant
bench-kv-quant: venv ## What int8 keys and values cost in quality and bring in capacity
	@$(PY) engine-image/bench/kv_quantisation.py

.PHONY: bench-cache
bench-cache: venv ## The KV cache: a flood, and what governing it costs per step and per block
	@$(PY) engine-image/bench/cache.py

.PHONY: bench-scheduling
bench-scheduling: venv ## Shares of two tenants under weighted fair queueing, and what it costs
	@$(PY) engine-image/bench/scheduling.py

.PHONY: bench-admission
bench-admission: venv ## Predicted beside real waits in an overloaded queue
	@$(PY) engine-image/bench/admission.py

.PHONY: bench-isolation
bench-isolation: venv ## One engine: timing between tenants, influence, times to live, purges, traces
	@$(PY) -m e2e.isolation
	@FLEETWARD_FULL=1 $(PY) -m pytest -q -p no:cacheprovider tests/fire/isolation

.PHONY: bench-switches
bench-switches: venv ## What batchInvariant and verifyKv cost a step
	@$(PY) engine-image/bench/switches.py

.PHONY: bench-cluster
bench-cluster: venv ## The cluster figures in full: 200 pairs, purge, idle for 5 min, 20 kills
	@FLEETWARD_FULL=1 $(PY) -m pytest -q -p no:cacheprovider --timeout 2400 e2e/tests/test_story.py e2e/tests/test_purge.py e2e/tests/test_operator.py

.PHONY: bench-up
bench-up: venv ## `make up` from nothing, again, and after `make down`
	@$(PY) -m e2e.figures up

.PHONY: chaos
chaos: venv ## The product under fire in full, resumable (ONLY=STEP, FRESH=1, JOBS=N)
	@$(PY) -m e2e.chaos run $(if $(ONLY),--only $(ONLY)) $(if $(FRESH),--fresh) $(if $(JOBS),--jobs $(JOBS))

.PHONY: bench-all
bench-all: bench-up bench-throughput bench-cache bench-kv-quant bench-scheduling bench-admission bench-isolation test-engine bench-cluster test ## Measure all of `make figures`
