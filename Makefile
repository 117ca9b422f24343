# Everything a fresh machine needs is Python 3.11 (or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-rust check format sim bench bench-peers bench-compiled compiled test-compiled mutants chaos clean

demo: $(STAMP)
	$(BIN)/ticketing demo

# Two processes: most of the tests wait for others. All that start nodes on loopback are one's (tests/conftest.py).
test: $(STAMP)
	$(BIN)/pytest -q --numprocesses 2 --dist loadgroup

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

# The optional compiled build: the sources once more in a folder of their own, the modules that pyproject.toml names compiled
# beside them. Needs a C compiler, and takes a minute or two. See docs/performance.md.
COMPILED := .compiled
COPIED := ticketing saro_ticketing tests benchmarks docs deploy clients pyproject.toml setup.py README.md Makefile
compiled: $(STAMP)
	rm -rf $(addprefix $(COMPILED)/,$(COPIED))
	mkdir -p $(COMPILED)
	tar -c --exclude=__pycache__ --exclude=clients/rust/target $(COPIED) | tar -x -C $(COMPILED)
	cd $(COMPILED) && TICKETING_COMPILE=1 ../$(BIN)/python setup.py --quiet build_ext --inplace

# The tests of what is compiled, and the simulator's runs compared byte for byte with those of the sources.
DIGESTS ?= 0..199
test-compiled: compiled
	cd $(COMPILED) && ../$(BIN)/python -m pytest -q tests/protocol tests/raft tests/locks tests/node tests/server tests/e2e
	$(BIN)/python -m tests.compiled --seeds $(DIGESTS)

# The compiled build beside the sources, the reference servers and Redis.
bench-compiled: compiled
	$(BIN)/python -m benchmarks.compare compiled --without etcd-memory etcd-fsync zookeeper

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
	rm -rf $(VENV) $(COMPILED) clients/rust/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
