"""One response of the agent: text -> sentences -> speech -> playout, one sentence ahead of what is played.

The first sentence is played as soon as it is synthesized; while a sentence plays, the next one waits behind it in the
ring, so that there is no gap between them. A response may be prepared before it is certain that it will be given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from calls.call_record.timeline import CitedPassage, ResponseTiming, TimelineTurn, ToolTiming
from calls.call_record.transcript import ToolUse, TranscriptLine, played_text
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.tool_loop import EndCall, ResponsePart, SegmentEnd, SpeakText
from media.playout import Utterance
from models.protocols import ChatPrompt, SynthesizedSpeech
from models.text.sentence_splitter import SentenceSplitter

SENTENCES_AHEAD: Final = 1
"""Sentences that are ready behind the one that plays."""


class ResponseState(Enum):
    """Where a response stands.

    SPECULATIVE  -- confirm -------------------->  PREPARING
    PREPARING    -- its first sound is queued -->  SPEAKING
    PREPARING or SPEAKING  -- hold ------------->  HELD
    HELD  -- release -->  SPEAKING if it has started, else PREPARING
    PREPARING, SPEAKING or HELD  -- all of it is sent -->  FINISHED
    any  -- cancel -->  CANCELLED
    SPECULATIVE or CANCELLED  -- a model fails -->  FAILED
    """

    SPECULATIVE = auto()
    """It is made while the user's turn may still go on; nothing of it is heard."""
    PREPARING = auto()
    """It is given, unless the user speaks; none of its sound is queued for playout yet."""
    SPEAKING = auto()
    """Some of its sound was queued for playout."""
    HELD = auto()
    """No further sentence begins, because the user speaks."""
    FINISHED = auto()
    CANCELLED = auto()
    FAILED = auto()


@dataclass(frozen=True)
class ResponseOptions:
    """What is special about a response. `not_before`: `loop.time()` before which it stays silent. `uninterruptible`: a
    barge-in does not cut it. `scripted`: its text is fixed and does not depend on what the user says, so it is said in
    any case."""

    not_before: float = 0.0
    uninterruptible: bool = False
    scripted: bool = False


_SentenceOfLine = tuple[str, TranscriptLine]
"""A sentence, and the line of the transcript that it belongs to."""


@dataclass
class _QueuedSentence:
    speech: SynthesizedSpeech
    utterance: Utterance
    line: TranscriptLine


@dataclass(eq=False)
class AgentResponse:
    """What a response says is one line of the transcript, and a further line after each `SegmentEnd`. `prompt` is what
    the language model was asked, None for a fixed text. `on_line` is called before the first sound of each line. No
    sound of it is heard before `confirm`."""

    parts: AsyncGenerator[ResponsePart, None]
    output: SpeechOutput
    timing: ResponseTiming
    options: ResponseOptions = ResponseOptions()
    prompt: ChatPrompt | None = None
    on_line: Callable[[TranscriptLine], None] = lambda _: None
    next_action: EndCall | None = None
    """What the agent does once all of the response has been heard."""
    task: asyncio.Task[None] | None = None
    """Runs `run`; None while the response is speculative, and its task belongs to the speculation."""
    turn: TimelineTurn | None = None
    """The turn that it answers, once it is confirmed."""
    unconfirmed_uses: list[tuple[ToolUse, ToolTiming, tuple[CitedPassage, ...]]] = field(default_factory=list)
    """Tools that were used before it was confirmed."""
    _state: ResponseState = ResponseState.SPECULATIVE
    _sentences: list[_QueuedSentence] = field(default_factory=list)
    _unsent: list[Utterance] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _segments_generated: int = 0
    _segments_queued: int = 0  # all sentences of so many segments were queued for playout

    @property
    def state(self) -> ResponseState:
        """Where it stands."""
        return self._state

    @property
    def has_started(self) -> bool:
        """True once some of its sound was queued for playout."""
        return bool(self._sentences)

    @property
    def is_confirmed(self) -> bool:
        """True once it was confirmed, also when it was cancelled afterwards."""
        return self.turn is not None

    @property
    def is_due(self) -> bool:
        """True while it is being given: the call cannot go on when it fails."""
        return self._state in (ResponseState.PREPARING, ResponseState.SPEAKING, ResponseState.HELD)

    @property
    def heard_text(self) -> str:
        """What was heard of it at the last `update_transcript`."""
        lines = dict.fromkeys(sentence.line for sentence in self._sentences)
        return " ".join(line.text for line in lines if line.text)

    @property
    def heard_ms(self) -> float:
        """The length of its sound that was sent."""
        sent = sum(self.output.playout.played(sentence.utterance) for sentence in self._sentences)
        return sent * 1000 / self.output.settings.rate

    def confirm(self, turn: TimelineTurn) -> None:
        """It is given as the answer to this turn."""
        self.turn = turn
        self._enter(ResponseState.PREPARING)

    def hold(self) -> None:
        """Begin no further sentence for now: the user speaks."""
        if self._state in (ResponseState.PREPARING, ResponseState.SPEAKING):
            self._enter(ResponseState.HELD)

    def release(self) -> None:
        """Undo `hold`."""
        if self._state is ResponseState.HELD:
            self._enter(ResponseState.SPEAKING if self.has_started else ResponseState.PREPARING)

    def cancel(self) -> None:
        """Say nothing more of it. The caller of this method flushes the playout."""
        self._enter(ResponseState.CANCELLED)
        if self.task is not None:
            self.task.cancel()

    def fail(self) -> None:
        """It cannot be given: a model has failed."""
        self._enter(ResponseState.FAILED)

    async def wait_confirmed(self) -> None:
        """Wait for `confirm`."""
        await self._until(lambda: self.is_confirmed)

    async def wait_segments_queued(self) -> None:
        """Wait until all segments that were generated so far are queued for playout."""
        generated = self._segments_generated
        await self._until(lambda: self._segments_queued >= generated)

    def on_utterance_sent(self, utterance: Utterance) -> None:
        """An utterance, perhaps one of this response, was sent to its end."""
        if utterance in self._unsent:
            self._unsent.remove(utterance)
            self._changed.set()
            self.update_transcript()

    def update_transcript(self) -> None:
        """Set the transcript's lines to what was heard by now. Right also after the playout was flushed or closed."""
        texts: dict[TranscriptLine, list[str]] = {}
        for sentence in self._sentences:
            played = played_text(sentence.speech, self.output.playout.played(sentence.utterance))
            texts.setdefault(sentence.line, []).append(played)
        for line, parts in texts.items():
            line.text = " ".join(text for text in parts if text)

    async def run(self) -> None:
        """Give the response; returns when all of it has been sent. Cancelling stops it for good. Raises what a model
        raised, in an exception group."""
        sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._generate(sentences))
            await self._speak(sentences)
        await self.wait_confirmed()
        self._enter(ResponseState.FINISHED)

    async def _generate(self, sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None]) -> None:
        """Split the text of the parts into sentences."""
        splitter, line = SentenceSplitter(self.output.language), TranscriptLine("assistant", "")
        async with aclosing(self.parts):
            async for part in self.parts:
                match part:
                    case SpeakText(text):
                        self.timing.first_token()
                        for sentence in splitter.feed(text):
                            sentences.put_nowait((sentence, line))
                    case SegmentEnd():
                        if rest := splitter.finish():
                            sentences.put_nowait((rest, line))
                        self._segments_generated += 1
                        sentences.put_nowait(part)
                        line = TranscriptLine("assistant", "")
                    case EndCall():
                        self.next_action = part
                        break
        if rest := splitter.finish():
            sentences.put_nowait((rest, line))
        sentences.put_nowait(None)

    async def _speak(self, sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None]) -> None:
        """Synthesize the sentences and queue them for playout, in order."""
        while (item := await sentences.get()) is not None:
            if isinstance(item, SegmentEnd):
                self.output.playout.expect_more(False)
                self._segments_queued += 1
                self._changed.set()
                continue
            sentence, line = item
            speech = await self.output.synthesize(sentence)
            if len(speech.samples) == 0:
                continue
            self.timing.speech_ready()
            await self._wait_to_speak()
            self._queue(speech, line)
            await self._until(lambda: len(self._unsent) <= SENTENCES_AHEAD)
        self.output.playout.expect_more(False)
        await self._until(lambda: not self._unsent)

    async def _wait_to_speak(self) -> None:
        await self.wait_confirmed()
        wait_s = self.options.not_before - asyncio.get_running_loop().time()
        if not self.has_started and wait_s > 0:
            await asyncio.sleep(wait_s)
        await self._until(lambda: self._state is not ResponseState.HELD)

    def _queue(self, speech: SynthesizedSpeech, line: TranscriptLine) -> None:
        """Queue a sentence for playout, unless the one before it was flushed: then the cancellation is on its way."""
        playout = self.output.playout
        if self.has_started and self._sentences[-1].utterance.flushed:
            return
        if not self.has_started or self._sentences[-1].line is not line:
            self.on_line(line)
        playout.expect_more(True)
        utterance = playout.begin(speech.text)
        self.output.on_spoken(speech.text)
        self._sentences.append(_QueuedSentence(speech, utterance, line))
        self._unsent.append(utterance)
        playout.write(speech.samples)
        playout.end()
        self._enter(ResponseState.SPEAKING)

    def _enter(self, state: ResponseState) -> None:
        self._state = state
        self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()
