"""The order in which the processes of a test run import the test modules.

pytest rewrites the assertions of a module at its first import, and stores the result beside the module. In a new
checkout, processes that import the modules in the same order would all rewrite each of them at the same time, which
takes longer than the rest of the collection.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent


def import_test_modules(config: pytest.Config) -> None:
    """In one of several processes that run all tests: import their modules, beginning with this process's share."""
    process: dict[str, str | int] | None = getattr(config, "workerinput", None)
    if process is None or [Path(argument).resolve() for argument in config.args] != [TESTS]:
        return
    files = sorted(TESTS.rglob("test_*.py"))
    begin = len(files) * int(str(process["workerid"]).removeprefix("gw")) // int(process["workercount"])
    for file in files[begin:] + files[:begin]:
        with suppress(Exception, pytest.skip.Exception):  # which the collection reports
            import_module(".".join(file.relative_to(TESTS.parent).with_suffix("").parts))
