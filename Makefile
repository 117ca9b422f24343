# Everything a fresh machine needs is Python 3.11 (or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-rust check format sim bench bench-peers mutants chaos clean

demo: $(STAMP)
	$(BIN)/ticketing demo

test: $(STAMP)
	$(BIN)/pytest -q

# The Rust library, where Cargo is installed. See docs/rust.md. CONFORMANCE=no leaves the list to `make test`, which
# plays it against every library whose driver is built.
CONFORMANCE ?= yes
test-rust: $(STAMP)
	cd clients/rust && cargo fmt --check
	cd clients/rust && cargo clippy --locked --quiet --all-targets -- -D warnings
	cd clients/rust && cargo test --locked --quiet
ifneq ($(CONFORMANCE),no)
	TICKETING_RUST_DRIVER=clients/rust/target/debug/examples/conformance_driver $(BIN)/pytest -q tests/conformance -k rust
endif

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A whole cluster in one thread; SEEDS runs from FIRST on. See docs/simulation.md. What was run is noted in RECORD:
# an interrupted run goes on where it was, and with other sources all is run again.
SEEDS ?= 1000
FIRST ?= 0
RECORD ?= build/sim.json
sim: $(STAMP)
	$(BIN)/python -m tests.sim --seeds $(FIRST)..$$(($(FIRST) + $(SEEDS) - 1)) --jobs 2 --resume $(RECORD)

# Draws the pictures of docs/images anew, from a cluster of its own.
screenshots: $(STAMP)
	$(BIN)/python -m tests.tui.screenshots

# The product beside the reference servers: under 5 minutes.
bench: $(STAMP)
	$(BIN)/python -m benchmarks.compare ours --seconds 0.8
	$(BIN)/python -m benchmarks.failover --trials 10

# All systems side by side; installs those that are missing, writes docs/performance/ and the page. About 15 minutes.
RESULTS := docs/performance/results.json
bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.compare single replicated open --results $(RESULTS)
	$(BIN)/python -m benchmarks.failover --systems etcd-memory etcd-fsync zookeeper --results $(RESULTS)
	$(BIN)/python -m benchmarks.failover --client published --trials 5 --results $(RESULTS)
	$(BIN)/python -m benchmarks.page --results $(RESULTS)

mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

# A real cluster in network namespaces, and everything that can go wrong with it (root; see docs/chaos.md).
MINUTES ?= 60
SEED ?= 1
NODES ?= 5
chaos: $(STAMP)
	$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES) --nodes $(NODES)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ticketing needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) clients/rust/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
