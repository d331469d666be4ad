# shellcheck shell=sh disable=SC2034  # used by the scripts that source it
# Sourced first by the scripts that run the code under sanitizers: paths and options.

set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh
. scripts/sanitizers.sh
remedy="see ${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/logs/$(basename "$0" .sh).log"
python=$root/.venv/bin/python
# Undefined behaviour in Trunkline's own code ends the process at once.
address_options="$sanitizer_options -fno-sanitize-recover=undefined"
undefined_runtime_options=print_stacktrace=1:suppressions=$root/tests/sanitize/undefined.supp
