"""The report of a replay: the turns with each of the settings side by side, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from media.turn_taking.settings import TurnSettings
from trunkline.replay.settings import api_values
from trunkline.replay.turn_comparison import ReplayedTurn, ReplayOutcome, side_by_side

FOOTNOTE: Final = (
    "Times are from the beginning of the recording. The agent's audio is replayed as it was recorded, so its answers\n"
    "do not move with the settings; models take no time. ! marks a turn that was ended too early: the caller went on\n"
    "within 1.5 s, and no answer, or no more than half a second of one, had been heard."
)
_COLUMN_HEAD: Final = "   start     end   wait  why         gap"
_COLUMN_WIDTH: Final = len(_COLUMN_HEAD) + 2
_NONE: Final = "-"


@dataclass(frozen=True)
class Column:
    """The turns of the call or of a replay. `settings`: the replay's; None for the call, whose settings are not
    stored."""

    title: str
    outcome: ReplayOutcome
    settings: TurnSettings | None = None


@dataclass(frozen=True)
class Report:
    """A replayed call. `seconds` and `rate` (Hz) are the recording's, `jitter_ms` is the largest computed depth of the
    jitter buffer."""

    call_id: str | None
    seconds: float
    rate: int
    jitter_ms: int
    columns: Sequence[Column]
    notes: Sequence[str] = ()


def as_text(report: Report) -> str:
    """Two tables: a row for each turn, and a row for each count or statistic."""
    name = "recording" if report.call_id is None else f"call {report.call_id}"
    titles = [column.title for column in report.columns]
    rows = side_by_side([column.outcome.turns for column in report.columns])
    lines = [
        f"{name}: {report.seconds:.1f} s at {report.rate} Hz, jitter buffer up to {report.jitter_ms} ms",
        "",
        _line("", titles),
        _line("turn", [_COLUMN_HEAD] * len(titles)),
        *(_line(f"{number:4}", [_cell(turn) for turn in row]) for number, row in enumerate(rows, 1)),
        "",
        _line("", titles, label=22),
        *(_line(label, [_number(value(column.outcome)) for column in report.columns], label=22)
          for label, value in _STATISTICS.items()),
        *_drops(report.columns),
        "",
        *(f"note: {note}" for note in report.notes),
        FOOTNOTE,
    ]  # fmt: skip
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """A JSON object. Times are whole ms from the beginning of the recording, settings have the API's names."""
    fields = {
        "callId": report.call_id,
        "seconds": round(report.seconds, 2),
        "rate": report.rate,
        "jitterMs": report.jitter_ms,
        "notes": list(report.notes),
        "timelines": [_column_json(column) for column in report.columns],
    }
    return json.dumps(fields, indent=2)


def _line(head: str, cells: Sequence[str], label: int = 4) -> str:
    return f"{head:{label}}  {''.join(f'{cell:{_COLUMN_WIDTH}}' for cell in cells)}".rstrip()


def _cell(turn: ReplayedTurn | None) -> str:
    if turn is None:
        return f"{_NONE:>8}"
    gap = _NONE if turn.gap_ms is None else f"{turn.gap_ms:.0f}"
    mark = "!" if turn.ended_early else " "
    start, end = turn.start_ms / 1000, turn.end_ms / 1000
    return f"{start:8.2f}{end:8.2f}{turn.wait_ms:7.0f}  {turn.ended_by:8}{mark}{gap:>6}"


def _median(outcome: ReplayOutcome) -> float | None:
    return outcome.wait_ms(50)


def _p95(outcome: ReplayOutcome) -> float | None:
    return outcome.wait_ms(95)


_STATISTICS: Final[Mapping[str, Callable[[ReplayOutcome], float | None]]] = {
    "turns": lambda outcome: len(outcome.turns),
    "ended too early": lambda outcome: outcome.early_ends,
    "wait, median ms": _median,
    "wait, 95 % ms": _p95,
    "agent paused": lambda outcome: outcome.pauses,
    "agent went on": lambda outcome: outcome.resumes,
    "agent interrupted": lambda outcome: outcome.interruptions,
}


def _number(value: float | None) -> str:
    return f"{_NONE if value is None else f'{value:.0f}':>8}"


def _drops(columns: Sequence[Column]) -> list[str]:
    """A row for each reason for which speech was not a turn."""
    reasons = sorted({reason for column in columns for reason in column.outcome.dropped or ()})
    return [
        _line(
            f"dropped: {reason}",
            [_number(None if (dropped := column.outcome.dropped) is None else dropped.get(reason, 0))
             for column in columns],
            label=22,
        )
        for reason in reasons
    ]  # fmt: skip


def _column_json(column: Column) -> dict[str, Any]:
    outcome = column.outcome
    return {
        "title": column.title,
        "settings": None if column.settings is None else api_values(column.settings),
        "turns": [_turn_json(turn) for turn in outcome.turns],
        "endedTooEarly": outcome.early_ends,
        "waitMs": {"median": _rounded(_median(outcome)), "p95": _rounded(_p95(outcome))},
        "pauses": outcome.pauses,
        "resumes": outcome.resumes,
        "interruptions": outcome.interruptions,
        "dropped": outcome.dropped,
    }


def _turn_json(turn: ReplayedTurn) -> dict[str, Any]:
    return {
        "speechStartMs": _rounded(turn.start_ms),
        "speechEndMs": _rounded(turn.end_ms),
        "turnEndMs": _rounded(turn.decided_ms),
        "endedBy": turn.ended_by,
        "eotProbability": None if turn.probability is None else round(turn.probability, 3),
        "waitMs": _rounded(turn.wait_ms),
        "answerMs": _rounded(turn.answer_ms),
        "responseGapMs": _rounded(turn.gap_ms),
        "endedTooEarly": turn.ended_early,
        "interruptsAgent": turn.interrupts,
    }


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
