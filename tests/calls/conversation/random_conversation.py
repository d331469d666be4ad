"""A conversation with random events: the caller's speech, noises, backchannels and DTMF, the models' delays, and tool
calls. Turn taking, playout and conversation are the real ones; time is virtual.

Each word of the agent has a sample value of its own, so that the samples sent show which words of which response were
played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

import numpy as np

from calls.call_record.timeline import Timeline
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.dtmf_collector import DtmfEntry
from calls.conversation.event_queue import EventQueue
from calls.conversation.response_generator import LlmWithTools
from calls.conversation.speech_output import SpeechOutput
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.tools.builtin_tools import EndCallTool
from calls.tools.toolset import CallableTool, ToolSet
from media.audio_port import TICK_MS
from media.engine.call_audio import CallEvent, UtterancePlayed
from media.playout import Playout
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turn_taking.settings import TurnSettings
from media.turn_taking.turn_detector import TurnDetector
from models.protocols import (
    ChatPrompt,
    VoiceSettings,
)
from tests.calls.conversation.random_models import (
    RATE,
    WORD_MS,
    RandomKnowledge,
    RandomLlm,
    RandomStt,
    RandomTool,
    RandomTts,
    answer_of,
)
from tests.fakes.fake_audio_port import ArrayPort

USER_WORD_MS = 250
"""The caller says a word in this time."""
TALK_MS = 20_000
"""In which the caller does something now and then."""
QUIET_MS = 60_000
"""Afterwards: nothing takes so long."""
LATE_NEWS_MS = 130.0
"""Events reach the conversation within this time, and what it writes leaves with the next tick."""
REST_MS = 4_000
"""No model takes so long."""

Kind = Literal["speech", "cough", "nod"]
KINDS: tuple[Kind, ...] = ("speech", "cough", "nod")


@dataclass(frozen=True)
class Act:
    """An action of the caller at a time, ms of the call."""

    kind: Kind
    start_ms: int
    stop_ms: int
    words: tuple[tuple[int, str], ...] = ()
    """When each is complete, and the word."""


class RandomCall:
    """One call with random events by `seed`. `run` runs and checks it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.config = ConversationConfig(
            system_prompt="s",
            greeting=chance.choice([None, "Good morning to you all."]),
            speaks_first=chance.random() < 0.5,
            first_message_delay_ms=chance.choice([0, 0, 700]),
            first_message_uninterruptible=chance.random() < 0.3,
            user_idle_ms=chance.choice([0, 0, 5000]),
        )
        settings = TurnSettings(
            turn_endpoint_delay=chance.choice([60, 100, 300, 700]),
            min_interruption_duration=chance.choice([0, 100, 300]),
            post_speech_cooldown=chance.choice([0, 400]),
            ultravad_eot_threshold=chance.choice([None, 0.1, 0.5]),
            speculative_silence_ms=chance.choice([None, 0, 60, 150, 400]),
            fallback_silence_ms=chance.choice([500, 3000]),
        )
        self.acts = self._acts()
        self.port = ArrayPort(start_ms=0)
        self.slot = self.port.open(RATE)
        self.playout = Playout(self.port, self.slot)
        self.turn_detector = TurnDetector(settings, TICK_MS, chance.choice([0, 40]))
        self.events = EventQueue()
        self.llm, self.tts, self.stt = RandomLlm(self), RandomTts(self), RandomStt(self)
        self.knowledge_prefetch = KnowledgePrefetch(RandomKnowledge(self), "agent") if chance.random() < 0.7 else None
        tools: list[CallableTool] = [
            RandomTool(self, "look", has_effects=False),
            RandomTool(self, "act", has_effects=True),
            EndCallTool(),
        ]
        toolset = ToolSet(tools, knowledge_prefetch=self.knowledge_prefetch)
        self.conversation = Conversation(
            call_id="c",
            config=self.config,
            events=self.events,
            stt=self.stt,
            llm=LlmWithTools(self.llm, toolset),
            output=SpeechOutput(self.tts, VoiceSettings("world/one", 1.0, 0.5, RATE), self.playout),
            timeline=Timeline(0.0, lambda: self.now_ms),
            set_uninterruptible=lambda on: self._orders.append(partial(self._protect, on)),
        )
        self._orders: list[Callable[[], tuple[TurnEvent, ...]]] = []
        self._protected = self._audible = False
        self._taken = 0
        self._rests_since_ms = 0.0
        self._open_since_ms: float | None = None
        self._silent_since_ms = float("-inf")
        self._batch: list[CallEvent] = []
        self._delivered_s = 0.0
        self._cuts: list[tuple[int, frozenset[str]]] = []

    @property
    def now_ms(self) -> float:
        """Virtual ms since the call began."""
        return asyncio.get_running_loop().time() * 1000

    async def takes(self, most_ms: int) -> None:
        """Returns a random delay: often 0, rarely long."""
        if self.chance.random() < 0.7:
            await asyncio.sleep(self.chance.random() ** 2 * most_ms / 1000)

    async def run(self) -> None:
        """Run the call and a long silence after it. Raises `AssertionError` if an invariant is broken."""
        loop = asyncio.get_running_loop()
        for act in self.acts:
            self._expect_words(act, loop)
        for _ in range(self.chance.choice([0, 0, 1, 3])):
            digits = DtmfEntry(str(self.chance.randint(0, 99)))
            loop.call_later(self.chance.random() * TALK_MS / 1000, self.events.put, digits)
        talking = loop.create_task(self.conversation.run())
        while not talking.done() and not self._is_over():
            await asyncio.sleep(TICK_MS / 1000)
            self._tick(loop)
        try:
            self._check_the_end(talking)
        finally:
            talking.cancel()
            await asyncio.wait((talking,))

    def _is_over(self) -> bool:
        """True if nothing has happened for a while and nothing is scheduled, or at the time limit."""
        rests = self.turn_detector.idle and not (
            self._audible or self.config.user_idle_ms or self.conversation._response
        )
        if not rests:
            self._rests_since_ms = self.now_ms
        calm = self.now_ms - self._rests_since_ms > REST_MS
        return self.now_ms > TALK_MS + (REST_MS if calm else QUIET_MS)

    def _acts(self) -> list[Act]:
        """Yields the caller's actions, with pauses of all lengths, some during the agent's speech."""
        acts, at, number = list[Act](), self.chance.randint(0, 3000), 0
        while at < TALK_MS:
            kind: Kind = self.chance.choices(KINDS, (5, 4, 2))[0]
            if kind == "speech":
                spoken = self.chance.randint(1, 6)
                words = tuple((at + (word + 1) * USER_WORD_MS, f"u{number + word}") for word in range(spoken))
            else:
                words = ((at + 300, f"u{number}"),) if kind == "nod" else ()
            stop = words[-1][0] if words else at + self.chance.choice([40, 120, 400])
            acts.append(Act(kind, at, stop, words))
            number += len(words)
            at = stop + self.chance.choice([60, 120, 200, 300, 500, 900, 1500, 2500, 5000])
        return acts

    def _expect_words(self, act: Act, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule the recognizer's events for words, some time after they were spoken."""
        for at, _ in act.words:
            late_ms = self.chance.randint(50, 450)
            news = partial(self._hears_words, act.kind == "nod")
            loop.call_later((at + late_ms) / 1000, self._orders.append, news)

    def _hears_words(self, backchannel: bool) -> tuple[TurnEvent, ...]:
        if self.knowledge_prefetch is not None:
            self.knowledge_prefetch.on_partial_transcript(self.stt.partial())
        return self.turn_detector.on_transcript(self.now_ms, backchannel)

    def _protect(self, on: bool) -> tuple[TurnEvent, ...]:
        self._protected = on
        return self.turn_detector.set_uninterruptible(on)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work of pump and tick thread for 20 ms."""
        self.port.step()
        now, orders = self.now_ms, self._orders[:]
        self._orders.clear()
        for order in orders:
            self._apply(order())
        taken = self.port.sent_position(self.slot)
        sending = self.port.written_position(self.slot) > taken or taken != self._taken
        self._taken = taken
        self._batch += [UtterancePlayed(now, utterance) for utterance in self.playout.advance(taken, now)]
        audible = sending or self.playout.more_expected
        quiet_ms = min((now - act.stop_ms for act in self.acts if act.start_ms < now), default=now)
        speaks = quiet_ms < 0
        if speaks or not self.turn_detector.idle:
            self._apply(self.turn_detector.on_vad_window(now, float(speaks), TICK_MS, audible, max(quiet_ms, 0.0)))
        if not self.turn_detector.idle or audible != self._audible:
            self._audible = audible
            self._apply(self.turn_detector.on_tick(now, audible, now, max(quiet_ms, 0.0)))
        self._deliver(loop)

    def _apply(self, events: Sequence[TurnEvent]) -> None:
        """Apply an event as the engine does."""
        for event in events:
            match event:
                case PlayoutPaused():
                    self.playout.pause(True)
                case PlayoutResumed():
                    self.playout.pause(False)
                case BargeIn():
                    assert not self._protected, "an uninterruptible response was interrupted"
                    self.playout.block()
                    self._cuts.append((len(self._heard()), frozenset(map(answer_of, self._heard()))))
                case TurnDropped():
                    self.stt.reset()
                case AskEndOfTurn():
                    self._judge(event.at_ms)
                case _:
                    pass
            self._watch(event)
            self._batch.append(event)

    def _watch(self, event: TurnEvent) -> None:
        """Check that the agent does not begin to speak while the caller does."""
        match event:
            case SpeechStarted():
                self._open_since_ms = event.at_ms
            case TurnDropped() | TurnEnded():
                self._open_since_ms = None
            case AgentStopped(at_ms):
                self._silent_since_ms = at_ms
            case AgentStarted(at_ms):
                spoken_ms = 0.0 if self._open_since_ms is None else at_ms - self._open_since_ms
                silent_ms = at_ms - self._silent_since_ms  # else it is a short pause
                assert min(spoken_ms, silent_ms) <= LATE_NEWS_MS, "the agent began to speak while the caller spoke"
            case _:
                pass

    def _judge(self, asked_ms: float) -> None:
        """Answer the end-of-turn question at once, late, or never."""
        p = self.chance.choice([None, 0.0, 0.3, 0.9])
        late_s = self.chance.choice([0.0, 0.03, 0.3, None])
        if late_s is not None:
            later = asyncio.get_running_loop().call_later
            later(late_s, self._orders.append, lambda: self.turn_detector.on_end_of_turn(self.now_ms, p, asked_ms))

    def _deliver(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver the events of a tick in order, some ms later."""
        if self._batch:
            batch, self._batch = self._batch, []
            self._delivered_s = max(
                self._delivered_s + 1e-6, loop.time() + self.chance.choice([0.0, 0.001, 0.025, 0.07])
            )
            loop.call_at(self._delivered_s, self._reach, batch)

    def _reach(self, batch: list[CallEvent]) -> None:
        self.events.on_media_events(batch)
        if any(isinstance(event, BargeIn) for event in batch):
            self.playout.unblock()

    # Invariants.

    def check_prompt(self, prompt: ChatPrompt) -> None:
        """Check that the prompt has the agent's played words, and no others. (While it waits for a tool there may be
        further words of the same response.)"""
        self._check_recalled(prompt)
        if prompt.messages and prompt.messages[-1].role == "tool":
            return
        own = [word for message in prompt.messages if message.role == "assistant" for word in message.content.split()]
        assert own == self._heard(), f"the model's own words: {own} instead of {self._heard()}"

    def _check_recalled(self, prompt: ChatPrompt) -> None:
        """Check that passages precede the caller's words, each once."""
        calls = [call.id for message in prompt.messages for call in message.tool_calls]
        recalled = [each for each in calls if each.startswith("recalled_")]
        assert recalled == [f"recalled_{number}" for number in range(1, len(recalled) + 1)]
        passages = [line for message in prompt.messages for line in message.content.splitlines() if "passage" in line]
        assert len(passages) == len(set(passages)) >= len(recalled), "a passage is in the prompt twice"

    def _heard(self) -> list[str]:
        """Returns the words that were sent completely, in order."""
        sent = self.port.sent(self.slot)
        sounding = sent[sent != 0]
        changes = np.flatnonzero(np.diff(sounding)) + 1
        spells = np.split(sounding, changes) if len(sounding) else []
        return [self.tts.words[int(spell[0])] for spell in spells if len(spell) == RATE * WORD_MS // 1000]

    def _check_the_end(self, talking: asyncio.Task[str]) -> None:
        if talking.done():
            assert talking.result() == "agent_ended" or self.config.user_idle_ms
            spoken_ms = 0.0 if self._open_since_ms is None else self.now_ms - self._open_since_ms
            assert spoken_ms <= LATE_NEWS_MS, "the agent hung up on the caller"
        else:
            assert not self.config.user_idle_ms, "the call of an idle caller did not end"
            assert self.turn_detector.idle, f"the turn taking is stuck in {self.turn_detector.state}"
            assert self.conversation._response is None and self.conversation._speculative is None, "a response is stuck"
        assert not self.port.paused(self.slot), "the playout is stuck"
        items = self.conversation.transcript.items()
        own = [word for item in items if item["role"] == "assistant" for word in item["content"].split()]
        assert own == self._heard(), f"the transcript: {own} instead of {self._heard()}"
        self._check_nothing_comes_late()
        self._check_the_callers_words([item["content"] for item in items if item["role"] == "user"])

    def _check_nothing_comes_late(self) -> None:
        heard = self._heard()
        for count, cut in self._cuts:
            late = [word for word in heard[count:] if answer_of(word) in cut and answer_of(word)]
            assert not late, f"words of a cut response: {late}"

    def _check_the_callers_words(self, lines: Sequence[str]) -> None:
        said = [int(word[1:]) for line in lines for word in line.split() if word.startswith("u")]
        assert said == sorted(set(said)), f"the caller's words came twice or in disorder: {said}"
        if lines:
            asked = [message.content for prompt in self.llm.prompts for message in prompt.messages]
            assert lines[-1] in asked, "the last turn was never answered"
