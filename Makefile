# Few targets. `check` never writes; `fix` is its writing twin. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test check fix sim faults fuzz bench bench-long ci

# Where the demo reads from: one file or folder, or several files, folders and feed URLs separated by spaces.
SOURCES = samples/weekly
# Where the node keeps its journal and where the pack is written.
DATA = data
# How many random cases each property is tried with in `make sim`.
CASES = 20000
# How many schedules it plays, and for how many seconds at most if that is asked for. SEED=n plays one and prints what
# happens in it; SABOTAGE=name takes a protection away meanwhile (actors/runtime/tests/sim/sabotage.rs).
SEEDS = 10000
SECONDS =
PLAY = cargo test --profile sim --package signalbox-runtime --test sim
# How often `make faults` plays each of its faults.
TRIALS = 50
# Which parser `make fuzz` fuzzes, one of the folders of tests/corpus, and for how many seconds.
TARGET = json
TIME = 60

# Handed to recipes through the environment, so that an address with an ampersand is an address and not a command.
export SOURCES DATA SINCE

# cargo-nextest where it is installed; plain cargo otherwise, so that Rust alone is enough.
RUN_TESTS = $$(cargo nextest --version >/dev/null 2>&1 && echo cargo nextest run || echo cargo test)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 8

run: ## the demo: a briefing from SOURCES, with APPROVE=1 SINCE=date FRESH=1 DATA=folder
	cargo build --package signalbox
	@set -f; if [ -e "$$SOURCES" ]; then set -- "$$SOURCES"; else set -- $$SOURCES; fi; \
	cargo run --quiet --package signalbox -- demo --sources "$$@" --data "$$DATA" \
		$(if $(SINCE),--since "$$SINCE") $(if $(APPROVE),--approve) $(if $(FRESH),--fresh)

test: ## every test, with a PostgreSQL and a Redis that it starts itself
	scripts/with-services $(RUN_TESTS) --workspace

check: ## what must be green before a commit; needs no services and writes nothing
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(RUN_TESTS) --workspace --exclude signalbox-tests -- --skip postgres --skip redis
	$(RUN_TESTS) --package signalbox-tests --test house
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo 'note: cargo-deny is not installed, so licences, bans and sources were not checked' >&2; fi

fix: ## everything a machine can repair
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all

sim: ## many more random histories than `make test` tries: SEEDS=n SECONDS=n CASES=n, or one of them: SEED=n
ifeq ($(SEED),)
	PROPTEST_CASES=$(CASES) $(RUN_TESTS) --package signalbox-domain
	SEEDS=$(SEEDS) SECONDS=$(SECONDS) $(PLAY) -- --nocapture
else
	SEED=$(SEED) STEPS=$(STEPS) WITHOUT=$(WITHOUT) SABOTAGE=$(SABOTAGE) $(PLAY) --quiet every_promise -- --nocapture
endif

faults: ## arms a switch on three processes at the moment something breaks, TRIALS times for each fault; about half an hour
	FAULT_TRIALS=$(TRIALS) scripts/with-services cargo test --package signalbox --test binary \
		nothing_that_a_switch_matches -- --nocapture

fuzz: ## looks for inputs that break one parser, guided by coverage; TARGET=name TIME=seconds
	scripts/fuzz "$(TARGET)" "$(TIME)"

bench: ## what calls cost, and what has moved since benches/figures.json was written; needs a machine at rest, some minutes
	cargo build --release --package signalbox --package signalbox-benches
	cargo bench --package signalbox-benches --bench journal --bench rules
	"$${CARGO_TARGET_DIR:-target}/release/loadgen" figures --criterion "$${CARGO_TARGET_DIR:-target}/criterion" $(BENCH)

bench-long: ## the same with curves over runs at once and sizes; half an hour
	$(MAKE) bench BENCH='--long --rounds 5 --secs 15'

ci: ## what runs on every submission
	.ci/run
