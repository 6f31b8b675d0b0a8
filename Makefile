# Quarterdeck. `make help` lists what can be done; every target needs Rust, the tests need Node with npm too.

CARGO ?= cargo
# Passed to `qd up`, for example: make up ARGS="--listen 127.0.0.1:7777"
ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up build test agents check bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## build and run hub and runner in one process; options in ARGS="…"
	./target/release/qd up $(ARGS)

build: ## build the release binary, target/release/qd
	$(CARGO) build --release -p qd

test: agents check ## install what the tests need, then run every check and test

agents: ## install the programs and the real agents the tests drive, and what checks the TypeScript client
	./tests/programs/install.sh
	./tests/agents/install.sh
	./clients/typescript/install.sh

check: ## every check and test, without installing anything
	$(CARGO) xtask ci

bench: ## measure; prints a table and writes a JSON file
	$(CARGO) run --release -p qd-bench
