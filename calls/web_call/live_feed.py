"""What the browser of a test call is told: the state of the call, the words of both sides, turns and tools."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, ToolRun
from calls.conversation.dtmf_collector import DtmfEntry
from calls.conversation.event_queue import ConversationEvent
from calls.conversation.idle_timer import HoldChanged
from media.turn_taking.events import AgentStarted, AgentStopped, BargeIn, SpeechStarted, TurnDropped, TurnEnded

MAX_MESSAGES: Final = 500
"""Messages that wait for the browser; of more, the oldest are dropped."""

LiveState = Literal["ringing", "listening", "thinking", "speaking", "tool", "on_hold", "transferring", "ended"]
Message = Mapping[str, Any]
"""A message to the browser; `type` says which."""


class LiveFeed:
    """A `CallObserver` that turns what it sees into messages, for the event loop. `on_message` is called when there is
    one to take."""

    def __init__(self) -> None:
        self.on_message: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._messages: deque[Message] = deque(maxlen=MAX_MESSAGES)
        self._state: LiveState | None = None
        self._turn = 0
        """The number of the caller's present turn."""
        self._tools_running = 0

    def take(self) -> list[Message]:
        """Remove all messages, and return them in order."""
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def set_state(self, state: LiveState) -> None:
        """The call has this state; told if it is another one."""
        if state != self._state:
            self._state = state
            self._put({"type": "state", "state": state})

    def on_event(self, event: ConversationEvent) -> None:
        """Tell the state that follows from an event."""
        if self._state == "transferring":
            return
        match event:
            case SpeechStarted() | AgentStopped() | TurnDropped() | BargeIn():
                self.set_state("listening")
            case TurnEnded() | DtmfEntry():
                self.set_state("thinking")
            case AgentStarted():
                self.set_state("speaking")
            case HoldChanged(held):
                self.set_state("on_hold" if held else "listening")
            case _:
                pass

    def on_turn(self, turn: FinishedTurn, timeline: Timeline) -> None:
        """Tell the words of a turn; after the agent's, also its times."""
        number = self._turn = timeline.turn.number
        self._put_transcript(turn.role, turn.text, final=True, turn=number)
        if turn.role == "user":
            self._turn = number + 1
            return
        stored = timeline.turn.to_json(timeline.zero_ms)
        self._put({"type": "turn", **stored})
        self._turn = number + 1

    def on_tool(self, use: ToolRun) -> None:
        """Tell of a tool as it begins and when it has ended; it is a state while nobody speaks."""
        turn = max(self._turn, 1) if use.turn is None else use.turn
        self._put({"type": "tool", **asdict(use), "turn": turn})
        self._tools_running += 1 if use.end_ms is None else -1
        if self._tools_running and self._state == "thinking":
            self.set_state("tool")
        elif not self._tools_running and self._state == "tool":
            self.set_state("thinking")

    def on_transfer(self, on: bool) -> None:
        """A transfer is the only state until the caller is back with the agent, who then answers."""
        self.set_state("transferring" if on else "thinking")

    def on_partial_transcript(self, text: str) -> None:
        """Tell the caller's words so far. On any thread."""
        self._loop.call_soon_threadsafe(self._tell_partial, text)

    def _tell_partial(self, text: str) -> None:
        if text:
            self._put_transcript("user", text, final=False, turn=max(self._turn, 1))

    def _put_transcript(self, role: str, text: str, *, final: bool, turn: int) -> None:
        self._put({"type": "transcript", "role": role, "content": text, "final": final, "turn": turn})

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self.on_message()
