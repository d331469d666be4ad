# The commands for developers and users of Trunkline. Variables:
#   PYTHON=/path/to/python3      Python 3.11 or newer (default: python3)
#   PJPROJECT=/path              pjproject 2.17 source tree or tarball to build (default: that of scripts/pjproject.env)
#   PJPROJECT_URI=URI            download address of that tarball, if the mirrors no longer have it
#   DEBIAN_MIRROR=URI            mirror of its source package (default: the machine's own mirror)
#   PREFIX, SYSCONFDIR, DESTDIR    of `make install` (scripts/install.sh)
export PREFIX SYSCONFDIR DESTDIR
export PYTHON PJPROJECT PJPROJECT_URI DEBIAN_MIRROR
# Some containers set it; without compiled modules every start of the server takes an additional second of CPU.
unexport PYTHONDONTWRITEBYTECODE

bin := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 17

setup: ## install what the server needs: packages, PJSIP, llama.cpp, Python environment, extension
	@scripts/apt-packages.sh build run
	@scripts/check-python.sh
	@scripts/build-pjsip.sh
	@scripts/build-llama.sh
	@scripts/venv.sh

setup-test: setup
	@scripts/apt-packages.sh test
	@scripts/venv.sh dev
	@[ "$$(id -u)" -ne 0 ] || scripts/asterisk.sh >/dev/null

run: setup ## start the server on ./data, place test calls, print their transcripts, keep serving
	@$(bin)/trunkline demo --keep-serving

demo: setup ## start the server, place test calls, print their transcripts, stop
	@$(bin)/trunkline demo

cluster: setup-test ## start three nodes with PostgreSQL and Kamailio, phone each, kill one, print what survived
	@$(bin)/python -m bench.nodes.cluster

test: lint ## all checks and the whole test suite
	@$(bin)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder

test-postgresql: setup-test ## run the tests of API, calls and commands with PostgreSQL in place of SQLite (tens of minutes)
	@TEST_DATABASE=postgresql $(bin)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder \
		tests/api tests/calls tests/contract tests/trunkline/cli

test-cluster: setup-test ## faults of three nodes in network namespaces: 60 calls, two minutes without database (root only, minutes)
	@CLUSTER_FAULTS=full $(bin)/python -m pytest tests/trunkline/nodes/test_cluster_faults.py

chaos: setup-test ## 200 random fault schedules on three nodes (root only, hours); CHAOS_SEEDS=20: as many; CHAOS_SEED=7: one
	@$(bin)/python -m bench.nodes.fault_schedules

web: setup-test ## build the dashboard: web/static from web/src
	@scripts/web.sh build

screenshots: setup-test ## take the pictures of the dashboard for its documentation: docs/images/dashboard
	@$(bin)/python -m tests.web.screenshots

boundaries: setup-test ## have schemathesis send 3,500 boundary values of parameters and fields to the API (minutes)
	@BOUNDARY_VALUES=1 $(bin)/python -m pytest tests/contract/test_schemathesis.py

lint: setup-test ## check style, types and the layers of imports
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check-types check-style

check-types:
	@scripts/check-types.sh

check-style:
	@$(bin)/ruff check
	@$(bin)/ruff format --check
	@$(bin)/lint-imports
	@scripts/web.sh check

minilm: setup ## install an embedding model in ./data for semantic document search
	@scripts/minilm.sh

bench: setup-test ## run the benchmarks: prints tables, writes JSON to bench/results
	@scripts/apt-packages.sh bench
	@scripts/venv.sh peer
	@$(bin)/python -m bench

bench-smoke: setup-test ## run every benchmark once with its smallest parameters, to prove that it works (minutes)
	@scripts/apt-packages.sh bench
	@scripts/venv.sh peer
	@$(bin)/python -m bench.smoke

soak: setup ## soak test: 100 concurrent callers for an hour; fails if the server leaks memory or other resources
	@$(bin)/python -m bench.server.soak

storm: setup ## fault injection: 1,000 webhooks while the server is killed repeatedly; none may be lost, altered or early
	@$(bin)/python -m bench webhooks

sanitize: setup-test ## run the SIP and RTP tests and 20,000 mutated messages under sanitizers (tens of minutes)
	@scripts/apt-packages.sh sanitize
	@scripts/sanitize.sh

fuzz: setup-test ## fuzz all parsers, 10 minutes each; FUZZ=name: only this one; FUZZ_SECONDS=60: seconds for each
	@scripts/apt-packages.sh sanitize
	@scripts/fuzz.sh $(FUZZ)

install: ## install as a service, after `make setup` (root only); PREFIX=/usr/local, DESTDIR=, SYSCONFDIR=/etc
	@[ -e .venv/.stamp-project ] || { echo "error: nothing is built yet"; echo "  what to do: make setup"; exit 1; } >&2
	@scripts/apt-packages.sh install run
	@scripts/install.sh

uninstall: ## remove the service; keeps its data and settings (root only)
	@scripts/install.sh uninstall

deb: ## build a Debian package for this release of Debian: build/trunkline_VERSION_ARCHITECTURE.deb
	@scripts/deb.sh check
	@LLAMA_PROCESSORS=$${LLAMA_PROCESSORS-all} $(MAKE) --no-print-directory setup
	@scripts/venv.sh cluster
	@scripts/apt-packages.sh deb
	@scripts/deb.sh

fresh-deb: ## build the packages in fresh Debian 12 and 13, install them in others, call the service (root only)
	@scripts/fresh-deb.sh

fresh: ## run `make demo` on a fresh Debian 12 in a chroot (root only)
	@scripts/fresh.sh

lock: ## pin the newest versions of all dependencies
	@scripts/check-python.sh
	@scripts/lock.sh
	@scripts/web.sh lock

sbom: setup ## write the software bill of materials with licences: build/sbom.cdx.json (CycloneDX)
	@scripts/venv.sh cluster
	@scripts/supply.sh sbom

audit: ## check the locked packages for known vulnerabilities; fails also if no database was reached
	@scripts/supply.sh audit

clean: ## remove everything built in this checkout; keeps the cache in ~/.cache/trunkline
	@rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info sipcore/_native*.so

.PHONY: help setup setup-test run demo cluster test test-postgresql test-cluster chaos web screenshots boundaries lint minilm bench bench-smoke soak storm sanitize fuzz install uninstall deb fresh-deb fresh lock sbom audit clean
