# Where `cargo build` puts things; tests, the demo and CI share the one folder and profile.
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
GUESTS := --profile guest --target wasm32-wasip2 --workspace --exclude dqhost

.PHONY: help demo test check guests setup redis bench bench-full picture

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

demo: setup guests ## see it at work: build everything, send orders, handle them
	cargo build --locked
	@sh tests/demo.sh $(TARGET)/debug $(TARGET)/wasm32-wasip2/guest

test: redis guests ## run all tests
	cargo test --locked

check: setup ## what CI checks before the tests: format and lints
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked $(GUESTS) -- -D warnings

guests: setup ## build the example handlers
	cargo build --locked $(GUESTS)

bench: redis guests ## measure the most important figures in a few minutes
	cargo bench --locked --bench dqhost -- --json $(TARGET)/bench.json

bench-full: redis guests ## measure everything, a peer too; takes half an hour
	cargo build --locked --release --manifest-path benches/effectum/Cargo.toml --target-dir $(TARGET)/effectum
	@set -e; for subject in send "drain --effectum $(TARGET)/effectum/release/effectum-bench" \
			lateness latency sandbox memory idle start hosts ceiling \
			"blocking --messages 1000000" dashboard "neighbours --each"; do \
		cargo bench --locked --bench dqhost -- $$subject --json $(TARGET)/bench-$${subject%% *}.json; \
	done

picture: redis guests ## draw the README's picture of the dashboard anew
	DQHOST_UPDATE_PICTURE=1 cargo test --locked --test it dashboard::screens::the_picture

setup:
	@sh tests/setup.sh

redis: setup
	@sh tests/setup.sh redis
