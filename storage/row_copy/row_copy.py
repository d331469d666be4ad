"""Copies all rows into an empty database, batch by batch, and goes on where a killed process stopped.

Until all rows are there and compared, the target has no revision that a server or a command accepts
(`migrations.COPYING`), and the fact `PROGRESS`, which each batch replaces in its own transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from config.errors import StartupError
from storage.database import migrations
from storage.row_copy.contents import Comparison, ReplacedNul, contents, without_nul
from storage.row_copy.copied_tables import Row, Step, copied_tables, steps
from storage.row_copy.opening import open_source, open_target
from storage.row_copy.side import PROGRESS, Side

MAX_ROWS: Final = 1000
"""Rows of a batch."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""A batch takes no further row once its texts and bytes are as long as this."""
MAX_NOTED: Final = 1000
"""Replaced texts that are listed; the others are counted only."""

OnProgress = Callable[[str, int, int], None]
"""Called after each batch with what is being done to which table, the number of rows done, and that of all."""


def _report_nothing(text: str, done: int, total: int) -> None:
    """The progress is not shown."""


@dataclass
class CopySummary:
    """A finished copy. `resumed`: a part of it was there from an interrupted one."""

    comparisons: list[Comparison] = field(default_factory=list)
    replaced: list[ReplacedNul] = field(default_factory=list)
    copied_rows: int = 0
    resumed: bool = False

    @property
    def differs(self) -> bool:
        """True if a table of the target has other rows than that of the source; then the target stays unusable."""
        return any(each.differs for each in self.comparisons)


def copy_database(source: sa.URL, target: sa.URL, on_progress: OnProgress = _report_nothing) -> CopySummary:
    """Copy all rows of `source`, on which no server runs, into `target`, which is empty or an interrupted copy of the
    same source; compare both, and make the target usable if they are equal. The source stays as it is. Blocks. Raises
    `StartupError`; the same call goes on afterwards."""
    if source == target:
        raise StartupError("the target is the source: name another database")
    with open_source(source) as from_side, open_target(target) as to_side:
        summary = CopySummary()
        after = _begin(from_side, to_side, summary)
        _copy_steps(from_side, to_side, summary, on_progress, after, _identity(from_side))
        with to_side.transaction():
            to_side.complete(copied_tables())
        summary.comparisons = compare(from_side, to_side, on_progress)
        if not summary.differs:
            with to_side.transaction():
                to_side.set_fact(PROGRESS, None)
                to_side.set_revision(migrations.HEAD)
        return summary


def copy_rows(source: Side, target: Side, on_progress: OnProgress = _report_nothing) -> CopySummary:
    """Copy all rows into an empty target, within the transaction that is open there. Raises `StartupError`."""
    summary = CopySummary()
    _copy_steps(source, target, summary, on_progress)
    target.complete(copied_tables())
    return summary


def replace_rows(source: Side, target: Side, on_progress: OnProgress = _report_nothing) -> CopySummary:
    """Replace all rows of `target` by those of `source` and compare both, in one transaction: either all of it takes
    effect, or nothing. Raises `StartupError`."""
    with target.transaction():
        target.empty(copied_tables())
        target.set_fact(PROGRESS, None)
        summary = copy_rows(source, target, on_progress)
        summary.comparisons = compare(source, target, on_progress)
        if (wrong := next((each.table for each in summary.comparisons if each.differs), None)) is not None:
            raise StartupError(f"{target.name}: the rows of {wrong} are not those of {source.name}")
        target.set_revision(migrations.HEAD)
    return summary


def is_empty(side: Side) -> bool:
    """True if no table has rows."""
    return next(_tables_with_rows(side), None) is None


def compare(source: Side, target: Side, on_progress: OnProgress = _report_nothing) -> list[Comparison]:
    """Returns number and hash of the rows of each table on both sides. U+0000 in a text counts as U+FFFD if one side
    cannot store it."""
    found: list[Comparison] = []
    total = 2 * sum(source.count(table) for table in copied_tables())
    done = 0
    for table in copied_tables():
        sides = []
        for side in (source, target):
            on_progress(f"comparing {table.name}", done, total)
            rows = side.rows(table)
            sides.append(contents(rows if target.takes_nul and source.takes_nul else without_nul(table, rows)))
            done += sides[-1].rows
        found.append(Comparison(table.name, *sides))
    return found


def _tables_with_rows(side: Side) -> Iterator[str]:
    return (table.name for table in copied_tables() if side.first_key(table) is not None)


def _begin(source: Side, target: Side, summary: CopySummary) -> tuple[str, Row | None] | None:
    """Mark the target as incomplete. Returns the step and the key after which an interrupted copy goes on. Raises
    `StartupError` if the target holds other rows."""
    identity = _identity(source)
    progress: dict[str, Any] = json.loads(target.fact(PROGRESS) or "{}")
    if progress:
        if progress["source"] != identity:
            raise StartupError(f"the database {target.name} is an incomplete copy of another one: take an empty one")
        summary.resumed = True
        after = progress.get("after")
        return None if after is None else (progress["step"], tuple(after))
    if (table := next(_tables_with_rows(target), None)) is not None:
        raise StartupError(f"the database {target.name} has rows in the table {table}: take an empty one")
    with target.transaction():
        target.set_fact(PROGRESS, json.dumps({"source": identity}))
        target.set_revision(migrations.COPYING)
    return None


def _identity(source: Side) -> list[Any]:
    """What no other installation's database has."""
    organizations = next(table for table in copied_tables() if table.name == "organizations")
    return [source.fact("secret_key_proof"), *(source.first_key(organizations) or ())]


def _copy_steps(
    source: Side,
    target: Side,
    summary: CopySummary,
    on_progress: OnProgress,
    after: tuple[str, Row | None] | None = None,
    identity: list[Any] | None = None,
) -> None:
    """Copy the rows of all steps, those behind `after`. The progress is stored with the identity, if there is one."""
    total = sum(source.count(table) for table in copied_tables())
    done = 0
    for step in _steps_from(None if after is None else after[0]):
        begin = after[1] if after is not None and after[0] == step.name else None
        on_progress(f"copying {step.name}", done, total)
        for batch in _batches(_rows_of(step, source, target, begin, summary)):
            with target.transaction():
                _insert(target, step, batch)
                if identity is not None:
                    progress = {"source": identity, "step": step.name, "after": step.table.key_of(batch[-1])}
                    target.set_fact(PROGRESS, json.dumps(progress))
            if not step.only_later:
                done += len(batch)
                summary.copied_rows += len(batch)
            on_progress(f"copying {step.name}", done, total)


def _steps_from(name: str | None) -> list[Step]:
    names = [step.name for step in steps()]
    return list(steps()[names.index(name) if name is not None else 0 :])


def _rows_of(step: Step, source: Side, target: Side, after: Row | None, summary: CopySummary) -> Iterator[Row]:
    rows: Iterator[Row] = source.rows(step.table, after)
    if not target.takes_nul and not step.only_later:
        rows = without_nul(step.table, rows, summary.replaced)
    if step.later is None:
        yield from rows
        return
    at = next(at for at, each in enumerate(step.table.columns) if each.name == step.later)
    for row in rows:
        if not step.only_later:
            yield (*row[:at], None, *row[at + 1 :])
        elif row[at] is not None:
            yield row


def _insert(target: Side, step: Step, batch: list[Row]) -> None:
    """Names the table and the rows in the driver's errors."""
    try:
        target.insert(step, batch)
    except Exception as error:
        first, last = step.table.key_of(batch[0]), step.table.key_of(batch[-1])
        error.add_note(f"table {step.table.name}, rows {first} to {last}")
        raise


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(batch) >= MAX_ROWS or size >= MAX_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
