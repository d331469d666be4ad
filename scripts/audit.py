"""Checks the locked packages for known vulnerabilities: `audit.py PIP-AUDIT LOCK...`, where PIP-AUDIT is the program
pip-audit.

Exit status: 0 no known vulnerability, 1 at least one, 3 not checked, because no database was reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

CLEAN, VULNERABLE, NOT_CHECKED = 0, 1, 3
TIMEOUT_S: Final = "15"


def audit(program: str, lock: str) -> int:
    """Checks one lock and prints the result. Returns `CLEAN`, `VULNERABLE` or `NOT_CHECKED`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [program, "--requirement", lock, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        command += ["--timeout", TIMEOUT_S, "--format", "json", "--output", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not report.exists() or not report.read_text().strip():
            cause = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            print(f"{lock}: NOT CHECKED: no database of vulnerabilities was reached ({cause[:300]})")
            return NOT_CHECKED
        packages = json.loads(report.read_text())["dependencies"]
    assert packages, f"{lock} holds no package"
    skipped = [each for each in packages if "skip_reason" in each]
    found = [(each, one) for each in packages for one in each.get("vulns", ())]
    for package, one in found:
        fixed = ", ".join(one["fix_versions"]) or "none yet"
        print(f"{lock}: {package['name']} {package['version']}: {one['id']}, fixed in {fixed}")
    if len(skipped) == len(packages):
        print(f"{lock}: NOT CHECKED: the database knows none of these packages ({skipped[0]['skip_reason']})")
        return NOT_CHECKED
    for each in skipped:
        print(f"{lock}: {each['name']}: NOT CHECKED: {each['skip_reason']}")
    if found:
        return VULNERABLE
    if skipped:
        return NOT_CHECKED
    print(f"{lock}: {len(packages)} packages, no known vulnerability")
    return CLEAN


def main(program: str, *locks: str) -> int:
    """Returns the exit status: that of a vulnerability takes precedence over that of a lock that was not checked."""
    statuses = {audit(program, lock) for lock in locks}
    return VULNERABLE if VULNERABLE in statuses else NOT_CHECKED if NOT_CHECKED in statuses else CLEAN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
