"""The messages to a browser, from the events of a conversation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, ToolRun, ToolTiming
from calls.conversation.idle_timer import HoldChanged
from calls.web_call.live_feed import MAX_MESSAGES, LiveFeed

pytestmark = pytest.mark.asyncio


def states(feed: LiveFeed) -> list[str]:
    return [message["state"] for message in feed.take() if message["type"] == "state"]


async def test_a_state_is_told_once() -> None:
    feed = LiveFeed()
    feed.set_state("ringing")
    feed.on_event(HoldChanged(True))
    feed.on_event(HoldChanged(True))
    feed.on_event(HoldChanged(False))
    assert states(feed) == ["ringing", "on_hold", "listening"]


RUN = ToolRun(1, 2, "find", 10)
FOUND = ToolTiming("find", 10, 30, True, {"what": "x"}, "y")
CANCELLED = ToolTiming("find", 40, 50, False)


async def test_a_tool_is_a_state_only_while_the_agent_thinks() -> None:
    feed = LiveFeed()
    feed.set_state("speaking")
    feed.on_tool(RUN)
    feed.on_tool(RUN.ended(FOUND, 0))
    feed.set_state("thinking")
    feed.on_tool(RUN)
    feed.on_tool(replace(RUN, number=2))
    feed.on_tool(RUN.ended(FOUND, 0))
    feed.on_tool(replace(RUN, number=2).ended(CANCELLED, 0))
    assert states(feed) == ["speaking", "thinking", "tool", "thinking"]


async def test_a_tool_is_told_as_it_begins_and_when_it_has_ended() -> None:
    feed = LiveFeed()
    feed.on_tool(RUN)
    feed.on_tool(RUN.ended(FOUND, 0))
    feed.on_tool(ToolRun(2, None, "find", 40))
    feed.on_tool(ToolRun(2, None, "find", 40).ended(CANCELLED, 0))
    begun, ended, speculative, cancelled = feed.take()
    assert (begun["number"], begun["turn"], begun["start_ms"]) == (1, 2, 10)
    assert (begun["end_ms"], begun["ok"], begun["arguments"], begun["result"]) == (None,) * 4
    assert ended == {**begun, "end_ms": 30, "ok": True, "arguments": {"what": "x"}, "result": "y"}
    assert speculative["turn"] == 1
    assert (cancelled["ok"], cancelled["result"], cancelled["end_ms"]) == (False, None, 50)


async def test_a_transfer_is_the_only_state_until_the_caller_is_back() -> None:
    feed = LiveFeed()
    feed.on_transfer(True)
    feed.on_event(HoldChanged(False))
    feed.on_transfer(False)
    feed.on_event(HoldChanged(False))
    assert states(feed) == ["transferring", "thinking", "listening"]


async def test_partial_words_come_from_any_thread_and_belong_to_the_next_turn() -> None:
    feed, timeline, came = LiveFeed(), Timeline(0, lambda: 0), asyncio.Event()
    timeline.add_opening()
    feed.on_turn(FinishedTurn("assistant", "Hello."), timeline)
    feed.take()
    feed.on_message = came.set
    await asyncio.to_thread(feed.on_partial_transcript, "good")
    await came.wait()
    wanted: dict[str, Any] = {"type": "transcript", "role": "user", "content": "good", "final": False, "turn": 1}
    assert feed.take() == [wanted]


async def test_messages_that_nobody_takes_are_bounded() -> None:
    feed, timeline = LiveFeed(), Timeline(0, lambda: 0)
    timeline.add_opening()
    for n in range(2 * MAX_MESSAGES):
        feed.on_turn(FinishedTurn("user", str(n)), timeline)
    messages = feed.take()
    assert (len(messages), messages[-1]["content"]) == (MAX_MESSAGES, str(2 * MAX_MESSAGES - 1))
