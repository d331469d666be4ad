"""One response of the agent: text -> sentences -> speech -> playout, one sentence ahead of what is played.

The first sentence is played as soon as it is synthesized; while a sentence plays, the next one waits behind it in the
ring, so that there is no gap between them. A response may be prepared speculatively, and is played once it is
confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from calls.call_record.timeline import CitedPassage, ResponseTiming, TimelineTurn, ToolTiming
from calls.call_record.transcript import ToolUse, TranscriptLine, played_text, word_starts
from calls.conversation.speech_output import AgentOutput
from calls.conversation.tool_loop import EndCall, LastPart, ResponsePart, SegmentEnd, SpeakText, StartTransfer
from media.playout import Utterance
from models.protocols import ChatPrompt, SynthesizedSpeech
from models.text.sentence_splitter import SentenceSplitter

SENTENCES_AHEAD: Final = 1
"""Sentences that wait behind the one that plays."""


class ResponseState(Enum):
    """The state of a response.

    SPECULATIVE  -- confirm -------------------->  PREPARING
    PREPARING    -- its first audio is queued -->  SPEAKING
    PREPARING or SPEAKING  -- suspend ---------->  SUSPENDED
    SUSPENDED  -- resume -->  SPEAKING if it has started, else PREPARING
    PREPARING, SPEAKING or SUSPENDED  -- all of it is sent -->  FINISHED
    any  -- cancel -->  CANCELLED
    SPECULATIVE or CANCELLED  -- a model fails -->  FAILED
    """

    SPECULATIVE = auto()
    """It is generated while the user's turn may still go on; nothing of it is played."""
    PREPARING = auto()
    """It is confirmed; none of its audio is queued for playout yet."""
    SPEAKING = auto()
    """Some of its audio was queued for playout."""
    SUSPENDED = auto()
    """No further sentence begins, because the user speaks."""
    FINISHED = auto()
    CANCELLED = auto()
    FAILED = auto()


@dataclass(frozen=True)
class ResponseOptions:
    """Options of a response. `not_before`: `loop.time()` before which it stays silent. `uninterruptible`: a barge-in
    does not cut it. `scripted`: its text is fixed and does not depend on the user's words, so words that come before it
    do not replace it. `fallback`: what the agent says if the language model fails or says nothing. `announces`: it is
    the announcement at the beginning of the call, which waits for nobody who speaks."""

    not_before: float = 0.0
    uninterruptible: bool = False
    scripted: bool = False
    fallback: str | None = None
    announces: bool = False


_SentenceOfLine = tuple[str, TranscriptLine]
"""A sentence, and its line of the transcript."""


@dataclass
class _QueuedSentence:
    speech: SynthesizedSpeech
    utterance: Utterance
    line: TranscriptLine
    word_starts_s: Sequence[float]


@dataclass(eq=False)
class AgentResponse:
    """The text of a response is one line of the transcript, and a further line after each `SegmentEnd`. `prompt` is the
    prompt of the language model, None for a fixed text. `on_line` is called before the first audio of each line.
    Nothing is played before `confirm`."""

    parts: AsyncGenerator[ResponsePart, None]
    output: AgentOutput
    timing: ResponseTiming
    options: ResponseOptions = ResponseOptions()
    prompt: ChatPrompt | None = None
    on_line: Callable[[TranscriptLine], None] = lambda _: None
    next_action: LastPart | None = None
    """What the agent does once all of the response has been played."""
    task: asyncio.Task[None] | None = None
    """The task of `run`; None while the response is speculative: `SpeculativeResponse` has it."""
    turn: TimelineTurn | None = None
    """The turn that it answers, once it is confirmed."""
    unconfirmed_uses: list[tuple[ToolUse, ToolTiming, tuple[CitedPassage, ...]]] = field(default_factory=list)
    """Tool calls before it was confirmed."""
    _state: ResponseState = ResponseState.SPECULATIVE
    _sentences: list[_QueuedSentence] = field(default_factory=list)
    _unsent: list[Utterance] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _segments_generated: int = 0
    _segments_queued: int = 0  # segments whose sentences are all queued for playout

    @property
    def state(self) -> ResponseState:
        """The current state."""
        return self._state

    @property
    def has_started(self) -> bool:
        """True once some of its audio was queued for playout."""
        return bool(self._sentences)

    @property
    def is_confirmed(self) -> bool:
        """True once it was confirmed, also after it was cancelled."""
        return self.turn is not None

    @property
    def is_active(self) -> bool:
        """True while it is confirmed and neither finished nor cancelled: the call cannot go on if it fails."""
        return self._state in (ResponseState.PREPARING, ResponseState.SPEAKING, ResponseState.SUSPENDED)

    @property
    def played_text(self) -> str:
        """The text that had been played at the last `update_transcript`."""
        lines = dict.fromkeys(sentence.line for sentence in self._sentences)
        return " ".join(line.text for line in lines if line.text)

    @property
    def played_ms(self) -> float:
        """The duration of its audio that was sent."""
        sent = sum(self.output.playout.played(sentence.utterance) for sentence in self._sentences)
        return sent * 1000 / self.output.rate

    def confirm(self, turn: TimelineTurn) -> None:
        """Make it the response to this turn: it is played from now on."""
        self.turn = turn
        self._enter(ResponseState.PREPARING)

    def suspend(self) -> None:
        """Begin no further sentence, because the user speaks; not for the announcement."""
        if not self.options.announces and self._state in (ResponseState.PREPARING, ResponseState.SPEAKING):
            self._enter(ResponseState.SUSPENDED)

    def resume(self) -> None:
        """Undo `suspend`."""
        if self._state is ResponseState.SUSPENDED:
            self._enter(ResponseState.SPEAKING if self.has_started else ResponseState.PREPARING)

    def cancel(self) -> None:
        """Stop it for good. The caller of this method flushes the playout."""
        self._enter(ResponseState.CANCELLED)
        if self.task is not None:
            self.task.cancel()

    def fail(self) -> None:
        """Mark it as failed, because a model has failed."""
        self._enter(ResponseState.FAILED)

    async def wait_confirmed(self) -> None:
        """Wait for `confirm`."""
        await self._wait_until(lambda: self.is_confirmed)

    async def wait_segments_queued(self) -> None:
        """Wait until all segments that were generated so far are queued for playout."""
        generated = self._segments_generated
        await self._wait_until(lambda: self._segments_queued >= generated)

    def on_utterance_sent(self, utterance: Utterance) -> None:
        """Take note of an utterance, perhaps one of this response, that was sent to its end."""
        if utterance in self._unsent:
            self._unsent.remove(utterance)
            self._changed.set()
            self.update_transcript()

    def update_transcript(self) -> None:
        """Set the transcript's lines to the text that has been played, and its times. Correct also after the playout
        was flushed or closed."""
        texts: dict[TranscriptLine, list[str]] = {}
        words: dict[TranscriptLine, list[float]] = {}
        for sentence in self._sentences:
            utterance, line = sentence.utterance, sentence.line
            played = played_text(sentence.speech, self.output.playout.played(utterance))
            texts.setdefault(line, []).append(played)
            line.start_ms = utterance.started_ms if line.start_ms is None else line.start_ms
            line.end_ms = line.end_ms if utterance.stopped_ms is None else utterance.stopped_ms
            if utterance.started_ms is not None:
                starts_s = sentence.word_starts_s[: len(played.split())]
                words.setdefault(line, []).extend(utterance.started_ms + 1000 * start_s for start_s in starts_s)
        for line, parts in texts.items():
            line.text = " ".join(text for text in parts if text)
            line.word_starts_ms = words.get(line, ())

    async def run(self) -> None:
        """Generate and play the response; returns when all of it has been sent. Cancelling stops it for good. Raises
        the errors of models in an exception group."""
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
                        self.timing.mark_first_token()
                        for sentence in splitter.feed(text):
                            sentences.put_nowait((sentence, line))
                    case SegmentEnd():
                        if rest := splitter.finish():
                            sentences.put_nowait((rest, line))
                        self._segments_generated += 1
                        sentences.put_nowait(part)
                        line = TranscriptLine("assistant", "")
                    case EndCall() | StartTransfer():
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
            self.timing.mark_speech_ready()
            await self._wait_to_speak()
            self._queue(speech, line)
            await self._wait_until(lambda: len(self._unsent) <= SENTENCES_AHEAD)
        self.output.playout.expect_more(False)
        await self._wait_until(lambda: not self._unsent)

    async def _wait_to_speak(self) -> None:
        await self.wait_confirmed()
        wait_s = self.options.not_before - asyncio.get_running_loop().time()
        if not self.has_started and wait_s > 0:
            await asyncio.sleep(wait_s)
        while not self.output.gate.is_open or self._state is ResponseState.SUSPENDED:
            await self.output.gate.wait_open()
            await self._wait_until(lambda: self._state is not ResponseState.SUSPENDED)

    def _queue(self, speech: SynthesizedSpeech, line: TranscriptLine) -> None:
        """Queue a sentence for playout, unless the one before it was flushed, because then the response is about to be
        cancelled."""
        playout = self.output.playout
        if self.has_started and self._sentences[-1].utterance.flushed:
            return
        if not self.has_started or self._sentences[-1].line is not line:
            self.on_line(line)
        playout.expect_more(True)
        utterance = playout.begin(speech.text)
        self.output.on_spoken(speech.text)
        self._sentences.append(_QueuedSentence(speech, utterance, line, word_starts(speech)))
        self._unsent.append(utterance)
        playout.write(speech.samples)
        playout.end()
        self._enter(ResponseState.SPEAKING)

    def _enter(self, state: ResponseState) -> None:
        self._state = state
        self._changed.set()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
