"""Scripted models, and a conversation whose audio a test advances tick by tick."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import uuid4

import numpy as np

from calls.call_record import turn_metrics
from calls.call_record.metering import UsageMeter
from calls.call_record.timeline import Timeline
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.event_queue import EventQueue, UserIdle
from calls.conversation.response_generator import LlmWithTools
from calls.conversation.speech_output import SpeechOutput
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.tools.builtin_tools import EndCallTool
from calls.tools.toolset import CallableTool, ToolSet
from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import UtterancePlayed
from media.playout import Playout
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    BargeIn,
    SpeculativeTurnEnd,
    SpeechResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from models.loading.catalogue import Catalogue, LanguageModelInfo
from models.protocols import (
    ChatPrompt,
    LanguageModel,
    LlmOutput,
    SpeechToTextStream,
    SynthesizedSpeech,
    TextDelta,
    VoiceSettings,
    WordTiming,
)
from tests.fakes.fake_audio_port import ArrayPort

RATE = 8000
WORD_MS = 100
"""Duration of each word of the scripted text to speech."""


class ScriptedLlm:
    """A language model with scripted answers, one after the other; each is a text, a list of parts, or an error to
    raise. Answers wait until `gate` is set."""

    name = "scripted"

    def __init__(self, *answers: str | Sequence[LlmOutput] | Exception) -> None:
        self.answers = deque(answers)
        self.prompts: list[ChatPrompt] = []
        self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.prompts.append(prompt)
        answer = self.answers.popleft()
        try:
            await self.gate.wait()
            if isinstance(answer, Exception):
                raise answer
            for part in [TextDelta(answer)] if isinstance(answer, str) else answer:
                yield part
        finally:
            self.closed += 1


class ScriptedTts:
    """A text-to-speech model whose words are `WORD_MS` of a constant. Sentences after the first `ungated_sentences`
    wait until `gate` is set."""

    name = "scripted"

    def __init__(self) -> None:
        self.spoken: list[str] = []
        self.ungated_sentences = 1_000
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self._requested = asyncio.Event()

    async def until_spoken(self, sentences: int) -> None:
        """Waits, in real time, until `sentences` sentences were requested."""
        async with asyncio.timeout(5):
            while len(self.spoken) < sentences:
                self._requested.clear()
                await self._requested.wait()
        await settle()

    def voices(self) -> Sequence[str]:
        return ("scripted/one",)

    def language_of(self, voice: str) -> str | None:
        """None for `scripted/one`; all other voices have the name of their language."""
        tag = voice.removeprefix("scripted/")
        return None if tag == "one" else tag

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        if self.error is not None:
            raise self.error
        self.spoken.append(text)
        self._requested.set()
        if len(self.spoken) > self.ungated_sentences:
            await self.gate.wait()
        per_word = settings.rate * WORD_MS // 1000
        words, end = [], 0
        for number, word in enumerate(text.split(), 1):
            end = text.index(word, end) + len(word)
            words.append(WordTiming(end, number * per_word))
        return SynthesizedSpeech(text, np.full(len(words) * per_word, 1000, np.int16), settings.rate, words)


class ScriptedSttStream:
    """A speech-to-text stream with scripted texts. `fed` is the number of samples of the current turn. The text of a
    turn waits until `gate` is set; `end_turn_error` is raised instead."""

    def __init__(self, texts: deque[str], on_words: Callable[[str], None]) -> None:
        self.texts = texts
        self.on_words = on_words
        self.fed = 0
        self.turns: list[int] = []
        self.flush_text = ""
        self.partial_text = "..."
        self.flush_error: Exception | None = None
        self.end_turn_error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    def feed(self, samples: Samples) -> None:
        if self.fed == 0:
            self.on_words("...")
        self.fed += len(samples)

    def partial(self) -> str:
        return self.partial_text

    async def flush(self) -> str:
        if self.flush_error is not None:
            raise self.flush_error
        return self.flush_text

    async def end_turn(self) -> str:
        self.turns.append(self.fed)
        self.fed = 0
        if self.end_turn_error is not None:
            raise self.end_turn_error
        await self.gate.wait()
        return self.texts.popleft() if self.texts else ""

    def reset(self) -> None:
        self.fed = 0

    def close(self) -> None:
        self.closed = True


class ScriptedStt:
    """A speech-to-text model whose `ScriptedSttStream`s share one queue of texts."""

    name = "scripted"

    def __init__(self, *texts: str) -> None:
        self.texts = deque(texts)
        self.streams: list[ScriptedSttStream] = []
        self.hot_words: Sequence[str] = ()

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        self.hot_words = hot_words
        stream = ScriptedSttStream(self.texts, on_words)
        self.streams.append(stream)
        return stream


class AlwaysEndOfTurn:
    """An end-of-turn model for which every turn has ended; it is also its own stream."""

    name = "always"
    latency_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> AlwaysEndOfTurn:
        return self

    def feed(self, samples: Samples) -> None:
        pass

    def ask(self, answer: Callable[[float | None], None]) -> None:
        answer(1.0)

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


def scripted_catalogue(llm: LanguageModel, stt: ScriptedStt, tts: ScriptedTts) -> Catalogue:
    """A catalogue of scripted models."""
    info = LanguageModelInfo(uuid4(), "scripted", "builtin", 1000, True)
    return Catalogue(stt, {info: llm}, [tts], AlwaysEndOfTurn())


async def settle() -> None:
    """Runs the callbacks of the event loop that are ready."""
    for _ in range(30):
        await asyncio.sleep(0)


class ScriptedCall:
    """A conversation with a real playout on an array port. The test controls the caller and the clock."""

    def __init__(
        self,
        config: ConversationConfig,
        *answers: str | Sequence[LlmOutput] | Exception,
        tools: Sequence[CallableTool] = (),
        may_end_call: bool = True,
        model: LanguageModel | None = None,
        knowledge_prefetch: KnowledgePrefetch | None = None,
    ) -> None:
        """`model` replaces the scripted `answers`."""
        self.port = ArrayPort()
        self.slot = self.port.open(RATE)
        self.playout = Playout(self.port, self.slot)
        self.llm = ScriptedLlm(*answers)
        self.tts = ScriptedTts()
        self.stt = ScriptedSttStream(deque(), lambda _: None)
        self.protected: list[tuple[bool, int]] = []
        self.events = EventQueue()
        self.meter = UsageMeter()
        self._audible = False
        self.conversation = Conversation(
            call_id="c1",
            config=config,
            events=self.events,
            stt=self.stt,
            llm=LlmWithTools(
                model or self.llm,
                ToolSet([*tools, *([EndCallTool()] if may_end_call else [])], knowledge_prefetch=knowledge_prefetch),
                self.meter,
            ),
            output=SpeechOutput(
                self.tts, VoiceSettings("scripted/one", 1.0, 0.5, RATE), self.playout, on_spoken=self.meter.count_spoken
            ),
            timeline=Timeline(self.port.now_ms, lambda: self.port.now_ms, turn_metrics.observe),
            set_uninterruptible=lambda on: self.protected.append((on, self.port.written_position(self.slot))),
        )
        self.run = asyncio.ensure_future(self.conversation.run())

    @property
    def items(self) -> list[tuple[str, str]]:
        """The transcript as (role, content)."""
        return [(item["role"], item["content"]) for item in self.conversation.transcript.items()]

    @property
    def written_ms(self) -> int:
        """Duration of all audio that was written to the port."""
        return self.port.written_position(self.slot) * 1000 // RATE

    async def starts_speaking(self) -> None:
        """The caller's speech begins."""
        now = float(self.port.now_ms)
        self.events.on_media_events([SpeechStarted(now, now)])
        await settle()

    async def stops_speaking(self, text: str) -> None:
        """The caller's turn ends; `text` was recognized."""
        now = float(self.port.now_ms)
        self.stt.texts.append(text)
        self.events.on_media_events([TurnEnded(now, now - 500, now, "model")])
        await settle()

    async def falls_silent(self, text: str) -> None:
        """The caller is silent and may have finished its turn; `text` was recognized so far."""
        self.stt.flush_text = text
        self.events.on_media_events([SpeculativeTurnEnd(self.port.now_ms)])
        await settle()

    async def goes_on(self) -> None:
        """The caller resumes its speech after a pause."""
        self.events.on_media_events([SpeechResumed(self.port.now_ms)])
        await settle()

    def times_out(self) -> None:
        """The idle timer expires."""
        self.events.put(UserIdle())

    async def makes_noise(self) -> None:
        """The speech that began is dropped as noise."""
        self.events.on_media_events([TurnDropped(self.port.now_ms, "short")])
        await settle()

    async def says(self, text: str) -> None:
        """A complete turn of the caller."""
        await self.starts_speaking()
        await self.stops_speaking(text)

    async def interrupts(self) -> None:
        """The caller barges in: the engine flushes the playout at once; its events come afterwards."""
        now = float(self.port.now_ms)
        self.playout.flush()
        self.events.on_media_events([SpeechStarted(now, now), BargeIn(now, now)])
        await settle()

    async def play(self, ms: int) -> None:
        """Advances the clock by `ms`, in which the agent's audio is sent."""
        for _ in range(ms // TICK_MS):
            await self._tick()

    async def _tick(self) -> None:
        before = self.port.sent_position(self.slot)
        self.port.step()
        taken = self.port.sent_position(self.slot)
        now = float(self.port.now_ms)
        if taken > before and not self._audible:
            self.events.on_media_events([AgentStarted(now)])
        if taken == before and self._audible:
            self.events.on_media_events([AgentStopped(now)])
        self._audible = taken > before
        sent = [UtterancePlayed(now, utterance) for utterance in self.playout.advance(taken, now)]
        if sent:
            self.events.on_media_events(sent)
        await settle()

    async def close(self) -> None:
        """Ends the conversation if it has not ended."""
        self.run.cancel()
        await asyncio.wait((self.run,))
