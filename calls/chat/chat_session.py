"""The session of one chat: the conversation of a call, with typed words in place of audio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from calls import metrics
from calls.call_record.context_variables import ContextValue, call_values
from calls.call_record.end_reason import end_status_of
from calls.call_record.metering import UsageMeter
from calls.call_record.outcome import CallOutcome
from calls.call_record.timeline import Timeline
from calls.call_record.transcript import Transcript
from calls.chat.chat_tools import ChatTransfers, record_end
from calls.chat.typed_input import TypedInput
from calls.chat.written_output import WrittenOutput, WrittenPlayout
from calls.conversation.checkpoint import Checkpoint
from calls.conversation.conversation import Conversation
from calls.conversation.event_queue import EventQueue
from calls.conversation.response_generator import LlmWithTools
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.session.agent_config import conversation_config, models_for
from calls.session.answer_storage import store_answer
from calls.session.call_listener import CallListener
from calls.session.call_snapshot import CallSnapshot
from calls.session.dependencies import CallDependencies
from calls.session.lifecycle import CallLifecycle
from calls.session.live_transcript import store_progress
from calls.tools.builtin_tools import builtin_toolset, load_toolset
from calls.tools.http_tool import CallContext
from calls.tools.toolset import ToolSet
from config.clock import utc_now
from config.errors import Conflict, FieldProblem, Invalid, Unavailable
from models.runtime.request_context import ModelFallback, RequestContext, requests_for
from sipcore.dialogs.call_leg import CallLeg
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason, TranscriptItem
from storage.calls.transfers import Transfer, TransferOrder
from storage.database.errors import StorageUnavailable

IDLE_S: Final = 600.0
"""Time without a message after which a chat ends."""
MAX_TURNS: Final = 200
"""Turns of the user in one chat."""
OPENING_S: Final = 30.0
"""How long `wait_opening` waits for the agent's first message."""
REPLY_S: Final = 50.0
"""How long `send` waits for the agent's answer: less than the time for a request."""
RETRY_AFTER_S: Final = 5
HAS_ENDED: Final = "The conversation has ended"
NO_AUDIO: Final = "A chat has no audio"

log = structlog.get_logger()


@dataclass(frozen=True)
class ChatReply:
    """The agent's answer to a message. `turn` is that of the user, from 1. `response_gap_ms` is the time until the
    first sentence, None without one; `duration_ms` that until the answer was complete. `tools` and `sources` are those
    of the timeline, tools with `duration_ms`. `ended`: the agent has ended the conversation."""

    turn: int
    content: str
    response_gap_ms: int | None
    duration_ms: int
    tools: Sequence[dict[str, Any]]
    sources: Sequence[dict[str, Any]]
    ended: bool


class ChatSession:
    """`run` runs a chat that was stored until its end is stored; `send` takes a message; `end` ends it from outside."""

    has_leg: Final = False

    def __init__(
        self, call: Call, agent: Agent, deps: CallDependencies, on_over: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_over` is called with its id when it takes no more messages."""
        self._on_over = on_over
        self.call: Call = call
        self._agent = agent
        self._deps = deps
        self._live = deps.live_calls.of(call)
        self._lifecycle = CallLifecycle()
        self._meter = UsageMeter()
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        """The conversation is idle, or over."""
        self._over = False
        self._conversation: Conversation | None = None
        self._input: TypedInput | None = None
        self._prefetch: KnowledgePrefetch | None = None
        self._checkpoints: list[Checkpoint] = []
        """Before each turn of the user."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._log = log.bind(call_id=call.id)

    def snapshot(self) -> CallSnapshot:
        """The state of the chat at this moment."""
        return CallSnapshot(self.call, answered_at=self._lifecycle.answered_at)

    def end(self, reason: EndedReason) -> None:
        """End the chat; the first reason counts."""
        self._lifecycle.end(reason)

    async def transfer(self, order: TransferOrder) -> Transfer:
        """Raises `Conflict`: nobody can be transferred."""
        raise Conflict(NO_AUDIO)

    def whisper(self, text: str, author: str) -> None:
        """Raises `Conflict`: the user can write to the agent."""
        raise Conflict(NO_AUDIO)

    def check_takeover(self) -> None:
        """Raises `Conflict`: nobody can speak in the agent's place."""
        raise Conflict(NO_AUDIO)

    def take_over(self, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """Raises `Conflict`: nobody can speak in the agent's place."""
        raise Conflict(NO_AUDIO)

    def listen(self) -> CallListener:
        """Raises `Conflict`: there is nothing to hear."""
        raise Conflict(NO_AUDIO)

    def set_held(self, on: bool) -> None:
        """Raises `Conflict`: there is nothing to hold."""
        raise Conflict(NO_AUDIO)

    async def wait_opening(self) -> list[TranscriptItem]:
        """Wait for the agent's first message, for `OPENING_S` at most. Returns the transcript so far."""
        await self._wait_settled(OPENING_S)
        return [] if self._conversation is None else self._conversation.transcript.items()

    async def send(self, content: str, edit_turn: int | None = None) -> ChatReply:
        """Take a message of the user, in place of an earlier one and all that came after it if `edit_turn` is its
        number; returns the agent's answer. Raises `Conflict` while another message is answered and after the end,
        `Invalid` for an unknown `edit_turn`, `Unavailable` if the answer takes too long: it goes on."""
        conversation, typed = self._conversation, self._input
        if self._lifecycle.is_ending or self._over:
            raise Conflict(HAS_ENDED)
        if conversation is None or typed is None or not self._settled.is_set():
            raise Conflict("A message is being answered")
        if edit_turn is None:
            self._require_room()
        else:
            self._rewind(conversation, edit_turn)
        before = conversation.checkpoint()
        self._checkpoints.append(before)
        self._settled.clear()
        self._set_idle_timer(None)
        items = len(conversation.transcript.items())
        began_ms = _now_ms()
        self._log.info("chat.message", turn=before.turn_count + 1, edited=edit_turn is not None)
        try:
            if self._prefetch is not None:
                await self._prefetch.prefetch(content)
        finally:  # also if the client goes away: the turn is taken
            typed.type(content)
        if not await self._wait_settled(REPLY_S):
            raise Unavailable("The agent has not answered yet", RETRY_AFTER_S)
        if self._lifecycle.reason not in (None, "agent_ended", "error"):
            raise Conflict(HAS_ENDED)
        turns = conversation.timeline.items()[before.entry_count :]
        words = [item["content"] for item in conversation.transcript.items()[items:] if item["role"] == "assistant"]
        return ChatReply(
            turn=before.turn_count + 1,
            content=" ".join(words),
            response_gap_ms=turns[0]["response_gap_ms"] if turns else None,
            duration_ms=round(_now_ms() - began_ms),
            tools=[
                {**tool, "duration_ms": tool["end_ms"] - tool["start_ms"]} for turn in turns for tool in turn["tools"]
            ],
            sources=[source for turn in turns for source in turn["sources"]],
            ended=self._over,
        )

    async def run(self) -> None:
        """Hold the conversation, store the end. Raises `StorageUnavailable` if the end could not be stored."""
        try:
            await self._converse()
        except Exception as error:  # noqa: BLE001 - it ends this chat alone
            self._log.error("call.failed", error=repr(error), exc_info=error)
            self.end("error")
        self._over = True
        self._on_over(self.call.id)
        self._settled.set()
        self._set_idle_timer(None)
        try:
            await self._deps.finalizer.finish(self.call.id, self._outcome(await self._lifecycle.ending), self._agent)
        finally:
            self._lifecycle.mark_ended()

    async def _converse(self) -> None:
        """Hold the conversation until it is to end; then its reason is known."""
        self._lifecycle.mark_answered()
        self._lifecycle.mark_active()
        conversation = self._conversation = await self._open()
        self._log.info("chat.opened", agent=self._agent.id)
        self._set_idle_timer(IDLE_S)

        def on_fallback(fallback: ModelFallback) -> None:
            metrics.count_fallback(fallback)
            conversation.timeline.add_fallback(fallback)

        context = RequestContext(self.call.organization_id, self._agent.id, self.call.id, True, on_fallback)
        try:
            async with asyncio.TaskGroup() as group:
                with requests_for(context):
                    running = group.create_task(conversation.run())
                storing = group.create_task(self._store_progress(conversation))
                await asyncio.wait((running, self._lifecycle.ending), return_when=asyncio.FIRST_COMPLETED)
                if running.done() and not self._lifecycle.is_ending:
                    reason = running.result()
                    if reason == "agent_ended":
                        record_end(conversation.timeline)
                    self.end(reason)
                for task in (running, storing):
                    task.cancel()
        finally:
            conversation.close()

    async def _open(self) -> Conversation:
        agent, call = self._agent, self.call
        models = models_for(agent, self._deps.models)
        values = call_values(
            call.context_variables, call_id=call.id, customer_number=call.customer_number, phone_number=""
        )
        config = conversation_config(agent, values, call.id)
        tools = await self._load_tools(values)
        self._prefetch = tools.knowledge_prefetch
        events, transfers = EventQueue(self._live.on_event), ChatTransfers()
        timeline = Timeline(_now_ms(), _now_ms)
        transfers.timeline = timeline
        self._input = TypedInput(events, _now_ms)
        return Conversation(
            call_id=call.id,
            config=replace(config, user_idle_ms=0, first_message_delay_ms=0, announcement=None),
            events=events,
            stt=self._input,
            llm=LlmWithTools(models.llm, tools, self._meter),
            output=WrittenOutput(
                WrittenPlayout(events, _now_ms),
                agent.language_hint or models.tts.language_of(models.voice_name),
                self._meter.count_spoken,
            ),
            timeline=timeline,
            set_uninterruptible=lambda _: None,
            on_progress=self._changed.set,
            transfers=transfers,
            on_turn=lambda turn: self._live.on_turn(turn, timeline),
            on_tool=self._live.on_tool,
            on_idle=self._on_idle,
        )

    async def _load_tools(self, values: dict[str, ContextValue]) -> ToolSet:
        """Returns the agent's tools; only the built-in ones if the database cannot be read."""
        try:
            return await load_toolset(
                self._agent,
                CallContext(self.call.id, values),
                database=self._deps.database,
                http_access=self._deps.tool_http,
                send_digits=_press_keys,
                knowledge_search=self._deps.knowledge_search,
                can_transfer=True,
            )
        except StorageUnavailable as error:
            self._log.warning("call.without_own_tools", cause=error.cause)
            return builtin_toolset(self._agent, self.call.id, _press_keys)

    async def _store_progress(self, conversation: Conversation) -> None:
        stored = await store_answer(self._deps, self.call, self._agent, self.call.created_at, deferrable=True)
        await store_progress(
            self._deps.database, self.call.id, conversation, self._meter, changed=self._changed, rules=stored.rules
        )

    def _on_idle(self) -> None:
        if not self._settled.is_set():
            self._settled.set()
            self._set_idle_timer(IDLE_S)

    async def _wait_settled(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    def _require_room(self) -> None:
        if len(self._checkpoints) >= MAX_TURNS:
            raise Conflict(f"The conversation has {MAX_TURNS} turns, and takes no more: edit one, or begin another")

    def _rewind(self, conversation: Conversation, edit_turn: int) -> None:
        """Drop the turn and what came after it."""
        if edit_turn > len(self._checkpoints):
            raise Invalid([FieldProblem("editTurn", "The conversation has no such turn")])
        conversation.rewind(self._checkpoints[edit_turn - 1])
        self._live.on_rewind(edit_turn - 1)
        del self._checkpoints[edit_turn - 1 :]

    def _set_idle_timer(self, seconds: float | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if seconds is not None:
            self._idle_timer = asyncio.get_running_loop().call_later(seconds, self.end, "customer_silent")

    def _outcome(self, reason: EndedReason) -> CallOutcome:
        conversation = self._conversation
        transcript = Transcript() if conversation is None else conversation.transcript
        return CallOutcome(
            status=end_status_of(reason, answered=True),
            reason=reason,
            answered_at=self._lifecycle.answered_at,
            ended_at=self._lifecycle.ended_at or utc_now(),
            transcript=transcript.items(),
            timeline=[] if conversation is None else conversation.timeline.items(),
            turn_count=transcript.turn_count,
            usage=self._meter.usage(),
        )


def _now_ms() -> float:
    return time.monotonic() * 1000


async def _press_keys(_keys: str) -> None:
    """Nobody hears the keys."""
