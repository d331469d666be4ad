"""The state of a live call, as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from calls.call_record.outcome import CallOutcome
from calls.call_record.timeline import ToolRun
from calls.conversation.idle_timer import HoldChanged
from calls.live import live_call
from calls.live.events import LiveEvents
from calls.live.live_call import CallNews, LiveCall
from calls.live.live_calls import LiveCalls
from config.clock import utc_now
from sipcore.dialogs.call_leg import CallLeg
from storage.calls import calls
from storage.calls.calls import Call

TOOL = ToolRun(1, 1, "look_up", 0)
ENDED_TOOL = replace(TOOL, end_ms=5)


class LegWithoutRtp:
    """A leg whose quality is not measured."""

    def quality(self) -> None:
        raise KeyError("no RTP")


LEG = cast(CallLeg, LegWithoutRtp())


class Told:
    """The events that were published, as subjects."""

    def __init__(self) -> None:
        self.news: list[tuple[str, Any]] = []
        self.calls = LiveCalls(LiveEvents())
        self.calls.events.encode = self._keep
        self.calls.events.follow("one")

    def _keep(self, name: str, subject: object) -> bytes:
        self.news.append((name, subject))
        return b""

    @property
    def states(self) -> list[str]:
        return [
            "ended" if news.details is None else news.details.state for _, news in self.news if type(news) is CallNews
        ]


@pytest.fixture
async def told() -> Told:
    return Told()


def inbound() -> Call:
    return calls.new_inbound(
        organization_id="one",
        agent_id="agent",
        phone_number_id="number",
        provider="sip",
        call_sid="sid",
        customer_number="100",
    )


def answered(told: Told) -> LiveCall:
    call = inbound()
    told.calls.begin(call)
    live = told.calls.of(call)
    live.on_answered(utc_now(), LEG)
    return live


async def test_each_state_is_told_once(told: Told) -> None:
    live = answered(told)
    live.on_event(HoldChanged(False))
    live.on_event(HoldChanged(True))
    live.on_event(HoldChanged(True))
    live.on_event(HoldChanged(False))
    assert told.states == ["ringing", "listening", "on_hold", "listening"]
    assert [name for name, _ in told.news] == ["call.created", *["call.updated"] * 3]


async def test_a_hold_during_a_transfer_shows_after_it(told: Told) -> None:
    live = answered(told)
    live.on_transfer(True)
    live.on_event(HoldChanged(True))
    live.on_transfer(False)
    live.on_event(HoldChanged(False))
    assert told.states == ["ringing", "listening", "transferring", "on_hold", "thinking"]


async def test_a_tool_is_a_state_only_while_nobody_speaks(told: Told) -> None:
    live = answered(told)
    live.on_tool(TOOL)
    live.on_tool(ENDED_TOOL)
    assert told.states == ["ringing", "listening"]
    live.on_transfer(False)  # the agent is to answer
    live.on_tool(TOOL)
    live.on_tool(TOOL)
    live.on_tool(ENDED_TOOL)
    assert told.states[2:] == ["thinking", "tool"], "another one runs"
    live.on_tool(ENDED_TOOL)
    assert told.states[-1] == "thinking"


async def test_words_of_an_unfinished_turn_are_told_only_if_they_need_not_be_redacted(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_call, "PARTIAL_EVERY_S", 0.0)
    live = answered(told)
    run: list[Callable[[], None]] = []
    monkeypatch.setattr(live._loop, "call_soon_threadsafe", lambda work, *given: run.append(lambda: work(*given)))
    live.on_partial_transcript("four one")
    assert not run
    live.allow_partials()
    live.on_partial_transcript("four one")
    for each in run:
        each()
    assert live.details().partial_transcript == "four one"
    _, news = told.news[-1]
    assert news.details.partial_transcript == "four one"


async def test_an_end_is_told_once_with_what_is_known(told: Told) -> None:
    live = answered(told)
    outcome = CallOutcome(status="completed", reason="customer_ended", ended_at=utc_now(), answered_at=utc_now())
    told.calls.end(live.call.id, outcome)
    told.calls.end(live.call.id)
    live.on_event(HoldChanged(True))
    (name, news), *_ = told.news[-1:]
    assert (name, news.details, news.call.ended_reason, news.call.duration_seconds) == (
        *("call.ended", None, "customer_ended", 0),
    )  # fmt: skip
    assert told.calls.details(live.call.id) is None
    stored = inbound()
    told.calls.on_stored_end(stored, outcome)
    assert told.news[-1] == ("call.updated", CallNews(stored, None))


async def test_a_call_whose_end_could_not_be_stored_has_ended_all_the_same(told: Told) -> None:
    live = answered(told)
    told.calls.end(live.call.id)
    assert told.states[-1] == "ended"


async def test_nobody_is_told_of_another_organizations_call(told: Told) -> None:
    told.calls.begin(calls.new_inbound(
        organization_id="two", agent_id="a", phone_number_id="n", provider="sip", call_sid="s", customer_number="1",
    ))  # fmt: skip
    assert not told.news
