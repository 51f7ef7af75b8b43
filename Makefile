# Where `cargo build` puts things; tests, the demo and CI share the one folder and profile.
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
GUESTS := --profile guest --target wasm32-wasip2 --workspace --exclude dqhost

DENY := $(TARGET)/tools/cargo-deny
MDBOOK := $(TARGET)/tools/mdbook

.PHONY: help demo test fuzz chaos week check deny docs deb image guests setup redis clients languages bench bench-full picture

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

demo: setup ## see it at work: build it, send orders, handle them
	cargo build --locked --profile guest --target wasm32-wasip2 --package guest-order-timeout
	cargo build --locked
	@sh tests/demo.sh $(TARGET)/debug $(TARGET)/wasm32-wasip2/guest

# The same code gets the same answer; `make fuzz` is for what else may come.
test: redis languages clients guests ## run all tests
	PROPTEST_RNG_SEED=1 cargo test --locked
	cargo test --locked --package dqhost-handler

CASES ?= 2000

fuzz: redis guests ## give anything to all that decodes, CASES=2000 times a test, with another seed each time
	PROPTEST_CASES=$(CASES) cargo test --locked --lib
	PROPTEST_CASES=$(CASES) cargo test --locked --test it -- corrupt model

check: setup ## what CI checks before the tests: format and lints
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --all-targets --package dqhost-handler -- -D warnings
	cargo clippy --locked $(GUESTS) -- -D warnings

deny: setup ## check licences and origins of all crates, and whether any has a known weakness
	@sh tests/setup.sh deny $(DENY)
	$(DENY)/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	@if timeout 120 $(DENY)/bin/cargo-deny --log-level off fetch db; then \
		$(DENY)/bin/cargo-deny --locked check --disable-fetch advisories; \
	else \
		echo "NOT CHECKED: whether a crate has a known weakness; the database of them is not reachable from here"; \
	fi

docs: setup ## build the book of docs/, and check its pages and their links
	@sh tests/setup.sh mdbook $(MDBOOK)
	$(MDBOOK)/bin/mdbook build docs --dest-dir $(abspath $(TARGET))/book
	cargo test --locked --test it docs::every_

deb: setup ## make a Debian package of a release build
	cargo build --locked --release
	sh packaging/deb.sh $(TARGET)/release/dqhost $(TARGET)

image: setup ## make an image for containers of a release build
	@sh tests/setup.sh image
	cargo build --locked --release
	sh packaging/image.sh $(TARGET)/release/dqhost $(TARGET)

guests: setup ## build the example handlers
	cargo build --locked $(GUESTS)

MINUTES ?= 10
SEED ?= 1

chaos: redis guests ## go on trying to break what is promised, for MINUTES=10, from SEED=1 on
	DQHOST_CHAOS_MINUTES=$(MINUTES) DQHOST_CHAOS_SEED=$(SEED) \
		cargo test --locked --test chaos -- --ignored --nocapture however_long

week: redis guests ## run hosts for MINUTES=10 with kills, swaps, limits and schedules, and count what they tell
	DQHOST_WEEK_MINUTES=$(MINUTES) cargo test --locked --test it -- --nocapture week::

bench: redis guests ## measure the most important figures in a few minutes
	cargo bench --locked --bench dqhost -- --json $(TARGET)/bench.json

bench-full: redis guests ## measure everything, a peer too; takes an hour
	cargo build --locked --release --manifest-path benches/effectum/Cargo.toml --target-dir $(TARGET)/effectum
	@set -e; for subject in send "drain --effectum $(TARGET)/effectum/release/effectum-bench" \
			lateness latency sandbox memory idle start hosts ceiling \
			"blocking --messages 1000000" dashboard "neighbours --each" fair limits swaps slots; do \
		cargo bench --locked --bench dqhost -- $$subject --json $(TARGET)/bench-$${subject%% *}.json; \
	done

picture: redis guests ## draw and record the pictures of the dashboard anew
	DQHOST_UPDATE_PICTURE=1 cargo test --locked --test it -- dashboard::screens::the_picture dashboard::recorded::the_recording

setup:
	@sh tests/setup.sh

redis: setup
	@sh tests/setup.sh redis

clients: setup ## download clients of HTTP that the tests ask with
	@sh tests/setup.sh clients $(TARGET)/tools/clients

languages: setup ## download what builds handlers in other languages than Rust
	@sh tests/setup.sh languages $(TARGET)/tools
