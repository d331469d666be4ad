"""The talk of one call: it listens, answers and is interrupted. Everything that happens comes through one inbox and is
dealt with in order, so that each change of state stands in one place: `Conversation._take`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import structlog

from calls import metrics
from calls.answer import Answer, Manner
from calls.digits import DigitsDialled
from calls.mouth import Mouth
from calls.timeline import Timeline
from calls.transcript import Line, Transcript
from media.engine_call import Broken, CallEvent, DigitHeard, UtteranceSent
from media.events import AgentStarted, AgentStopped, Interrupted, SpeechStarted, TurnDropped, TurnEnded, TurnEvent
from models.protocols import (
    HANG_UP,
    AnswerPart,
    ChatPrompt,
    LanguageModel,
    SpeechToTextStream,
    TextDelta,
)

log = structlog.get_logger()


@dataclass(frozen=True)
class Script:
    """What the agent was told, its placeholders filled. `greeting` None: the language model opens the talk, if the
    agent speaks first."""

    system: str
    greeting: str | None = None
    speaks_first: bool = False
    first_message_delay_ms: int = 0
    first_message_protected: bool = False
    may_end_call: bool = True
    language: str | None = None


@dataclass(frozen=True)
class AnswerDone:
    """All of an answer has been sent."""

    answer: Answer


Happening = CallEvent | DigitsDialled | AnswerDone


class Inbox:
    """What happens in a call, in order; the `CallListener` of its audio."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Happening] = asyncio.Queue()

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """From the audio engine."""
        for event in events:
            self._queue.put_nowait(event)

    def put(self, happening: DigitsDialled | AnswerDone) -> None:
        """From elsewhere on the event loop."""
        self._queue.put_nowait(happening)

    async def get(self) -> Happening:
        """The next one."""
        return await self._queue.get()


class Conversation:
    """`run` talks; `settle` brings the transcript to what was heard, whenever the talk stops.

    `protect` tells the audio engine whether what plays can be interrupted; `on_progress` is called when the transcript
    has changed for good, and when the agent is heard."""

    def __init__(
        self,
        *,
        call_id: str,
        script: Script,
        inbox: Inbox,
        ear: SpeechToTextStream,
        language: LanguageModel,
        mouth: Mouth,
        timeline: Timeline,
        protect: Callable[[bool], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.transcript = Transcript()
        self.timeline = timeline
        self._call_id = call_id
        self._script = script
        self._inbox = inbox
        self._ear = ear
        self._language = language
        self._mouth = mouth
        self._protect = protect
        self._on_progress = on_progress
        self._answer: Answer | None = None
        self._saying: asyncio.Task[None] | None = None
        self._owed = False  # the caller entered digits during a protected message: they are answered after it
        self._log = log.bind(call_id=call_id)

    async def run(self) -> None:
        """Talk until the agent ends the call. What a model, the ear or the engine raised comes out in an exception
        group."""
        async with asyncio.TaskGroup() as group:
            self._open(group)
            while not await self._take(await self._inbox.get(), group):
                pass

    def settle(self) -> None:
        """Nothing more will be heard: what is queued is thrown away and the transcript ends where the sound did."""
        self.timeline.answer_ended()
        if self._answer is not None:
            self._drop_answer(self._answer)

    async def _take(self, happening: Happening, group: asyncio.TaskGroup) -> bool:
        """Deal with what happened; True when the agent has ended the call."""
        match happening:
            case TurnEnded():
                await self._turn(happening, group)
            case DigitsDialled(digits):
                self._user_said(digits, group)
            case AnswerDone(answer):
                return self._answered(answer, group)
            case Broken(error=error):
                raise error
            case UtteranceSent(utterance=utterance):
                if self._answer is not None:
                    self._answer.sent(utterance)
            case _:
                self._follow(happening)
        return False

    def _follow(self, event: TurnEvent | DigitHeard) -> None:
        """Events that say who speaks."""
        match event:
            case SpeechStarted():
                if self._answer is not None and not self._answer.begun:
                    self._answer.hold()
            case TurnDropped():
                self._release()
            case Interrupted():
                self._interrupted()
            case AgentStarted(at_ms):
                self._audible(at_ms)
            case AgentStopped():
                self.timeline.agent_silent()
            case _:
                pass

    def _open(self, group: asyncio.TaskGroup) -> None:
        """The first message, when it is the agent's."""
        script = self._script
        if not script.speaks_first:
            return
        self.timeline.opens()
        manner = Manner(
            not_before=asyncio.get_running_loop().time() + script.first_message_delay_ms / 1000,
            protected=script.first_message_protected,
            fixed=script.greeting is not None,
        )
        self._say(self._model_answer() if script.greeting is None else _just(script.greeting), manner, group)

    async def _turn(self, ended: TurnEnded, group: asyncio.TaskGroup) -> None:
        """The caller's turn is over."""
        text = (await self._ear.finish()).strip()
        if not text:
            self._release()
            return
        self._user_said(text, group, ended)

    def _user_said(self, text: str, group: asyncio.TaskGroup, ended: TurnEnded | None = None) -> None:
        """Words, or digits when no turn was `ended`."""
        answer = self._answer
        if answer is None or answer.begun or answer.manner.fixed:
            self.transcript.user(text)
        else:  # the turn goes on: what was being prepared answers only its first part
            self.transcript.user_went_on(text)
        self.timeline.caller_said(self.transcript.turn_count, ended)
        ended_by = self.timeline.turn.ended_by
        self._log.info("turn.user", turn=self.transcript.turn_count, ended_by=ended_by, characters=len(text))
        self._log.debug("turn.user.text", text=text)
        self._on_progress()
        if answer is None:
            self._say(self._model_answer(), Manner(), group)
        elif answer.begun and answer.manner.protected:
            self._owed = True
        elif answer.manner.fixed and not answer.begun:
            answer.go_on()
        else:
            self._drop_answer(answer)
            self._say(self._model_answer(), Manner() if answer.begun else answer.manner, group)

    def _say(self, parts: AsyncIterator[AnswerPart], manner: Manner, group: asyncio.TaskGroup) -> None:
        line, turn = Line("assistant", ""), self.timeline.turn

        def begin() -> None:
            self.transcript.agent_begins(line)
            self.timeline.agent_begins()
            if manner.protected:
                self._protect(True)

        answer = self._answer = Answer(parts, line, self._mouth, manner, on_begin=begin, on_speech=turn.speech_ready)
        if not manner.fixed:
            answer.on_text = turn.first_token
        self._saying = group.create_task(self._run(answer))

    async def _run(self, answer: Answer) -> None:
        await answer.run()
        self._inbox.put(AnswerDone(answer))

    def _model_answer(self) -> AsyncIterator[AnswerPart]:
        script = self._script
        return self._language.answer(
            ChatPrompt(
                call_id=self._call_id,
                system=script.system,
                messages=self.transcript.messages(),
                language=script.language,
                tools=[HANG_UP] if script.may_end_call else [],
            )
        )

    def _answered(self, answer: Answer, group: asyncio.TaskGroup) -> bool:
        """An answer was heard to its end; True when the agent wants to hang up after it."""
        if answer is not self._answer:
            return False
        self._end_answer(answer)
        if answer.ends_call and self._script.may_end_call:
            return True
        if self._owed:
            self._owed = False
            self._say(self._model_answer(), Manner(), group)
        return False

    def _interrupted(self) -> None:
        """The engine has flushed the playout already; what was written since then goes too."""
        answer = self._answer
        if answer is None or not answer.begun:
            return
        metrics.INTERRUPTIONS.inc()
        self._drop_answer(answer)
        self._log.info("call.interrupted", heard_characters=len(answer.line.text))

    def _drop_answer(self, answer: Answer) -> None:
        """Nothing more of it is said."""
        self.timeline.interrupted()
        if self._saying is not None:
            self._saying.cancel()
        if answer.begun:
            self._mouth.playout.flush()
        self._end_answer(answer)

    def _end_answer(self, answer: Answer) -> None:
        self._answer = self._saying = None
        if not answer.begun:
            return
        answer.settle()
        self.timeline.answer_ended()
        if answer.manner.protected:
            self._protect(False)
        self._log.info("turn.agent", heard_characters=len(answer.line.text))
        self._log.debug("turn.agent.text", text=answer.line.text)
        self._on_progress()

    def _release(self) -> None:
        """It was no turn: what waits may be said."""
        if self._answer is not None:
            self._answer.go_on()

    def _audible(self, at_ms: float) -> None:
        """The agent is heard."""
        gap_ms = self.timeline.agent_started(at_ms)
        if gap_ms is not None:
            metrics.RESPONSE_GAP.observe(gap_ms / 1000)
        self._on_progress()


async def _just(text: str) -> AsyncIterator[AnswerPart]:
    yield TextDelta(text)
