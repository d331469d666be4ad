"""A comparison of the call's settings with others as the API shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from api.schemas.call_replay import (
    CallReplay,
    ReplayDrop,
    ReplayDropReason,
    ReplayPercentiles,
    ReplayRow,
    ReplaySettings,
    ReplaySettingsOfBoth,
    ReplayTotals,
    ReplayTotalsOfAll,
    ReplayTurn,
    SettingsSource,
)
from media.turn_taking.events import TurnDropReason
from media.turn_taking.settings import TurnSettings
from trunkline.replay.comparison import Comparison
from trunkline.replay.turn_comparison import NO_WORDS, ReplayedTurn, ReplayOutcome, percentile_ms, side_by_side

_REASONS: Final[Mapping[str, ReplayDropReason]] = {
    **{reason: reason for reason in TurnDropReason.__args__},  # type: ignore[attr-defined]
    NO_WORDS: "unrecognized",
}
_Row = tuple[ReplayedTurn | None, ReplayedTurn | None, ReplayedTurn | None]


def call_replay(
    found: Comparison,
    before: TurnSettings,
    after: TurnSettings,
    *,
    call_id: str,
    duration_ms: int,
    settings_from: SettingsSource,
) -> CallReplay:
    """Returns the view of a comparison whose two outcomes are those with the settings `before` and `after`."""
    outcomes = (found.stored, *found.outcomes)
    rows: list[_Row] = [(call, was, now) for call, was, now in side_by_side([each.turns for each in outcomes])]
    gaps_after = [_expected_gap(was, now) for _, was, now in rows]
    call, was, now = outcomes
    return CallReplay(
        call_id=call_id,
        duration_ms=duration_ms,
        settings_from=settings_from,
        settings=ReplaySettingsOfBoth(
            before=ReplaySettings.model_validate(before), after=ReplaySettings.model_validate(after)
        ),
        turns=[_row(row, gap_ms) for row, gap_ms in zip(rows, gaps_after, strict=True)],
        totals=ReplayTotalsOfAll(
            call=_totals(call, _gaps(call)), before=_totals(was, _gaps(was)), after=_totals(now, gaps_after)
        ),
    )


def _expected_gap(was: ReplayedTurn | None, now: ReplayedTurn | None) -> float | None:
    """The recorded gap, changed by as much as the wait for the end of the turn."""
    if was is None or now is None or was.gap_ms is None:
        return None
    return max(was.gap_ms + now.wait_ms - was.wait_ms, now.wait_ms)


def _gaps(outcome: ReplayOutcome) -> list[float | None]:
    return [turn.gap_ms for turn in outcome.turns]


def _row(row: _Row, gap_after_ms: float | None) -> ReplayRow:
    call, was, now = row
    moved = None if was is None or now is None else round(now.decided_ms) - round(was.decided_ms)
    return ReplayRow(
        call=None if call is None else _turn(call, call.gap_ms),
        before=None if was is None else _turn(was, was.gap_ms),
        after=None if now is None else _turn(now, gap_after_ms),
        turn_end_moved_ms=moved,
    )


def _turn(turn: ReplayedTurn, gap_ms: float | None) -> ReplayTurn:
    return ReplayTurn.model_validate(
        {
            "speech_start_ms": round(turn.start_ms),
            "speech_end_ms": round(turn.end_ms),
            "turn_end_ms": round(turn.decided_ms),
            "wait_ms": round(turn.wait_ms),
            "ended_by": turn.ended_by,
            "eot_probability": None if turn.probability is None else round(turn.probability, 3),
            "response_gap_ms": None if gap_ms is None else round(gap_ms),
            "interrupts_agent": turn.interrupts,
            "ended_too_early": turn.ended_early,
        }
    )


def _totals(outcome: ReplayOutcome, gaps_ms: Sequence[float | None]) -> ReplayTotals:
    dropped = outcome.dropped
    return ReplayTotals(
        turns=len(outcome.turns),
        wait_ms=_percentiles([turn.wait_ms for turn in outcome.turns]),
        response_gap_ms=_percentiles([gap for gap in gaps_ms if gap is not None]),
        interruptions=outcome.interruptions,
        ended_too_early=outcome.early_ends,
        pauses=outcome.pauses,
        resumes=outcome.resumes,
        dropped=None
        if dropped is None
        else [ReplayDrop(reason=_REASONS[reason], count=count) for reason, count in sorted(dropped.items())],
    )


def _percentiles(values: Sequence[float]) -> ReplayPercentiles:
    median, p95 = percentile_ms(values, 50), percentile_ms(values, 95)
    return ReplayPercentiles(median=None if median is None else round(median), p95=None if p95 is None else round(p95))
