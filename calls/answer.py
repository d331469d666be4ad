"""One answer of the agent: language model -> sentences -> speech -> playout, one sentence ahead of what is heard.

The first sentence goes out as soon as it is spoken; while a sentence plays, the next one waits behind it in the ring,
so that there is no gap between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from calls.mouth import Mouth
from calls.transcript import Line, heard_text
from media.playout import Utterance
from models.protocols import AnswerPart, Speech, TextDelta, ToolCall
from models.sentences import Sentences

AHEAD: Final = 1
"""Sentences that are ready behind the one that plays."""


@dataclass(frozen=True)
class Manner:
    """What is special about an answer. `not_before`: `loop.time()` before which it stays silent. `protected`: it cannot
    be interrupted. `fixed`: its text does not depend on what the caller says, so it is said in any case."""

    not_before: float = 0.0
    protected: bool = False
    fixed: bool = False


@dataclass
class _Piece:
    speech: Speech
    utterance: Utterance


@dataclass(eq=False)
class Answer:
    """An answer in the making. `line` is its place in the transcript. `on_text` is called at each piece of its text,
    `on_speech` when its first sentence is there as sound, `on_begin` before its first sound."""

    parts: AsyncIterator[AnswerPart]
    line: Line
    mouth: Mouth
    manner: Manner = Manner()
    on_begin: Callable[[], None] = lambda: None
    on_text: Callable[[], None] = lambda: None
    on_speech: Callable[[], None] = lambda: None
    ends_call: bool = False
    """The agent wants to hang up once this has been heard."""
    _pieces: list[_Piece] = field(default_factory=list)
    _unsent: list[Utterance] = field(default_factory=list)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    _may_speak: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._may_speak.set()

    @property
    def begun(self) -> bool:
        """Some of its sound was given to the playout."""
        return bool(self._pieces)

    def hold(self) -> None:
        """Begin no sound for now: the caller speaks."""
        self._may_speak.clear()

    def go_on(self) -> None:
        """Undo `hold`."""
        self._may_speak.set()

    def sent(self, utterance: Utterance) -> None:
        """An utterance, perhaps one of ours, was sent to its end."""
        if utterance in self._unsent:
            self._unsent.remove(utterance)
            self._progress.set()
            self.settle()

    def settle(self) -> None:
        """Bring the transcript's line to what was heard by now. Right also after the playout was flushed or closed."""
        heard = (heard_text(piece.speech, self.mouth.playout.heard(piece.utterance)) for piece in self._pieces)
        self.line.text = " ".join(text for text in heard if text)

    async def run(self) -> None:
        """Say it; returns when all of it has been sent. Cancelling stops it for good. Raises what a model raised, in an
        exception group."""
        sentences: asyncio.Queue[str | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._think(sentences))
            await self._speak(sentences)

    async def _think(self, sentences: asyncio.Queue[str | None]) -> None:
        splitter = Sentences()
        try:
            async for part in self.parts:
                match part:
                    case TextDelta(text):
                        self.on_text()
                        for sentence in splitter.push(text):
                            sentences.put_nowait(sentence)
                    case ToolCall():
                        self.ends_call = True
                        break
        finally:
            if isinstance(self.parts, AsyncGenerator):
                await self.parts.aclose()
        if rest := splitter.rest():
            sentences.put_nowait(rest)
        sentences.put_nowait(None)

    async def _speak(self, sentences: asyncio.Queue[str | None]) -> None:
        while (sentence := await sentences.get()) is not None:
            speech = await self.mouth.speech(sentence)
            if len(speech.samples) == 0:
                continue
            if not self.begun:
                self.on_speech()
            await self._turn_to_speak()
            self._utter(speech)
            await self._until_unsent(AHEAD)
        self.mouth.playout.answering(False)
        await self._until_unsent(0)

    async def _turn_to_speak(self) -> None:
        wait_s = self.manner.not_before - asyncio.get_running_loop().time()
        if not self.begun and wait_s > 0:
            await asyncio.sleep(wait_s)
        await self._may_speak.wait()

    def _utter(self, speech: Speech) -> None:
        """Give a sentence to the playout, unless the one before it was flushed: then the cancellation is on its way."""
        playout = self.mouth.playout
        if not self.begun:
            self.on_begin()
            playout.answering(True)
        elif self._pieces[-1].utterance.cut:
            return
        utterance = playout.begin(speech.text)
        self._pieces.append(_Piece(speech, utterance))
        self._unsent.append(utterance)
        playout.write(speech.samples)
        playout.end()

    async def _until_unsent(self, most: int) -> None:
        while len(self._unsent) > most:
            self._progress.clear()
            await self._progress.wait()
