"""Every end at every stage of a transfer, by a table: who hangs up or vanishes when, what is stored then, and which
legs got a BYE or CANCEL. The expected values are those of the API's rules, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.calls.session.transfer.transfer_stages import EVENTS, Stage, Way, max_call_s, method_of, reach
from tests.calls.session.transfer.virtual_transfers import VirtualTransfer, virtual_transfer
from tests.virtual_time import run_virtually

PARTNER_S: Final = 1.0
"""No leg outlives its partner by more, seconds. (The service promises 5 s.)"""
BACK: Final = "back with the agent"


@dataclass(frozen=True)
class Row:
    """One row of the table. `parent`: the ended reason of the caller's call, or `BACK`: the caller is with the agent,
    or still connected, and hangs up at last. `child`: status and ended reason of the target's call; "" without one.
    `caller_byes`, `target_byes`: BYEs and CANCELs sent to each."""

    ways: Sequence[Way]
    stages: Sequence[Stage]
    event: str
    parent: str
    transfer: str
    child: str
    caller_byes: int
    target_byes: int
    sip_status: int | None = None


CHILD: Final[Sequence[Way]] = ("cold", "briefing", "announce", "attended")
BRIEFED: Final[Sequence[Way]] = ("briefing", "announce", "attended")
ASKED: Final[Sequence[Way]] = ("briefing", "attended")
BEFORE: Final[Sequence[Way]] = ("refer", "cold")
"""Before the child call is briefed, the modes with one differ in nothing."""
CALLED: Final[Sequence[Way]] = ("cold", "briefing")
TWO: Final[Sequence[Way]] = ("cold", "attended")
"""Connected without a briefing, and after one and a REFER that was refused."""
INITIATED: Final[Sequence[Stage]] = ("initiated",)
HOLD_MESSAGE: Final[Sequence[Stage]] = ("hold_message",)
SCREENING: Final[Sequence[Stage]] = ("screening",)
RINGING: Final[Sequence[Stage]] = ("ringing", "early_media")
WAITING: Final[Sequence[Stage]] = ("menu", "queue")
BRIEFING: Final[Sequence[Stage]] = ("briefing", "deciding")
CONNECTED: Final[Sequence[Stage]] = ("connected",)
HELD: Final[Sequence[Stage]] = ("held_by_caller", "held_by_target")
PENDING: Final[Sequence[Stage]] = ("refer_sent", "refer_accepted")

TABLE: Final = [
    # The transfer is accepted, and the agent still speaks.
    Row(BEFORE, INITIATED, "caller hangs up", "customer_ended", "cancelled", "", 0, 0),
    Row(BEFORE, INITIATED, "API ends the caller's call", "api_hangup", "cancelled", "", 1, 0),
    Row(BEFORE, INITIATED, "server stops", "server_shutdown", "cancelled", "", 1, 0),
    Row(BEFORE, INITIATED, "caller's audio fails", "error", "cancelled", "", 1, 0),
    Row(BEFORE, HOLD_MESSAGE, "caller hangs up", "customer_ended", "cancelled", "", 0, 0),
    Row(BEFORE, HOLD_MESSAGE, "API ends the caller's call", "api_hangup", "cancelled", "", 1, 0),
    Row(["cold"], HOLD_MESSAGE, "server stops", "server_shutdown", "cancelled", "", 1, 0),
    Row(["refer"], INITIATED, "caller vanishes, no final NOTIFY comes", "media_timeout", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(["cold"], INITIATED, "caller vanishes", "media_timeout", "cancelled", "no_answer agent_ended", 1, 1),
    Row(["cold"], INITIATED, "maximum duration passes", "max_duration", "cancelled", "no_answer agent_ended", 1, 1),
    Row(["refer"], INITIATED, "maximum duration passes", "max_duration", "cancelled", "", 1, 0),
    Row(CALLED, INITIATED, "database fails", BACK, "failed", "", 0, 0),
    Row(CALLED, ["dialling"], "caller hangs up, INVITE being sent", "customer_ended", "cancelled",
        "no_answer agent_ended", 0, 1),
    Row(CALLED, ["dialling"], "API ends the target's call, INVITE being sent", BACK, "cancelled",
        "no_answer api_hangup", 0, 1),
    Row(["cold"], ["dialling"], "API ends the caller's call, INVITE being sent", "api_hangup", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(["cold"], ["dialling"], "server stops, INVITE being sent", "server_shutdown", "cancelled",
        "failed server_shutdown", 1, 1),
    Row(["cold"], ["dialling"], "caller says never mind, INVITE being sent", BACK, "cancelled",
        "no_answer agent_ended", 0, 1),
    Row(["cold"], ["dialling"], "caller's audio fails, INVITE being sent", "error", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(["cold"], ["dialling"], "caller vanishes, INVITE being sent", "media_timeout", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(["cold"], ["dialling"], "maximum duration passes, INVITE being sent", "max_duration", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(CALLED, ["pacing"], "caller hangs up", "customer_ended", "cancelled", "no_answer agent_ended", 0, 0),
    Row(["cold"], ["pacing"], "caller vanishes", "media_timeout", "cancelled", "no_answer agent_ended", 1, 0),
    Row(CALLED, ["pacing"], "caller says never mind", BACK, "cancelled", "no_answer agent_ended", 0, 0),
    Row(CALLED, ["pacing"], "caller's audio fails", "error", "cancelled", "no_answer agent_ended", 1, 0),
    Row(["cold"], ["pacing"], "maximum duration passes", "max_duration", "cancelled", "no_answer agent_ended", 1, 0),
    Row(CALLED, ["pacing"], "API ends the target's call", BACK, "cancelled", "no_answer api_hangup", 0, 0),
    Row(CALLED, ["pacing"], "API ends the caller's call", "api_hangup", "cancelled", "no_answer agent_ended", 1, 0),
    Row(CALLED, ["pacing"], "server stops", "server_shutdown", "cancelled", "failed server_shutdown", 1, 0),
    # The target rings.
    Row(CALLED, RINGING, "caller hangs up", "customer_ended", "cancelled", "no_answer agent_ended", 0, 1),
    Row(CALLED, RINGING, "caller vanishes", "media_timeout", "cancelled", "no_answer agent_ended", 1, 1),
    Row(CALLED, RINGING, "caller says never mind", BACK, "cancelled", "no_answer agent_ended", 0, 1),
    Row(CALLED, RINGING, "API ends the caller's call", "api_hangup", "cancelled", "no_answer agent_ended", 1, 1),
    Row(CALLED, RINGING, "API ends the target's call", BACK, "cancelled", "no_answer api_hangup", 0, 1),
    Row(CALLED, RINGING, "server stops", "server_shutdown", "cancelled", "failed server_shutdown", 1, 1),
    Row(CALLED, RINGING, "caller's audio fails", "error", "cancelled", "no_answer agent_ended", 1, 1),
    Row(CALLED, RINGING, "maximum duration passes", "max_duration", "cancelled", "no_answer agent_ended", 1, 1),
    Row(CALLED, RINGING, "ring time passes", BACK, "no_answer", "no_answer no_answer", 0, 1, 408),
    Row(["cold"], ["ringing"], "target responds 486", BACK, "busy", "failed busy", 0, 0, 486),
    Row(["cold"], ["ringing"], "target responds 600", BACK, "busy", "failed busy", 0, 0, 600),
    Row(["cold"], ["ringing"], "target responds 603", BACK, "declined", "failed rejected", 0, 0, 603),
    Row(["cold"], ["ringing"], "target responds 403", BACK, "declined", "failed rejected", 0, 0, 403),
    Row(["cold"], ["ringing"], "target responds 404", BACK, "failed", "failed invalid_number", 0, 0, 404),
    Row(["cold"], ["ringing"], "target responds 408", BACK, "no_answer", "no_answer no_answer", 0, 0, 408),
    Row(["cold"], ["ringing"], "target responds 480", BACK, "no_answer", "no_answer no_answer", 0, 0, 480),
    Row(["cold"], ["ringing"], "target responds 500", BACK, "failed", "failed unreachable", 0, 0, 500),
    Row(["cold"], ["ringing"], "target responds 302", BACK, "failed", "failed unreachable", 0, 0, 302),
    Row(["cold"], ["ringing"], "target responds 0", BACK, "failed", "failed unreachable", 0, 0),
    Row(CALLED, RINGING, "database fails, target is busy", BACK, "busy", "failed busy", 0, 0, 486),
    Row(CALLED, RINGING, "database fails, caller hangs up", "customer_ended", "cancelled",
        "no_answer agent_ended", 0, 1),
    # The target has answered, and it is not known who or what.
    Row(CHILD, SCREENING, "caller hangs up", "customer_ended", "cancelled", "completed agent_ended", 0, 1),
    Row(CHILD, SCREENING, "caller says never mind", BACK, "cancelled", "completed agent_ended", 0, 1),
    Row(CHILD, SCREENING, "caller's audio fails", "error", "cancelled", "completed agent_ended", 1, 1),
    Row(CHILD, SCREENING, "API ends the caller's call", "api_hangup", "cancelled", "completed agent_ended", 1, 1),
    Row(CHILD, SCREENING, "API ends the target's call", BACK, "cancelled", "completed api_hangup", 0, 1),
    Row(CHILD, SCREENING, "server stops", "server_shutdown", "cancelled", "completed server_shutdown", 1, 1),
    Row(CHILD, SCREENING, "target hangs up", BACK, "declined", "completed customer_ended", 0, 0),
    Row(CHILD, SCREENING, "target's audio fails", BACK, "failed", "completed error", 0, 1),
    Row(CHILD, SCREENING, "voicemail answers", BACK, "voicemail", "completed voicemail", 0, 1),
    Row(CHILD, SCREENING, "fax answers", BACK, "failed", "completed voicemail", 0, 1),
    Row(CALLED, SCREENING, "busy tone answers", BACK, "failed", "completed voicemail", 0, 1),
    Row(CALLED, SCREENING, "number is not in service", BACK, "failed", "completed voicemail", 0, 1),
    Row(ASKED, SCREENING, "target presses 2", BACK, "declined", "completed agent_ended", 0, 1),
    Row(["cold"], SCREENING, "target presses 2", BACK, "completed", "completed transferred", 0, 1),
    Row(["briefing"], SCREENING, "target presses 1", BACK, "completed", "completed transferred", 0, 1),
    Row(["cold"], SCREENING, "person answers", BACK, "completed", "completed transferred", 0, 1),
    Row(["cold"], SCREENING, "menu answers", BACK, "completed", "completed transferred", 0, 1),
    Row(["announce"], SCREENING, "person answers", BACK, "completed", "completed transferred", 0, 1),
    Row(["cold"], SCREENING, "recognizer fails", BACK, "completed", "completed transferred", 0, 1),
    Row(["announce"], SCREENING, "recognizer fails", BACK, "completed", "completed transferred", 0, 1),
    Row(BRIEFED, SCREENING, "caller vanishes", "media_timeout", "cancelled", "completed agent_ended", 1, 1),
    Row(BRIEFED, SCREENING, "target vanishes", BACK, "failed", "completed media_timeout", 0, 1),
    Row(BRIEFED, SCREENING, "maximum duration passes", "max_duration", "cancelled", "completed agent_ended", 1, 1),
    # A target that says nothing is connected, before the RTP timeout or the maximum duration is over.
    Row(["cold"], SCREENING, "caller vanishes", "media_timeout", "completed", "completed transferred", 1, 1),
    Row(["cold"], SCREENING, "target vanishes", "transferred", "completed", "completed media_timeout", 1, 1),
    Row(["cold"], SCREENING, "maximum duration passes", BACK, "completed", "completed transferred", 0, 1),
    Row(CALLED, SCREENING, "database fails, target hangs up", BACK, "declined", "completed customer_ended", 0, 0),
    Row(CALLED, SCREENING, "database fails, caller hangs up", "customer_ended", "cancelled",
        "completed agent_ended", 0, 1),
    # A menu or a queue has answered, and the agent waits for a person.
    Row(BRIEFED, WAITING, "caller hangs up", "customer_ended", "cancelled", "completed agent_ended", 0, 1),
    Row(BRIEFED, WAITING, "caller says never mind", BACK, "cancelled", "completed agent_ended", 0, 1),
    Row(["briefing"], WAITING, "caller vanishes", "media_timeout", "cancelled", "completed agent_ended", 1, 1),
    Row(["briefing"], WAITING, "caller's audio fails", "error", "cancelled", "completed agent_ended", 1, 1),
    Row(["briefing"], WAITING, "maximum duration passes", "max_duration", "cancelled", "completed agent_ended", 1, 1),
    Row(BRIEFED, WAITING, "target hangs up", BACK, "declined", "completed customer_ended", 0, 0),
    Row(["briefing"], WAITING, "target vanishes", BACK, "failed", "completed media_timeout", 0, 1),
    Row(["briefing"], WAITING, "target's audio fails", BACK, "failed", "completed error", 0, 1),
    Row(["briefing"], WAITING, "API ends the caller's call", "api_hangup", "cancelled", "completed agent_ended", 1, 1),
    Row(["briefing"], WAITING, "API ends the target's call", BACK, "cancelled", "completed api_hangup", 0, 1),
    Row(["briefing"], WAITING, "server stops", "server_shutdown", "cancelled", "completed server_shutdown", 1, 1),
    Row(["attended"], WAITING, "no person comes", BACK, "no_answer", "completed agent_ended", 0, 1),
    # The target is briefed, and then asked.
    Row(BRIEFED, BRIEFING, "caller hangs up", "customer_ended", "cancelled", "completed agent_ended", 0, 1),
    Row(ASKED, BRIEFING, "caller vanishes", "media_timeout", "cancelled", "completed agent_ended", 1, 1),
    Row(BRIEFED, BRIEFING, "caller says never mind", BACK, "cancelled", "completed agent_ended", 0, 1),
    Row(BRIEFED, BRIEFING, "caller's audio fails", "error", "cancelled", "completed agent_ended", 1, 1),
    Row(BRIEFED, BRIEFING, "target hangs up", BACK, "declined", "completed customer_ended", 0, 0),
    Row(ASKED, BRIEFING, "target vanishes", BACK, "failed", "completed media_timeout", 0, 1),
    Row(ASKED, BRIEFING, "target presses 2", BACK, "declined", "completed agent_ended", 0, 1),
    Row(BRIEFED, BRIEFING, "target's audio fails", BACK, "failed", "completed error", 0, 1),
    Row(BRIEFED, BRIEFING, "API ends the caller's call", "api_hangup", "cancelled", "completed agent_ended", 1, 1),
    Row(BRIEFED, BRIEFING, "API ends the target's call", BACK, "cancelled", "completed api_hangup", 0, 1),
    Row(BRIEFED, BRIEFING, "server stops", "server_shutdown", "cancelled", "completed server_shutdown", 1, 1),
    Row(BRIEFED, BRIEFING, "maximum duration passes", "max_duration", "cancelled", "completed agent_ended", 1, 1),
    # The announcement ends, and the two are connected, before the RTP timeout.
    Row(["announce"], ["briefing"], "caller vanishes", "media_timeout", "completed", "completed transferred", 1, 1),
    Row(["announce"], ["briefing"], "target vanishes", "transferred", "completed", "completed media_timeout", 1, 1),
    Row(ASKED, ["deciding"], "no decision comes", BACK, "no_answer", "completed customer_silent", 0, 1),
    Row(BRIEFED, BRIEFING, "database fails, target hangs up", BACK, "declined", "completed customer_ended", 0, 0),
    Row(BRIEFED, BRIEFING, "database fails, caller hangs up", "customer_ended", "cancelled",
        "completed agent_ended", 0, 1),
    # A REFER is pending.
    Row(["refer"], ["refer_sent"], "caller hangs up", "customer_ended", "cancelled", "", 0, 0),
    Row(["refer"], ["refer_accepted"], "caller hangs up", "transferred", "completed", "", 0, 0, 202),
    Row(["refer"], PENDING, "caller says never mind", BACK, "cancelled", "", 0, 0),
    Row(["refer"], PENDING, "API ends the caller's call", "api_hangup", "cancelled", "", 1, 0),
    Row(["refer"], PENDING, "server stops", "server_shutdown", "cancelled", "", 1, 0),
    Row(["refer"], PENDING, "caller's audio fails", "error", "cancelled", "", 1, 0),
    Row(["refer"], PENDING, "maximum duration passes", "max_duration", "cancelled", "", 1, 0),
    Row(["refer"], PENDING, "NOTIFY 200", "transferred", "completed", "", 1, 0, 200),
    Row(["refer"], PENDING, "peer rings the target, NOTIFY 200", "transferred", "completed", "", 1, 0, 200),
    Row(["refer"], PENDING, "peer rings the target and says no more", "media_timeout", "no_answer", "", 1, 0),
    Row(["refer"], PENDING, "NOTIFY 486", BACK, "busy", "", 0, 0, 486),
    Row(["refer"], PENDING, "NOTIFY 603", BACK, "declined", "", 0, 0, 603),
    Row(["refer"], PENDING, "NOTIFY 408", BACK, "no_answer", "", 0, 0, 408),
    Row(["refer"], PENDING, "NOTIFY 480", BACK, "no_answer", "", 0, 0, 480),
    Row(["refer"], PENDING, "NOTIFY 404", BACK, "failed", "", 0, 0, 404),
    Row(["refer"], PENDING, "no final NOTIFY comes, target answers and hangs up", "transferred", "completed",
        "completed customer_ended", 1, 0),
    Row(["refer_only"], ["refer_sent"], "no final NOTIFY comes", BACK, "failed", "", 0, 0),
    Row(["refer_only"], ["refer_accepted"], "no final NOTIFY comes", BACK, "failed", "", 0, 0, 202),
    Row(["refer"], PENDING, "caller vanishes, no final NOTIFY comes", "media_timeout", "cancelled",
        "no_answer agent_ended", 1, 1),
    Row(["attended"], PENDING, "no final NOTIFY comes, caller hangs up", "customer_ended", "completed",
        "completed transferred", 0, 1),
    Row(["attended"], PENDING, "caller vanishes, no final NOTIFY comes", "media_timeout", "completed",
        "completed transferred", 1, 1),
    Row(["attended"], PENDING, "target vanishes, no final NOTIFY comes", BACK, "failed",
        "completed media_timeout", 0, 1),
    Row(["attended"], PENDING, "target's audio fails, no final NOTIFY comes", BACK, "completed",
        "completed transferred", 0, 1),
    Row(["attended"], ["refer_sent"], "caller hangs up", "customer_ended", "cancelled", "completed agent_ended", 0, 1),
    Row(["attended"], ["refer_accepted"], "caller hangs up", "transferred", "completed",
        "completed transferred", 0, 1, 202),
    Row(["refer"], ["refer_accepted"], "caller hangs up, NOTIFY 481", "customer_ended", "cancelled", "", 0, 0),
    Row(["attended"], ["refer_accepted"], "caller hangs up, NOTIFY 481", "customer_ended", "cancelled",
        "completed agent_ended", 0, 1),
    Row(["attended"], PENDING, "caller says never mind", BACK, "cancelled", "completed agent_ended", 0, 1),
    Row(["attended"], PENDING, "API ends the caller's call", "api_hangup", "cancelled",
        "completed agent_ended", 1, 1),
    Row(["attended"], PENDING, "API ends the target's call", BACK, "cancelled", "completed api_hangup", 0, 1),
    Row(["attended"], PENDING, "server stops", "server_shutdown", "cancelled", "completed server_shutdown", 1, 1),
    Row(["attended"], PENDING, "caller's audio fails", "error", "cancelled", "completed agent_ended", 1, 1),
    Row(["attended"], PENDING, "maximum duration passes", "max_duration", "cancelled", "completed agent_ended", 1, 1),
    Row(["attended"], PENDING, "NOTIFY 200", "transferred", "completed", "completed transferred", 1, 1, 200),
    Row(["attended"], ["refer_accepted"], "peer reports ringing and no end, caller hangs up", "customer_ended",
        "completed", "completed transferred", 0, 1),
    Row(["attended"], PENDING, "target hangs up, NOTIFY 481", BACK, "failed", "completed customer_ended", 0, 0),
    Row(["attended"], PENDING, "target hangs up, NOTIFY 200", "transferred", "completed",
        "completed transferred", 1, 0, 200),
    Row(["refer"], ["refer_sent"], "REFER gets 603, target hangs up", "transferred", "completed",
        "completed customer_ended", 1, 0),
    # The two are connected.
    Row(CHILD, CONNECTED, "caller hangs up", "customer_ended", "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "caller vanishes", "media_timeout", "completed", "completed transferred", 1, 1),
    Row(CHILD, CONNECTED, "target hangs up", "transferred", "completed", "completed customer_ended", 1, 0),
    Row(TWO, CONNECTED, "target vanishes", "transferred", "completed", "completed media_timeout", 1, 1),
    Row(TWO, CONNECTED, "API ends the caller's call", "api_hangup", "completed", "completed transferred", 1, 1),
    Row(TWO, CONNECTED, "API ends the target's call", "transferred", "completed", "completed api_hangup", 1, 1),
    Row(TWO, CONNECTED, "server stops", "server_shutdown", "completed", "completed server_shutdown", 1, 1),
    Row(["cold"], CONNECTED, "maximum duration passes", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "caller says never mind", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "caller's audio fails", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "target's audio fails", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "caller holds", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "target holds", BACK, "completed", "completed transferred", 0, 1),
    Row(TWO, CONNECTED, "database fails, target hangs up", "transferred", "completed",
        "completed customer_ended", 1, 0),
    Row(TWO, CONNECTED, "database fails, caller hangs up", "customer_ended", "completed",
        "completed transferred", 0, 1),
    # One side holds the other and sends no RTP.
    Row(TWO, HELD, "caller hangs up", "customer_ended", "completed", "completed transferred", 0, 1),
    Row(TWO, HELD, "target hangs up", "transferred", "completed", "completed customer_ended", 1, 0),
    Row(TWO, HELD, "API ends the caller's call", "api_hangup", "completed", "completed transferred", 1, 1),
    Row(TWO, HELD, "API ends the target's call", "transferred", "completed", "completed api_hangup", 1, 1),
    Row(TWO, HELD, "server stops", "server_shutdown", "completed", "completed server_shutdown", 1, 1),
    Row(["cold"], HELD, "database fails, target hangs up", "transferred", "completed",
        "completed customer_ended", 1, 0),
    Row(["cold"], HELD, "database fails, caller hangs up", "customer_ended", "completed",
        "completed transferred", 0, 1),
    Row(["cold"], HELD, "both hang up", "customer_ended", "completed", "completed customer_ended", 0, 0),
    Row(["cold"], HELD, "caller's port is closed", "media_timeout", "completed", "completed transferred", 1, 1),
    Row(["cold"], HELD, "target's port is closed", "transferred", "completed", "completed media_timeout", 1, 1),
    Row(["cold"], ["held_by_target"], "caller vanishes", "media_timeout", "completed", "completed transferred", 1, 1),
    Row(["cold"], ["held_by_caller"], "target vanishes", "transferred", "completed", "completed media_timeout", 1, 1),
]  # fmt: skip
CASES: Final = [
    pytest.param(way, stage, row, id=f"{way}-{stage}-{row.event}".replace(" ", "_"))
    for row in TABLE
    for stage in row.stages
    for way in row.ways
    if (way, stage) not in (("announce", "deciding"), ("attended", "briefing"))
]
SETTLES_S: Final = 4.0
"""Time after an event in which what follows from it has begun; a timeout of RTP is over."""
DATABASE_GONE_S: Final = 20.0


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Nothing: the database runs on the thread of the event loop."""


@pytest.mark.parametrize(("way", "stage", "row"), CASES)
def test_end(tmp_path: Path, way: Way, stage: Stage, row: Row) -> None:
    run_virtually(_run(tmp_path, way, stage, row))


async def _run(folder: Path, way: Way, stage: Stage, row: Row) -> None:
    limits: dict[str, Any] = {"max_call_duration_seconds": max_call_s(stage)} if "maximum duration" in row.event else {}
    async with virtual_transfer(folder, method=method_of(way), **limits) as run:
        await reach(run, way, stage)
        await EVENTS[row.event](run)
        await _until_a_leg_has_ended(run)
        await run.passes(PARTNER_S)
        _assert_legs_end_together(run, row)
        assert run.is_talking is (row.parent == BACK), "the caller's leg"
        if row.parent == BACK and row.transfer != "completed" and run.database.cause is None:
            assert run.transfer.ended_at is not None, "the transfer goes on"
        if run.database.cause is not None:
            await run.passes(DATABASE_GONE_S)
            run.database.cause = None
        if row.parent == BACK:
            run.phone.hangs_up()
        await run.end_of_caller()
        stored = run.stored()
        parent = "customer_ended" if row.parent == BACK else row.parent
        child = "" if stored.child is None else f"{stored.child.status} {stored.child.ended_reason}"
        seen = (stored.parent.status, stored.parent.ended_reason, stored.transfer.status, child)
        assert seen == ("completed", parent, row.transfer, row.child)
        assert stored.transfer.sip_status == row.sip_status
        target_byes = run.byes(run.target.dialog) if run.dialled else 0
        assert (run.byes(run.phone.dialog), target_byes) == (row.caller_byes, row.target_byes)
        run.assert_nothing_is_left()


async def _until_a_leg_has_ended(run: VirtualTransfer) -> None:
    """Wait until a leg has ended, or none will."""
    until_s = run.now_s + SETTLES_S
    while run.is_talking and not (run.dialled and run.target.leg.ended.done()) and run.now_s < until_s:
        await run.passes(0.05)


def _assert_legs_end_together(run: VirtualTransfer, row: Row) -> None:
    """Once a leg of a transfer has ended, no other one is left, unless the caller is with the agent."""
    if not run.dialled:
        return
    target_is_left = not run.target.leg.ended.done()
    if row.parent != BACK:
        assert run.phone.leg.ended.done(), f"the caller's leg outlives its partner by {PARTNER_S} s"
        assert not target_is_left, f"the target's leg outlives its partner by {PARTNER_S} s"
    elif row.target_byes == 0:
        assert not target_is_left
