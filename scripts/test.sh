#!/bin/sh
# Runs the whole test suite, in two parts at once. Tests that hold calls, run models or drive a browser mostly wait, but
# fail if they get no processor in time: all others run beside them with a lower priority, on what they leave.
set -eu
cd "$(dirname "$0")/.."
in_real_time="tests/calls tests/models tests/sipcore tests/trunkline tests/web"
others="" log=build/other-tests.log
for folder in $in_real_time; do others="$others --ignore=$folder"; done

mkdir -p build
# shellcheck disable=SC2086  # one option, or one path, for each folder
nice -n 5 .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $others >"$log" 2>&1 &
running=$!
trap 'kill "$running" 2>/dev/null; exit 130' INT TERM
status=0
# shellcheck disable=SC2086
.venv/bin/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder $in_real_time || status=$?
echo "All other tests, which run beside them (so far in $log):"
wait "$running" || status=$?
cat "$log"
exit "$status"
