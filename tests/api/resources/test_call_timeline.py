"""`/v1/calls/{id}/timeline`"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from calls.call_record.timeline import CitedPassage, Timeline, ToolTiming
from config.clock import iso, utc_now
from config.signed_links import signed_url
from media.turn_taking.events import TurnEnded
from storage.calls import calls
from tests.api.conftest import Api

UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("endedBy", "speechStartMs", "speechEndMs", "turnEndMs", "textReadyMs", "firstTokenMs")),
    **dict.fromkeys(("speechReadyMs", "agentStartMs", "agentEndMs", "responseGapMs")),
    **dict.fromkeys(("eotProbability", "interruptedMs")),
    "playedMs": 0,
    "interrupted": False,
    "speculated": False,
    "tools": [],
    "sources": [],
    "speaker": None,
    "transcriptionEnded": None,
    "briefingBy": None,
}

FEES = CitedPassage(str(uuid4()), "Fees", 2, 0.5)
"""Id of a deleted document."""
NEW = ("eotProbability", "interruptedMs", "playedMs", "speculated", "tools", "sources")
"""Values of the fields that older calls lack."""


def _talk(now: list[float]) -> Timeline:
    """A greeting that is interrupted, and a turn with a response."""
    timeline = Timeline(1000.0, lambda: now[0])
    timeline.add_opening()
    timeline.on_response_queued()
    timeline.on_agent_started(1020.4)
    now[0] = 1500.0
    timeline.on_interruption(1480.0)
    timeline.turn.tools.append(ToolTiming("look_up", 1100.0, 1250.4, True))
    timeline.on_response_ended(460.0)
    timeline.on_agent_stopped()
    now[0] = 2000.6
    timeline.add_caller_turn(1, TurnEnded(1900.0, 1400.0, 1800.0, "model", 0.61249))
    timeline.turn.sources += [FEES, replace(FEES, position=0, score=0.4), replace(FEES, score=0.9)]
    return timeline


async def _call(api: Api, *, answered: bool, timeline: list[dict[str, Any]], ended: bool = False) -> calls.Call:
    def make(conn: sa.Connection) -> calls.Call:
        call = calls.create_inbound(
            conn,
            organization_id=api.organization_id,
            agent_id=str(uuid4()),
            phone_number_id=str(uuid4()),
            provider="sip",
            call_sid="x",
            customer_number="100",
        )
        if answered:
            calls.mark_answered(conn, call.id, call.created_at)
        calls.store_progress(conn, call.id, transcript=[], turn_count=1, timeline=timeline)
        if ended:
            calls.finish(
                conn,
                call.id,
                status="completed" if answered else "no_answer",
                ended_reason="customer_ended",
                ended_at=utc_now(),
                timeline=timeline,
            )
        return call

    return await api.services.database.write(make)


async def test_each_turn_has_its_times_in_ms_since_the_answer(api: Api) -> None:
    call = await _call(api, answered=True, ended=True, timeline=_talk([1000.0]).items())
    status, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert (status, answer) == (
        200,
        {
            "data": {
                "callId": call.id,
                "status": "completed",
                "startedAt": iso(call.created_at),
                "turns": [
                    UNKNOWN
                    | {"turn": 0, "agentStartMs": 20, "interruptedMs": 480, "agentEndMs": 500, "playedMs": 460}
                    | {"interrupted": True}
                    | {"tools": [{"name": "look_up", "startMs": 100, "endMs": 250, "ok": True}]},
                    UNKNOWN
                    | {"turn": 1, "endedBy": "model", "speechStartMs": 400, "speechEndMs": 800, "turnEndMs": 900}
                    | {"textReadyMs": 1001, "eotProbability": 0.612}
                    | {
                        "sources": [
                            {"documentId": FEES.document_id, "document": "Fees", "position": 2, "score": 0.9},
                            {"documentId": FEES.document_id, "document": "Fees", "position": 0, "score": 0.4},
                        ]
                    },
                ],
                "transfers": [],
                "notes": [],
                "listening": [],
                "fallbacks": [],
                "takeover": None,
                "answerVerdicts": [],
            }
        },
    )


async def test_the_verdicts_of_answer_detection_are_no_turns(api: Api) -> None:
    verdict = {"answer": "voicemail", "rule": "phrase", "at_ms": 2100}
    call = await _call(api, answered=True, ended=True, timeline=[*_talk([1000.0]).items(), verdict])
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert answer["data"]["answerVerdicts"] == [{"kind": "voicemail", "rule": "phrase", "atMs": 2100}]
    assert [turn["turn"] for turn in answer["data"]["turns"]] == [0, 1]


async def test_words_of_connected_parties_have_their_speaker(api: Api) -> None:
    timeline = Timeline(1000.0, lambda: 2100.0)
    ended = TurnEnded(2000.0, 1400.0, 1900.0, "delay")
    timeline.add_utterance("target", 1400.0, ended, transcription_ended="target")
    call = await _call(api, answered=True, ended=True, timeline=timeline.items())
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert answer["data"]["turns"] == [
        UNKNOWN
        | {"turn": 0, "endedBy": "delay", "speechStartMs": 400, "speechEndMs": 900, "turnEndMs": 1000}
        | {"textReadyMs": 1100, "speaker": "target", "transcriptionEnded": "target"}
    ]


async def test_the_opening_of_a_second_leg_says_who_has_written_the_briefing(api: Api) -> None:
    timeline = Timeline(1000.0, lambda: 1000.0)
    timeline.add_opening()
    timeline.set_briefing("model")
    call = await _call(api, answered=True, ended=True, timeline=timeline.items())
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert answer["data"]["turns"] == [UNKNOWN | {"turn": 0, "briefingBy": "model"}]


async def test_a_live_call_has_the_turns_so_far(api: Api) -> None:
    now = [1000.0]
    timeline = _talk(now)
    call = await _call(api, answered=True, timeline=timeline.items())
    timeline.on_response_queued()
    timeline.on_agent_started(2100.0)
    progress = {"transcript": [], "turn_count": 1, "timeline": timeline.items()}
    await api.services.database.write(lambda conn: calls.store_progress(conn, call.id, **progress))  # type: ignore[arg-type]
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert answer["data"]["status"] == "in_progress"
    last = answer["data"]["turns"][-1]
    assert (last["agentStartMs"], last["responseGapMs"], last["agentEndMs"]) == (1100, 300, None)


async def test_fields_that_older_calls_lack_have_defaults(api: Api) -> None:
    timeline = _talk([1000.0]).items()
    for turn in timeline:
        for name in ("eot_probability", "interrupted_ms", "played_ms", "speculated", "tools", "sources"):
            del turn[name]
    call = await _call(api, answered=True, ended=True, timeline=timeline)
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    for turn in answer["data"]["turns"]:
        assert turn["turn"] in (0, 1)
        assert {name: turn[name] for name in NEW} == {name: UNKNOWN[name] for name in NEW}


async def test_a_call_that_was_never_answered_has_no_turns(api: Api) -> None:
    call = await _call(api, answered=False, ended=True, timeline=[])
    _, answer = await api("GET", f"/calls/{call.id}/timeline")
    assert answer["data"] == {
        "callId": call.id,
        "status": "no_answer",
        "startedAt": None,
        "turns": [],
        "transfers": [],
        "notes": [],
        "listening": [],
        "fallbacks": [],
        "takeover": None,
        "answerVerdicts": [],
    }


async def test_a_timeline_needs_a_key(api: Api) -> None:
    call = await _call(api, answered=True, timeline=[])
    path = f"/v1/calls/{call.id}/timeline"
    link = signed_url(api.services.secrets, "", path, utc_now())
    for address in (path, link):
        async with api.client.get(address) as response:
            assert (response.status, (await response.json())["error"]) == (401, "Invalid API key")


async def test_the_timeline_of_an_unknown_call_is_not_found(api: Api) -> None:
    assert await api("GET", f"/calls/{uuid4()}/timeline") == (404, {"error": "Call not found"})
