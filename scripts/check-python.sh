#!/bin/sh
# Fails with a message if $PYTHON (default python3) cannot run or build Trunkline.
set -eu
cd "$(dirname "$0")"
. ./progress.sh
python=${PYTHON:-python3}
remedy="install Python 3.11 or newer with its headers and venv module, or name one: make PYTHON=/path/to/python3"

command -v "$python" >/dev/null || fail "there is no $python" "$remedy"
"$python" - <<'CHECK' || fail "$(command -v "$python") cannot be used" "$remedy"
import importlib.util, pathlib, sys, sysconfig
problems = []
if sys.version_info < (3, 11):
    problems.append("it is Python %d.%d" % sys.version_info[:2])
if importlib.util.find_spec("ensurepip") is None:
    problems.append("its venv module is not complete (ensurepip is missing)")
if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
    problems.append("its headers are missing")
for problem in problems:
    print(problem, file=sys.stderr)
sys.exit(bool(problems))
CHECK
