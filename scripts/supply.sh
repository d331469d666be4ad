#!/bin/sh
# sbom: writes the software bill of materials (build/sbom.cdx.json, CycloneDX 1.6). audit: checks for known vulnerabilities
# (exit status 0: none, 1: some, 3: not checked because no database was reached). Their tools have an environment of their own.
# usage: supply.sh sbom | audit
set -eu
cd "$(dirname "$0")/.."
. scripts/progress.sh
venv=build/supply
remedy="check that pip reaches its package index, then run the same command again"
content=$(sha256sum <requirements-supply.lock)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$content" ]; then
    start_log supply
    "${PYTHON:-python3}" -m venv --clear "$venv"
    watched "installing the SBOM and audit tools" '^Collecting' "$(grep -c == requirements-supply.lock)" "$venv/bin/pip" install \
        --no-input --disable-pip-version-check --no-deps --require-hashes -r requirements-supply.lock
    echo "$content" >"$venv/.stamp"
fi
case $1 in
    sbom)
        [ -x .venv/bin/python ] || fail "there is no environment to describe" "make setup"
        found=build/sbom-environment.json
        "$venv/bin/cyclonedx-py" environment --output-reproducible --spec-version 1.6 -o "$found" .venv/bin/python
        "$venv/bin/python" scripts/sbom.py "$found" build/sbom.cdx.json
        "$venv/bin/python" -c '
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open("build/sbom.cdx.json").read())
sys.exit(f"error: the document is not valid: {problem}" if problem else 0)'
        rm -f "$found"
        ;;
    audit) "$venv/bin/python" scripts/audit.py "$venv/bin/pip-audit" requirements.lock \
        requirements-cluster.lock requirements-llama.lock ;;
    *) fail "unknown: $1" "supply.sh sbom | audit" ;;
esac
