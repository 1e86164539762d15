# The words people and CI use. Each sets up what it needs: a .venv, the built core, servers.

PYTHON := .venv/bin/python
RUST := scripts/with-rust

.DEFAULT_GOAL := help
.PHONY: help venv core servers newer-redis other-nginx s3-server lab test test-matrix test-aarch64 torture check format bench results docs

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' Makefile | expand -t 14

venv:
	@scripts/venv .venv

servers:
	@scripts/servers

newer-redis:  # Beside the system's: tests run against both.
	@scripts/newer-redis

other-nginx:  # The same for nginx: one newer, one older.
	@scripts/other-nginx newer
	@scripts/other-nginx older

s3-server:  # For the objects experiment; Debian has none.
	@scripts/s3-server

core: venv  # The native module, beside the sources.
	@scripts/core .venv

lab: core servers  ## Measure cache backends on this machine; ends in a CACHES block to paste.
	@.venv/bin/nearcache lab run backends

test: core servers newer-redis other-nginx s3-server  ## Test the core and the package.
	@$(RUST) cargo test --profile tested --quiet -p nearcache-core -p nearcache-nginx \
	  --features nearcache-core/crash-injection
	@$(PYTHON) -m pytest -q -n 2 --dist loadfile

test-matrix: servers newer-redis other-nginx s3-server  ## Test on every Python >= 3.11 found, with Django 5.2 and the newest.
	@scripts/test-matrix

test-aarch64:  ## Test the core on an emulated aarch64.
	@scripts/core-aarch64

torture: core servers  ## Kill, freeze and fork the users of both caches, and the server; then whole sites; for HOURS or MINUTES each.
	@$(PYTHON) -m tests.torture $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),10))
	@$(PYTHON) -m tests.site $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),10))

check: core  ## Lint and type-check Python and Rust.
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@$(RUST) cargo fmt --all --check
	@$(RUST) cargo clippy --quiet --workspace --all-targets --features nearcache-core/crash-injection -- -D warnings
	@echo "check: all well"

format: venv  ## Format Python and Rust.
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .
	@$(RUST) cargo fmt --all

bench: core servers  ## Measure the core and the backends; see bench/.
	@$(PYTHON) -m bench

results: core servers  ## Run every experiment in full, and keep the results in bench/results (over an hour).
	@rm -rf results/full
	@.venv/bin/nearcache lab run --all --out results/full
	@$(PYTHON) -m scripts.results_page results/full/run-*
	@$(PYTHON) -m scripts.generate_docs

docs: core  ## Generate the pages that come from code and from kept results.
	@$(PYTHON) -m scripts.generate_docs
