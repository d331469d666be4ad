"""The tables of the benchmark, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import Final

import numpy as np

from bench.answer_detection.runner import Outcome
from calls.answer_detection.events import AnswerKind
from calls.session.answer.answer_listener import MACHINES

GOAL_S: Final = 2.0
"""A person who says "hello" gets a verdict within this time, seconds."""


def upper_bound(failures: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided upper confidence bound of a proportion (C. J. Clopper, E. S. Pearson, Biometrika 26, 1934)."""
    if failures >= n:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        at_most = sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(failures + 1))
        low, high = (p, high) if at_most > 1 - confidence else (low, p)
    return high


def headline(outcomes: Sequence[Outcome]) -> str:
    """Humans taken for machines."""
    people = [outcome for outcome in outcomes if outcome.call.is_human]
    wrong = sum(outcome.machine_verdict() is not None for outcome in people)
    bound = 100 * upper_bound(wrong, len(people))
    return f"humans taken for machines: {wrong}/{len(people)}, at most {bound:.1f} % with 95 % confidence"


def confusion(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Rows are what answered last, columns the last verdicts; times from the first sound to the first right verdict."""
    kinds = [kind for kind in AnswerKind if any(outcome.call.expected[-1] is kind for outcome in outcomes)]
    columns = [kind for kind in AnswerKind if kind in kinds or any(outcome.kind is kind for outcome in outcomes)]
    yield "| " + " | ".join(["what answered", "n", *columns, "right, %", "p50, s", "p95, s"]) + " |"
    yield "|" + " --- |" * (len(columns) + 5)
    for kind in kinds:
        row = [outcome for outcome in outcomes if outcome.call.expected[-1] is kind]
        counts = [sum(outcome.kind is column for outcome in row) or "" for column in columns]
        right = 100 * sum(outcome.kind is kind for outcome in row) / len(row)
        yield "| " + " | ".join(map(str, [kind, len(row), *counts, round(right), *_times(row)])) + " |"


def first_confusion(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Rows are what answered first, columns the first verdicts."""
    kinds = [kind for kind in AnswerKind if any(outcome.call.expected[0] is kind for outcome in outcomes)]
    given = [outcome.verdicts[0].kind for outcome in outcomes if outcome.verdicts]
    columns = [kind for kind in AnswerKind if kind in kinds or kind in given]
    yield "| " + " | ".join(["what answered first", "n", *columns, "right, %"]) + " |"
    yield "|" + " --- |" * (len(columns) + 3)
    for kind in kinds:
        row = [outcome for outcome in outcomes if outcome.call.expected[0] is kind]
        first = [outcome.verdicts[0].kind for outcome in row if outcome.verdicts]
        counts = [first.count(column) or "" for column in columns]
        yield "| " + " | ".join(map(str, [kind, len(row), *counts, round(100 * first.count(kind) / len(row))])) + " |"


def _times(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    times = [at_ms / 1000 for outcome in outcomes if (at_ms := outcome.decided_ms()) is not None]
    if not times:
        return "", ""
    p50, p95 = np.percentile(times, [50, 95])
    return f"{p50:.1f}", f"{p95:.1f}"


def connected(outcomes: Sequence[Outcome]) -> str:
    """Machines whose first verdict is a person: a cold transfer connects its caller with them."""
    machines = [outcome for outcome in outcomes if outcome.call.expected[0] in MACHINES]
    wrong = sum(outcome.verdicts[0].kind is AnswerKind.HUMAN for outcome in machines)
    return f"voicemails, announcements and faxes that are a person first: {wrong} of {len(machines)}"


def messages(outcomes: Sequence[Outcome]) -> str:
    """When messages would have started, among calls that a voicemail answered."""
    calls = [outcome for outcome in outcomes if outcome.call.expected == (AnswerKind.VOICEMAIL,)]
    started = sum(outcome.message_ms is not None for outcome in calls)
    return f"a message was started in {started} of {len(calls)} calls that a voicemail answered"


def waiting(outcomes: Sequence[Outcome]) -> str:
    """How long people wait for the verdict after their first words, and from the beginning of a short answer."""
    people = [outcome for outcome in outcomes if outcome.call.is_human]
    waits = [wait_ms / 1000 for outcome in people if (wait_ms := outcome.wait_ms()) is not None]
    short = [
        at_ms / 1000
        for outcome in people
        if outcome.call.scenario == "short_answer" and (at_ms := outcome.decided_ms()) is not None
    ]
    in_time = sum(seconds <= GOAL_S for seconds in short)
    since = (
        f"from the beginning of a short answer {_percentiles(short)} s, {in_time} of {len(short)} within {GOAL_S:g} s"
    )
    return f"wait after the end of a person's speech {_percentiles(waits)} s, {since}"


def _percentiles(values: Sequence[float]) -> str:
    """p50, p95 and maximum."""
    return " / ".join(f"{value:.1f}" for value in np.percentile(values, [50, 95, 100])) if values else "-"


def wrong(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One line for each call whose verdicts are not those expected."""
    for outcome in outcomes:
        kinds = tuple(verdict.kind for verdict in outcome.verdicts)
        if kinds != outcome.call.expected:
            call = outcome.call
            steps = ", ".join(
                f"{verdict.kind} at {verdict.at_ms:.0f} ({verdict.evidence.rule}: {verdict.evidence.detail})"
                for verdict in outcome.verdicts
            )
            texts = "; ".join(outcome.texts)
            made = f"{call.number} {call.scenario} {call.language} {call.voice} {call.condition}"
            yield f"{made}: {steps}; heard: {texts}"
