# The one door. `make` alone says what there is.

SHELL := /bin/bash
CARGO ?= cargo

# Kill moments tried for each guest, runs of each server, and guests run at a time: most wait more than they compute. The
# defaults keep `make test` under an hour on two cores; `make test SEEDS=20 RUNS=20` is a night's work.
SEEDS ?= 2
RUNS ?= 5
JOBS ?= 4
# Runs with kills that may fail once and pass when they are made again: docs/decisions/0034.
UNSTEADY ?= 6

# Where cargo builds; the documents and the kit expect target/.
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Seconds in which `make chaos` begins rounds, and its first seed.
CHAOS_SECONDS ?= 300
CHAOS_SEED ?= 1

# Where `make install` puts things.
PREFIX ?= /usr/local

export PREFIX DESTDIR CARGO SEEDS RUNS JOBS TARGET UNSTEADY FOREIGN_SECONDS PARTS ONLY SETUP ROOTS LONG_SECONDS

# What of the foreign battery is run (tests/foreign/run.sh says what there is), and seconds that one program may take.
PARTS ?= programs
FOREIGN_SECONDS ?= 60

.PHONY: help setup build test chaos foreign check fix ledger bench bench-quick demo docs install uninstall tarball deb clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

setup: ## install the Debian packages that the build and the tests use, if missing (as root)
	@scripts/setup.sh

build: ## target/release/understudy, and libunderstudy.so beside it
	$(CARGO) build --release --workspace

test: setup build ## everything: crates, models, guests and servers, natively, protected and killed
	@scripts/test.sh

chaos: setup build ## seeded faults of every kind against servers under load; CHAOS_SECONDS=300, CHAOS_SEED=1
	@$(TARGET)/release/chaos --seconds $(CHAOS_SECONDS) --seed $(CHAOS_SEED)

foreign: build ## three hundred programs of Debian, natively and under run; ONLY=git, PARTS="suites units long", SETUP=1 installs them
	@tests/foreign/run.sh

check: ## formatting, lints, tidiness, documents; never writes
	@scripts/check.sh

fix: ## what check asks for and a tool can do
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --exclude us-runtime --all-targets --fix --allow-dirty --allow-staged
	$(CARGO) clippy -p us-runtime --fix --allow-dirty --allow-staged
	@scripts/docs.sh

docs: ## regenerate the documents that are derived from code, and build the book: target/book/index.html
	@scripts/docs.sh
	@scripts/book.sh

ledger: build ## instructions and stores of doors against bench/ledger.txt; WRITE=1 writes it
	@$(TARGET)/release/ledger --understudy $(TARGET)/release/understudy --target $(TARGET)/ledger $(if $(WRITE),--write)

bench: build ## what Understudy costs, an hour; needs python3 and an idle machine with two cores; ONLY="redis wget"
	@bench/run $(ONLY)

bench-quick: build ## README's table in three minutes, with its spread: target/bench-quick/ratios.md and ratios.csv
	@bench/run --quick

demo: setup build ## kill redis under a counting client, and see the count go on
	@scripts/demo.sh

install: ## what was built, into PREFIX=/usr/local (DESTDIR=folder in front of it)
	@scripts/install.sh install

uninstall: ## the same, away
	@scripts/install.sh uninstall

tarball: build ## target/package/understudy-VERSION-linux-x86_64.tar.gz, to be unpacked anywhere
	@scripts/package.sh tarball

deb: build ## target/package/understudy_VERSION_amd64.deb
	@scripts/package.sh deb

clean: ## everything that was built
	$(CARGO) clean
