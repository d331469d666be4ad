"""Stages of a transfer, and the events that may come in each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from calls.session.transfer.target_screening import MAX_QUEUE_S
from media.call_progress.tones import ToneKind
from storage.calls.transfers import TransferMode
from tests.calls.session.transfer.transfer_calls import AGENT
from tests.calls.session.transfer.virtual_transfers import (
    REFER_TIMEOUT_S,
    RING_TIMEOUT_S,
    RTP_TIMEOUT_S,
    VirtualTransfer,
)

Way = Literal["refer", "refer_only", "cold", "briefing", "announce", "attended"]
"""Cold by REFER, with or without a child call after it, or by a child call; or the mode with a child call."""
Stage = Literal[
    "initiated",
    "hold_message",
    "pacing",
    "dialling",
    "ringing",
    "early_media",
    "screening",
    "menu",
    "queue",
    "briefing",
    "deciding",
    "refer_sent",
    "refer_accepted",
    "connected",
    "held_by_caller",
    "held_by_target",
]
METHODS: Final[dict[Way, str]] = {"refer": "auto", "refer_only": "refer", "attended": "auto"}
MODES: Final[dict[Way, TransferMode]] = {
    "refer": "cold",
    "refer_only": "cold",
    "cold": "cold",
    "briefing": "warm_briefing",
    "announce": "warm_announce",
    "attended": "attended",
}
MAX_CALL_S: Final = 6
"""The maximum duration of calls that reach it, seconds; that of those which come far is `MAX_LONG_CALL_S`."""
MAX_LONG_CALL_S: Final = 12
WAITED_FOR: Final[dict[Stage, str]] = {"menu": "for sales press one", "queue": "all of our agents are currently busy"}
"""What the target says that lets the agent wait for a person."""
DECISION_S: Final = 30.0
"""No decision takes longer, seconds."""
DISK_GONE: Final = "the disk cannot be read or written"


def method_of(way: Way) -> str:
    """The `sip_transfer_method` of the number."""
    return METHODS.get(way, "bridge")


async def reach(  # noqa: C901 - one short case a stage
    run: VirtualTransfer, way: Way, stage: Stage
) -> None:
    """Start the transfer, and wait until it is at this stage."""
    if stage in ("pacing", "dialling"):
        (run.harness.pacer.gate if stage == "pacing" else run.harness.callees.gate).clear()
    await run.start(MODES[way])
    match stage:
        case "initiated":
            return
        case "hold_message":
            await run.until(lambda: AGENT["hold_message"] in run.harness.tts.spoken)
        case "pacing" | "dialling":
            await run.until(lambda: run.transfer.attempts if stage == "pacing" else run.harness.callees.dial_count)
        case "ringing" | "early_media":
            await run.until(lambda: run.dialled)
            run.target.rings(early_media=stage == "early_media")
        case "screening" | "menu" | "queue":
            await _answer(run)
            await run.passes(0.5)
            await _wait_for_a_person(run, WAITED_FOR.get(stage))
        case "briefing" | "deciding":
            await _brief(run, to_the_end=stage == "deciding")
        case "refer_sent" | "refer_accepted":
            await _send_refer(run, way)
            if stage == "refer_accepted":
                run.refer.on_response(202)
        case "connected" | "held_by_caller" | "held_by_target":
            await _connect(run, way)
            if stage != "connected":
                await EVENTS["caller holds" if stage == "held_by_caller" else "target holds"](run)
                await run.passes(0.5)
    await run.until(lambda: run.is_settled)


async def _answer(run: VirtualTransfer) -> None:
    """Let the target answer, and wait until it is listened to."""
    await run.until(lambda: run.dialled)
    run.target.answers()
    await run.until(lambda: run.target_audio is not None)


async def _wait_for_a_person(run: VirtualTransfer, words: str | None) -> None:
    """After these words, longer than a silent target would be waited for; without any, not at all."""
    if words is not None:
        run.target_says(words)
        await run.passes(4)
        assert not run.target_is_addressed


async def _brief(run: VirtualTransfer, *, to_the_end: bool = False) -> None:
    await _answer(run)
    await run.until(lambda: any("ten chairs" in each for each in run.harness.tts.spoken))
    if to_the_end:
        await _say_all(run)


async def _say_all(run: VirtualTransfer) -> None:
    """Wait until the whole briefing was said."""
    pump, slot = run.pump, run.target.slot
    await run.until(lambda: run.harness.tts.spoken[-1].startswith("To decline"))
    await run.until(lambda: pump.sent_position(slot) == pump.written_position(slot))


async def _send_refer(run: VirtualTransfer, way: Way) -> None:
    if way == "attended":
        await _brief(run)
        run.target.driver.on_digit("1", "rfc4733")
    await run.until(lambda: run.phone.dialog.refers)


async def _connect(run: VirtualTransfer, way: Way) -> None:
    if way == "cold":
        await run.until(lambda: run.dialled)
        run.target.answers()
    elif way == "attended":
        await _send_refer(run, way)
        run.refer.on_response(501)
    else:
        await _brief(run)
        if way == "briefing":
            run.target.driver.on_digit("1", "rfc4733")
    await run.until(lambda: run.pump.bridges)
    await run.until(lambda: run.transfer.status == "connected")


Event = Callable[[VirtualTransfer], Awaitable[None]]


def _simple(act: Callable[[VirtualTransfer], object]) -> Event:
    async def event(run: VirtualTransfer) -> None:
        act(run)

    return event


def _final_status(code: int) -> Event:
    return _simple(lambda run: run.target.ends(code))


def _notify(code: int) -> Event:
    return _simple(lambda run: run.refer.on_notify(True, "message/sipfrag", f"SIP/2.0 {code} x\r\n".encode()))


async def _peer_rings_the_target(run: VirtualTransfer, seconds: float) -> None:
    """A PBX that has taken the caller sends no RTP any more."""
    run.refer.on_notify(False, "message/sipfrag", b"SIP/2.0 180 Ringing\r\n")
    run.vanishes(run.phone.slot)
    await run.passes(seconds)


async def _peer_rings_the_target_until_the_answer(run: VirtualTransfer) -> None:
    await _peer_rings_the_target(run, RING_TIMEOUT_S)
    await EVENTS["NOTIFY 200"](run)


async def _peer_rings_the_target_and_says_no_more(run: VirtualTransfer) -> None:
    await _peer_rings_the_target(run, REFER_TIMEOUT_S + RING_TIMEOUT_S)
    assert not run.dialled


async def _peer_reports_ringing_and_no_end(run: VirtualTransfer) -> None:
    """The target has accepted, so nobody is rung: the two are connected once the REFER has timed out."""
    run.refer.on_notify(False, "message/sipfrag", b"SIP/2.0 180 Ringing\r\n")
    await run.until(lambda: run.pump.bridges, REFER_TIMEOUT_S + 1)
    run.phone.hangs_up()


async def _no_final_notify_comes(run: VirtualTransfer) -> None:
    await run.passes(REFER_TIMEOUT_S)


async def _no_final_notify_comes_and_target_answers(run: VirtualTransfer) -> None:
    """The target is called, and hangs up once it is connected."""
    await run.until(lambda: run.dialled, REFER_TIMEOUT_S + 1)
    run.target.answers()
    await _is_bridged_after_refer(run)
    run.target.ends()


async def _no_final_notify_comes_to_connected_legs(run: VirtualTransfer) -> None:
    """The target has accepted: it is connected with the caller, who hangs up then."""
    await _is_bridged_after_refer(run)
    run.phone.hangs_up()


async def _is_bridged_after_refer(run: VirtualTransfer) -> None:
    await run.until(lambda: run.pump.bridges, REFER_TIMEOUT_S + 5)
    await run.until(lambda: run.transfer.status == "connected")
    assert {each["outcome"] for each in run.transfer.attempts} == {"no_response", "answered"}


def _and_no_final_notify(name: str) -> Event:
    """The event, and the peer that has got the REFER says no more."""

    async def event(run: VirtualTransfer) -> None:
        await EVENTS[name](run)
        await run.passes(REFER_TIMEOUT_S)

    return event


async def _invite_is_sent_and_caller_leaves(run: VirtualTransfer) -> None:
    run.phone.hangs_up()
    await run.until(lambda: run.session._lifecycle.is_ending)
    run.harness.callees.gate.set()


async def _invite_is_sent_and_api_ends_the_targets_call(run: VirtualTransfer) -> None:
    hanging_up = asyncio.ensure_future(_hang_up_child(run))
    await run.passes(0.05)
    run.harness.callees.gate.set()
    await hanging_up


def _while_the_invite_is_sent(name: str, seconds: float = 0.1) -> Event:
    """The INVITE is sent so many seconds after the event."""

    async def event(run: VirtualTransfer) -> None:
        happening = asyncio.ensure_future(EVENTS[name](run))
        await run.passes(seconds)
        run.harness.callees.gate.set()
        await happening

    return event


async def _database_fails_and_target_is_busy(run: VirtualTransfer) -> None:
    run.database.cause = DISK_GONE
    run.target.ends(486)


async def _database_fails_and_target_hangs_up(run: VirtualTransfer) -> None:
    run.database.cause = DISK_GONE
    run.target.ends()


async def _database_fails_and_caller_hangs_up(run: VirtualTransfer) -> None:
    run.database.cause = DISK_GONE
    run.phone.hangs_up()


async def _hang_up_parent(run: VirtualTransfer) -> None:
    assert await run.hang_up_by_api(run.call.id)


async def _hang_up_child(run: VirtualTransfer) -> None:
    assert await run.hang_up_by_api(run.transfer.id)


async def _ring_time_passes(run: VirtualTransfer) -> None:
    await run.passes(RING_TIMEOUT_S)


async def _maximum_duration_passes(run: VirtualTransfer) -> None:
    await run.passes(MAX_CALL_S)


async def _no_person_comes(run: VirtualTransfer) -> None:
    await run.passes(MAX_QUEUE_S)


def max_call_s(stage: Stage) -> int:
    """The maximum duration of a call that reaches it at this stage, seconds."""
    return MAX_LONG_CALL_S if stage in ("menu", "queue", "deciding") else MAX_CALL_S


async def _caller_holds(run: VirtualTransfer) -> None:
    run.phone.holds()
    run.vanishes(run.phone.slot)


async def _target_holds(run: VirtualTransfer) -> None:
    run.target.holds()
    run.vanishes(run.target.slot)


def _port_is_closed(slot_of: Callable[[VirtualTransfer], int]) -> Event:
    """The process of a peer was killed: nothing comes from it, and its port is closed."""

    async def event(run: VirtualTransfer) -> None:
        run.pump.closed.add(slot_of(run))
        run.vanishes(slot_of(run))

    return event


async def _both_hang_up(run: VirtualTransfer) -> None:
    run.phone.hangs_up()
    run.target.ends()


async def _recognizer_fails(run: VirtualTransfer) -> None:
    run.harness.stt.streams[-1].end_turn_error = RuntimeError("a fault of the recognizer")
    run.target_says("hello")


async def _no_decision_comes(run: VirtualTransfer) -> None:
    await run.passes(DECISION_S)


async def _target_hangs_up_during_refer(run: VirtualTransfer) -> None:
    run.target.ends()
    await run.passes(1)
    await EVENTS["NOTIFY 481"](run)


async def _target_is_taken_over(run: VirtualTransfer) -> None:
    run.target.ends()
    await EVENTS["NOTIFY 200"](run)


async def _refer_is_refused_and_target_hangs_up(run: VirtualTransfer) -> None:
    run.refer.on_response(603)
    await run.until(lambda: run.dialled)
    run.target.answers()
    await run.until(lambda: run.pump.bridges)
    run.target.ends()


async def _caller_hangs_up_before_failure(run: VirtualTransfer) -> None:
    run.phone.hangs_up()
    await run.passes(0.3)
    await EVENTS["NOTIFY 481"](run)


STATUSES: Final = (0, 302, 403, 404, 408, 480, 486, 500, 600, 603)
"""Final statuses instead of an answer; 0: no response."""
EVENTS: Final[dict[str, Event]] = {
    "caller hangs up": _simple(lambda run: run.phone.hangs_up()),
    "caller hangs up, INVITE being sent": _invite_is_sent_and_caller_leaves,
    "caller vanishes": _simple(lambda run: run.vanishes(run.phone.slot)),
    "caller says never mind": _simple(lambda run: run.caller_says("never mind")),
    "caller holds": _caller_holds,
    "caller's port is closed": _port_is_closed(lambda run: run.phone.slot),
    "target's port is closed": _port_is_closed(lambda run: run.target.slot),
    "both hang up": _both_hang_up,
    "target hangs up": _simple(lambda run: run.target.ends()),
    "target vanishes": _simple(lambda run: run.vanishes(run.target.slot)),
    "target holds": _target_holds,
    "person answers": _simple(lambda run: run.target_says("hello")),
    "voicemail answers": _simple(lambda run: run.target_says("please leave a message after the tone")),
    "menu answers": _simple(lambda run: run.target_says("for sales press one")),
    "number is not in service": _simple(lambda run: run.target_says("the number you have dialed is not in service")),
    "fax answers": _simple(lambda run: run.target_sounds(ToneKind.CED)),
    "busy tone answers": _simple(lambda run: run.target_sounds(ToneKind.BUSY)),
    "recognizer fails": _recognizer_fails,
    "target presses 1": _simple(lambda run: run.target.driver.on_digit("1", "rfc4733")),
    "target presses 2": _simple(lambda run: run.target.driver.on_digit("2", "rfc4733")),
    **{f"target responds {code}": _final_status(code) for code in STATUSES},
    **{f"NOTIFY {code}": _notify(code) for code in (200, 404, 408, 480, 481, 486, 603)},
    "API ends the caller's call": _hang_up_parent,
    "API ends the target's call": _hang_up_child,
    "API ends the target's call, INVITE being sent": _invite_is_sent_and_api_ends_the_targets_call,
    "API ends the caller's call, INVITE being sent": _while_the_invite_is_sent("API ends the caller's call"),
    "server stops, INVITE being sent": _while_the_invite_is_sent("server stops"),
    "caller says never mind, INVITE being sent": _while_the_invite_is_sent("caller says never mind"),
    "caller's audio fails, INVITE being sent": _while_the_invite_is_sent("caller's audio fails"),
    "caller vanishes, INVITE being sent": _while_the_invite_is_sent("caller vanishes", RTP_TIMEOUT_S + 0.1),
    "maximum duration passes, INVITE being sent": _while_the_invite_is_sent("maximum duration passes", MAX_CALL_S),
    "server stops": _simple(lambda run: run.harness.service.end_all()),
    "caller's audio fails": _simple(lambda run: run.audio_fails(child=False)),
    "target's audio fails": _simple(lambda run: run.audio_fails(child=True)),
    "ring time passes": _ring_time_passes,
    "maximum duration passes": _maximum_duration_passes,
    "no decision comes": _no_decision_comes,
    "no person comes": _no_person_comes,
    "no final NOTIFY comes": _no_final_notify_comes,
    "no final NOTIFY comes, target answers and hangs up": _no_final_notify_comes_and_target_answers,
    "no final NOTIFY comes, caller hangs up": _no_final_notify_comes_to_connected_legs,
    "caller vanishes, no final NOTIFY comes": _and_no_final_notify("caller vanishes"),
    "target vanishes, no final NOTIFY comes": _and_no_final_notify("target vanishes"),
    "target's audio fails, no final NOTIFY comes": _and_no_final_notify("target's audio fails"),
    "peer rings the target, NOTIFY 200": _peer_rings_the_target_until_the_answer,
    "peer rings the target and says no more": _peer_rings_the_target_and_says_no_more,
    "peer reports ringing and no end, caller hangs up": _peer_reports_ringing_and_no_end,
    "caller hangs up, NOTIFY 481": _caller_hangs_up_before_failure,
    "target hangs up, NOTIFY 481": _target_hangs_up_during_refer,
    "target hangs up, NOTIFY 200": _target_is_taken_over,
    "REFER gets 603, target hangs up": _refer_is_refused_and_target_hangs_up,
    "database fails": _simple(lambda run: setattr(run.database, "cause", DISK_GONE)),
    "database fails, target is busy": _database_fails_and_target_is_busy,
    "database fails, target hangs up": _database_fails_and_target_hangs_up,
    "database fails, caller hangs up": _database_fails_and_caller_hangs_up,
}
