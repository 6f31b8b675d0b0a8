# Quarterdeck. `make help` lists what can be done; every target needs Rust, the browser app and the tests need Node with
# npm too.

CARGO ?= cargo
# Passed to `qd up`, for example: make up ARGS="--listen 127.0.0.1:7777"
ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up build dist web test agents check bench bench-web

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## build and run hub and runner in one process; options in ARGS="…"
	./target/release/qd up $(ARGS)

build: web ## build the release binary, target/release/qd, with the browser app in it
	$(CARGO) build --release -p qd

dist: web ## build the binary for packages, target/dist/qd: faster and smaller, and slow to build
	$(CARGO) build --profile dist -p qd

web: web/dist/index.html ## build the browser app, web/dist, which the binary carries

# Only when something has changed: the binary is built again whenever the app is. Without npm it is built all the same,
# and shows a page that says how to get the app.
web/dist/index.html: $(shell find web/src web/public web/scripts clients/typescript/src web/*.* -type f 2>/dev/null)
	@if command -v npm >/dev/null 2>&1; then \
		./web/install.sh && cd web && npm run --silent build; \
	elif [ -f $@ ]; then \
		echo "web: npm is missing; the browser app stays as it was built before"; \
	else \
		echo "web: npm is missing, so the browser app is left out; install Node.js with npm and run make again"; \
	fi

test: ## install what the tests need, then run every check and test; shows how long each step took
	$(CARGO) xtask ci --install

agents: ## install the programs, the real agents and the browser the tests drive, and what checks the TypeScript
	$(CARGO) xtask install

check: ## every check and test, without installing anything
	$(CARGO) xtask ci

bench: web ## measure the binary for packages; prints a table and writes a JSON file
	$(CARGO) run --release -p qd-bench

bench-web: build ## measure the browser app: sizes, opening, streaming; prints a table
	./web/install.sh --tests
	cd web && QD_BINARY=../target/release/qd npm run --silent bench
