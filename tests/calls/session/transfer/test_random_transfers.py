"""Transfers in which several events come at nearly the same time, in random order: invariants instead of exact ends. A
failure names its seed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.calls.session.transfer.transfer_stages import EVENTS, Stage, Way, method_of, reach
from tests.calls.session.transfer.virtual_transfers import VirtualTransfer, virtual_transfer
from tests.virtual_time import run_virtually

RUNS: Final = 96
BLOCK: Final = 24
SETTLES_S: Final = 40.0
"""What follows from the events is done then: the retries of a database that failed, seconds."""
STAGES: Final[dict[Way, tuple[Stage, ...]]] = {
    "refer": ("initiated", "refer_sent", "refer_accepted"),
    "cold": ("initiated", "ringing", "early_media", "screening", "connected"),
    "briefing": ("ringing", "screening", "briefing", "deciding", "connected"),
    "announce": ("ringing", "screening", "briefing", "connected"),
    "attended": ("screening", "deciding", "refer_sent", "refer_accepted", "connected"),
}
OF_CALLER: Final = (
    "caller hangs up", "caller hangs up", "caller vanishes", "caller says never mind", "server stops",
    "caller's audio fails", "caller holds",
)  # fmt: skip
OF_TARGET: Final = ("target hangs up", "target vanishes", "target holds", "target presses 2")
OF_ANSWER: Final = (
    "person answers", "person answers", "voicemail answers", "menu answers", "fax answers", "busy tone answers",
    "number is not in service", "recognizer fails",
)  # fmt: skip
OF_REFER: Final = ("NOTIFY 200", "NOTIFY 486", "NOTIFY 481")


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Nothing: the database runs on the thread of the event loop."""


def _press_1(run: VirtualTransfer) -> None:
    run.target.driver.on_digit("1", "rfc4733")


async def _act(run: VirtualTransfer, chance: Random) -> None:
    """One event that is possible now."""
    names = list(OF_CALLER) if run.is_talking and run.is_live else []
    if run.dialled and not run.target.leg.ended.done():
        answered = run.target.leg.answered.done()
        names += OF_TARGET if answered else ("target responds 486", "target responds 0")
        names += ("answer", "press 1") if run.is_live else ()
        names += OF_ANSWER if answered and run.is_live else ()
    if run.phone.dialog.refers:
        names += OF_REFER
    if not names:
        return
    match name := chance.choice(names):
        case "answer":
            run.target.answers()
        case "press 1":
            _press_1(run)
        case _:
            await EVENTS[name](run)


async def _pause(chance: Random) -> None:
    """Nothing, some turns of the event loop, or some time."""
    for _ in range(chance.choice([0, 0, 1, 2, 3, 5, 8, 13])):
        await asyncio.sleep(0)
    await asyncio.sleep(chance.choice([0, 0, 0, 0.001, 0.02, 0.3]))


async def _live(folder: Path, seed: int) -> None:
    chance = Random(seed)
    way = chance.choice(list(STAGES))
    async with virtual_transfer(folder, method=method_of(way)) as run:
        latency = chance.choice([0.0, 0.005, 0.05])
        run.database.latency_s = lambda: chance.random() * latency
        await reach(run, way, chance.choice(STAGES[way]))
        for _ in range(chance.choice([2, 2, 3])):
            await _act(run, chance)
            await _pause(chance)
        await run.passes(SETTLES_S)
        if run.is_talking:
            run.phone.hangs_up()
        await run.end_of_caller()
        assert run.byes(run.phone.dialog) <= 1
        assert all(run.byes(each.dialog) <= 1 for each in run.harness.callees.dialled)
        run.assert_nothing_is_left()
        stored = run.stored()
        assert (stored.transfer.status == "completed") >= (stored.parent.ended_reason == "transferred")


@pytest.mark.parametrize("first", range(0, RUNS, BLOCK))
def test_random_events_of_transfers_keep_all_invariants(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + BLOCK):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            run_virtually(_live(folder, seed))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
