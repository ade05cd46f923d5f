# What there is to do here. `make` alone prints it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: mutants sim crash help setup build demo test test-versions bench bench-quick bench-compare bench-record soak check fmt deny ops-check kube-check test-containers

# A checkout that was never set up must say what is missing, not fail inside a build script.
CARGO ?= cargo

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build and the tests need (Debian, Ubuntu; as root or with sudo)
	@scripts/setup.sh all

build: ## compile the whole workspace
	@scripts/setup.sh build
	$(CARGO) build --workspace

demo: ## run the main job on an embedded Kafka and a throw-away PostgreSQL; ARGS="--keep" leaves it running
	@scripts/setup.sh demo
	$(CARGO) build --bin sekali --bin sekali-worker
	target/debug/sekali demo $(ARGS)

test: ## run every test against a real Kafka and PostgreSQL; SEKALI_TEST_ARGS="-p sekali-tests --test it -- NAME" runs some
	@scripts/setup.sh all
	@scripts/test.sh

test-versions: ## run the integration tests on PostgreSQL 15 to 18 and several Kafkas; VERSIONS_ARGS='--only "Kafka 4.1"'
	@scripts/setup.sh all
	$(CARGO) build --workspace --all-targets
	target/debug/sekali-test-versions $(VERSIONS_ARGS)

bench: ## how fast it is, beside loops by hand, and what trouble costs: a quarter of an hour; BENCH_ARGS="--only W1 --rounds 3"
	@scripts/setup.sh all
	$(CARGO) build --release -p sekali-tests --bin sekali-bench
	target/release/sekali-bench $(BENCH_ARGS)

bench-quick: ## the same with less of everything: two minutes; W1 and W3 alone, unless BENCH_ARGS says otherwise
	@scripts/setup.sh all
	$(CARGO) build --release -p sekali-tests --bin sekali-bench
	target/release/sekali-bench --quick $(or $(BENCH_ARGS),--only W1 --only W3)

bench-compare: ## the last results beside tests/bench/baseline.json: counts have to stay, rates may move
	$(CARGO) build --release -p sekali-tests --bin sekali-bench
	target/release/sekali-bench --compare tests/bench/baseline.json

bench-record: ## make the last results the baseline, on purpose
	cp target/bench/results.json tests/bench/baseline.json

soak: ## ten minutes under a steady load with failures: flat memory, and the oracle
	@scripts/setup.sh all
	$(CARGO) build --release -p sekali-tests --bin sekali-bench
	target/release/sekali-bench --soak 600

sim: ## simulate the protocol around the core; SEED=n for one world, SEEDS=n for many, HOURS=n for long ones
	@scripts/setup.sh build
	$(CARGO) build -p sekali-simulation
	SEED=$(SEED) SEEDS=$(SEEDS) HOURS=$(HOURS) target/debug/sekali-sim

crash: ## kill worker, relay, PostgreSQL and broker at every point of a message's life; ROUNDS=n (100)
	@scripts/setup.sh all
	$(CARGO) build -p sekali-tests --bin sekali-crash
	target/debug/sekali-crash --rounds $(or $(ROUNDS),100) $(CRASH_ARGS)

mutants: ## break the core in some ninety ways and see the tests notice (half an hour)
	@scripts/setup.sh build
	$(CARGO) run -q -p sekali-simulation --bin sekali-mutants

check: ## format, lints, house rules, dependencies and their licences
	@scripts/setup.sh build
	@scripts/check.sh

ops-check: ## alerts with their tests, dashboards, runbooks, chart, workflows; installs tools into target/tools; ONLY="chart: lint"
	@ops/check.sh "$(ONLY)"

kube-check: ## the chart on a real Kubernetes API server, built from Go modules (five minutes the first time): target/kube/verdict.json
	@ops/kube/check.sh

test-containers: ## image, compose file and the tests that start containers: target/containers/verdict.json; PARTS="image compose"
	@scripts/setup.sh build
	@docker/check.sh $(PARTS)

fmt: ## format the sources
	$(CARGO) fmt --all
