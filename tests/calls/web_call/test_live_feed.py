"""The messages to a browser, from the events of a conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, ToolTiming
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


async def test_a_tool_is_a_state_only_while_the_agent_thinks() -> None:
    feed = LiveFeed()
    feed.set_state("speaking")
    feed.on_tool_run(True)
    feed.on_tool_run(False)
    feed.set_state("thinking")
    feed.on_tool_run(True)
    feed.on_tool_run(False)
    assert states(feed) == ["speaking", "thinking", "tool", "thinking"]


async def test_each_tool_of_a_turn_is_told_once_with_arguments_and_result() -> None:
    feed, timeline = LiveFeed(), Timeline(0, lambda: 0)
    timeline.add_caller_turn(1, None)
    timeline.turn.tools.append(ToolTiming("find", 1, 2, True, {"what": "x"}, "y"))
    feed.on_turn(FinishedTurn("assistant", "One moment."), timeline)
    feed.on_turn(FinishedTurn("assistant", "It is y."), timeline)
    (told,) = [message for message in feed.take() if message["type"] == "tool"]
    assert (told["name"], told["arguments"], told["result"], told["turn"]) == ("find", {"what": "x"}, "y", 1)


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
