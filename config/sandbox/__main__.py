"""`python -m config.sandbox`: enter it, and print what holds as JSON. `trunkline check` runs it in a process of its
own, because nobody comes out again."""

from __future__ import annotations

import json
from dataclasses import asdict

from config.sandbox import enter

if __name__ == "__main__":
    print(json.dumps(asdict(enter())))
