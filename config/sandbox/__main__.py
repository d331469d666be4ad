"""`python -m config.sandbox`: enters the sandbox and prints its report as JSON. `trunkline check` runs it in a separate
process, because a process cannot leave the sandbox."""

from __future__ import annotations

import json
from dataclasses import asdict

from config.sandbox import enter

if __name__ == "__main__":
    print(json.dumps(asdict(enter())))
