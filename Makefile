# Everything that Trunkline's developers and users do. Variables:
#   PYTHON=/path/to/python3      the Python to use, 3.11 or newer (default: python3)
#   PJPROJECT=/path              a pjproject 2.17 tree or tarball to build (default: the one of scripts/pjproject.env)
#   PJPROJECT_URI=URI            where that tarball is, should the mirrors have moved on
#   DEBIAN_MIRROR=URI            where to get its source package (default: the machine's own mirror)
export PYTHON PJPROJECT PJPROJECT_URI DEBIAN_MIRROR
# Some containers set it; without compiled modules every start of a server compiles all of them, a second of computing.
unexport PYTHONDONTWRITEBYTECODE

bin := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 13

setup: ## everything that running needs: packages, PJSIP, Python environment, extension
	@scripts/apt-packages.sh build run
	@scripts/check-python.sh
	@scripts/build-pjsip.sh
	@scripts/build-llama.sh
	@scripts/venv.sh

setup-test: setup
	@scripts/apt-packages.sh test
	@scripts/venv.sh dev
	@[ "$$(id -u)" -ne 0 ] || scripts/asterisk.sh >/dev/null

run: setup ## start the server on ./data, phone it, show the call, keep serving
	@$(bin)/trunkline demo --keep-serving

demo: setup ## start the server, phone it, show the call, stop
	@$(bin)/trunkline demo

test: lint ## all checks and the whole test suite
	@$(bin)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: setup-test ## style, types and the order of imports
	@$(bin)/ruff check
	@$(bin)/ruff format --check
	@$(bin)/mypy
	@$(bin)/lint-imports

minilm: setup ## search documents by meaning, too: a sentence model for ./data
	@scripts/minilm.sh

bench: setup-test ## the benchmarks: tables here, JSON in bench/results
	@scripts/apt-packages.sh bench
	@scripts/venv.sh peer
	@$(bin)/python -m bench

bench-smoke: setup-test ## every bench once, as small as it can be, to see that all still run (a quarter of an hour)
	@scripts/apt-packages.sh bench
	@scripts/venv.sh peer
	@$(bin)/python -m bench.smoke

soak: setup ## 100 calls that come and go for an hour; afterwards everything must be as it was
	@$(bin)/python -m bench.server.soak

storm: setup ## 1,000 webhooks while the server is killed again and again; none may be lost, altered or early
	@$(bin)/python -m bench webhooks

sanitize: setup-test ## the SIP and RTP tests and 20,000 mutated messages under sanitizers (tens of minutes)
	@scripts/apt-packages.sh sanitize
	@scripts/sanitize.sh

fuzz: setup-test ## fuzz our parsers, 10 minutes each; FUZZ=name for one, FUZZ_SECONDS=60 for how long
	@scripts/apt-packages.sh sanitize
	@scripts/fuzz.sh $(FUZZ)

fresh: ## prove `make demo` on a fresh Debian 12 in a folder of its own (root only)
	@scripts/fresh.sh

lock: ## pin the newest versions of all dependencies
	@scripts/check-python.sh
	@scripts/lock.sh

sbom: setup ## what Trunkline consists of, with licences: build/sbom.cdx.json (CycloneDX)
	@scripts/supply.sh sbom

audit: ## known vulnerabilities of the locked packages; says so, and fails, where they could not be checked
	@scripts/supply.sh audit

clean: ## remove what was made in this checkout; the cache in ~/.cache/trunkline stays
	@rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info sipcore/_native*.so

.PHONY: help setup setup-test run demo test lint minilm bench bench-smoke soak storm sanitize fuzz fresh lock sbom audit clean
