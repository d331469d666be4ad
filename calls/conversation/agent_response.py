"""One answer of the agent: its words -> sentences -> speech -> playout, one sentence ahead of what is heard.

The first sentence goes out as soon as it is spoken; while a sentence plays, the next one waits behind it in the ring,
so that there is no gap between them. An answer may be made before it is certain that it will be given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from calls.call_record.timeline import CitedPassage, ResponseTiming, TimelineTurn, ToolTiming
from calls.call_record.transcript import ToolUse, TranscriptLine, played_text
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.tool_loop import EndCall, ResponsePart, SegmentEnd, SpeakText
from media.playout import Utterance
from models.protocols import ChatPrompt, Speech
from models.text.sentence_splitter import Sentences

SENTENCES_AHEAD: Final = 1
"""Sentences that are ready behind the one that plays."""


@dataclass(frozen=True)
class ResponseOptions:
    """What is special about an answer. `not_before`: `loop.time()` before which it stays silent. `protected`: it cannot
    be interrupted. `fixed`: its text does not depend on what the caller says, so it is said in any case."""

    not_before: float = 0.0
    uninterruptible: bool = False
    scripted: bool = False


_SentenceOfLine = tuple[str, TranscriptLine]
"""A sentence, and the line that it is of."""


@dataclass
class _SpokenSentence:
    speech: Speech
    utterance: Utterance
    line: TranscriptLine


@dataclass(eq=False)
class AgentResponse:
    """An answer in the making. What it says is one line of the transcript, and another one after each pause of the
    reply. `prompt` is what a language model was asked, None for a fixed text. `on_line` is called before the first
    sound of each line. Nothing is heard before `confirm`."""

    parts: AsyncGenerator[ResponsePart, None]
    output: SpeechOutput
    timing: ResponseTiming
    options: ResponseOptions = ResponseOptions()
    prompt: ChatPrompt | None = None
    on_line: Callable[[TranscriptLine], None] = lambda _: None
    ends_call: bool = False
    """The agent wants to hang up once this has been heard."""
    gave_up: bool = False
    """And that because its language model fails."""
    task: asyncio.Task[None] | None = None
    """What runs it."""
    turn: TimelineTurn | None = None
    """What it answers, once it is confirmed."""
    failed: bool = False
    """It cannot be given."""
    unconfirmed_uses: list[tuple[ToolUse, ToolTiming, tuple[CitedPassage, ...]]] = field(default_factory=list)
    """Tools that were used before it was confirmed."""
    _pieces: list[_SpokenSentence] = field(default_factory=list)
    _unsent: list[Utterance] = field(default_factory=list)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    _may_speak: asyncio.Event = field(default_factory=asyncio.Event)
    _confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    _dropped: bool = False
    _pauses: int = 0  # that the words have reached
    _pauses_said: int = 0  # up to which all sentences were given to the playout

    def __post_init__(self) -> None:
        self._may_speak.set()

    @property
    def begun(self) -> bool:
        """Some of its sound was given to the playout."""
        return bool(self._pieces)

    @property
    def confirmed(self) -> bool:
        """It will be given, unless the caller speaks."""
        return self._confirmed.is_set()

    @property
    def wanted(self) -> bool:
        """It is being given: the call cannot go on when it fails."""
        return self.confirmed and not self._dropped

    @property
    def heard_text(self) -> str:
        """What was heard of it when it was settled last."""
        lines = dict.fromkeys(piece.line for piece in self._pieces)
        return " ".join(line.text for line in lines if line.text)

    @property
    def heard_ms(self) -> float:
        """How much sound of it was sent."""
        sent = sum(self.output.playout.played(piece.utterance) for piece in self._pieces)
        return sent * 1000 / self.output.settings.rate

    def confirm(self, turn: TimelineTurn) -> None:
        """It answers this turn."""
        self.turn = turn
        self._confirmed.set()

    async def wait_confirmed(self) -> None:
        """Wait for `confirm`."""
        await self._confirmed.wait()

    async def wait_segment_queued(self) -> None:
        """Wait until all that came before the last pause was given to the playout."""
        pause = self._pauses
        while self._pauses_said < pause:
            self._progress.clear()
            await self._progress.wait()

    def hold(self) -> None:
        """Begin no sound for now: the caller speaks."""
        self._may_speak.clear()

    def go_on(self) -> None:
        """Undo `hold`."""
        self._may_speak.set()

    def cancel(self) -> None:
        """Nothing more of it is said. The caller flushes the playout."""
        self._dropped = True
        if self.task is not None:
            self.task.cancel()

    def on_utterance_sent(self, utterance: Utterance) -> None:
        """An utterance, perhaps one of ours, was sent to its end."""
        if utterance in self._unsent:
            self._unsent.remove(utterance)
            self._progress.set()
            self.update_transcript()

    def update_transcript(self) -> None:
        """Bring the transcript's lines to what was heard by now. Right also after the playout was flushed or closed."""
        texts: dict[TranscriptLine, list[str]] = {}
        for piece in self._pieces:
            heard = played_text(piece.speech, self.output.playout.played(piece.utterance))
            texts.setdefault(piece.line, []).append(heard)
        for line, parts in texts.items():
            line.text = " ".join(text for text in parts if text)

    async def run(self) -> None:
        """Say it; returns when all of it has been sent. Cancelling stops it for good. Raises what a model raised, in an
        exception group."""
        sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._split_into_sentences(sentences))
            await self._synthesize(sentences)
        await self._confirmed.wait()

    async def _split_into_sentences(self, sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None]) -> None:
        splitter, line = Sentences(self.output.language), TranscriptLine("assistant", "")
        async with aclosing(self.parts):
            async for part in self.parts:
                match part:
                    case SpeakText(text):
                        self.timing.first_token()
                        for sentence in splitter.push(text):
                            sentences.put_nowait((sentence, line))
                    case SegmentEnd():
                        if rest := splitter.rest():
                            sentences.put_nowait((rest, line))
                        self._pauses += 1
                        sentences.put_nowait(part)
                        line = TranscriptLine("assistant", "")
                    case EndCall(failed):
                        self.ends_call, self.gave_up = True, failed
                        break
        if rest := splitter.rest():
            sentences.put_nowait((rest, line))
        sentences.put_nowait(None)

    async def _synthesize(self, sentences: asyncio.Queue[_SentenceOfLine | SegmentEnd | None]) -> None:
        while (next_one := await sentences.get()) is not None:
            if isinstance(next_one, SegmentEnd):
                self.output.playout.expect_more(False)
                self._pauses_said += 1
                self._progress.set()
                continue
            sentence, line = next_one
            speech = await self.output.synthesize(sentence)
            if len(speech.samples) == 0:
                continue
            self.timing.speech_ready()
            await self._wait_to_speak()
            self._queue_for_playout(speech, line)
            await self._wait_unsent_at_most(SENTENCES_AHEAD)
        self.output.playout.expect_more(False)
        await self._wait_unsent_at_most(0)

    async def _wait_to_speak(self) -> None:
        await self._confirmed.wait()
        wait_s = self.options.not_before - asyncio.get_running_loop().time()
        if not self.begun and wait_s > 0:
            await asyncio.sleep(wait_s)
        while not self._may_speak.is_set():  # it may be held again before we get to know that it was not
            await self._may_speak.wait()

    def _queue_for_playout(self, speech: Speech, line: TranscriptLine) -> None:
        """Give a sentence to the playout, unless the one before it was flushed: then the cancellation is on its way."""
        playout = self.output.playout
        if self.begun and self._pieces[-1].utterance.flushed:
            return
        if not self.begun or self._pieces[-1].line is not line:
            self.on_line(line)
        playout.expect_more(True)
        utterance = playout.begin(speech.text)
        self.output.on_spoken(speech.text)
        self._pieces.append(_SpokenSentence(speech, utterance, line))
        self._unsent.append(utterance)
        playout.write(speech.samples)
        playout.end()

    async def _wait_unsent_at_most(self, most: int) -> None:
        while len(self._unsent) > most:
            self._progress.clear()
            await self._progress.wait()
