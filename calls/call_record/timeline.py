"""Timeline of a call: the times of each turn and of the stages of its response, the passages of documents that it
cited, and its tool calls. Has no words of the conversation but those in arguments and results of tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from media.turn_taking.events import TurnEnded, TurnEndReason
from models.runtime.request_context import ModelFallback
from storage.calls.calls import BriefingSource, Speaker, TranscriptionEnd

EndedBy = TurnEndReason | Literal["digits", "silence"]
"""What ended the caller's turn. `silence`: the caller was idle, and the agent prompts."""
MOMENTS: Final = (
    *("speech_start_ms", "speech_end_ms", "turn_end_ms", "text_ready_ms"),
    *("first_token_ms", "speech_ready_ms", "agent_start_ms", "interrupted_ms", "agent_end_ms"),
)
"""In the order in which they usually come."""
MAX_FALLBACKS: Final = 200


@dataclass(eq=False)
class ResponseTiming:
    """Times of a response; the first of several counts. `speculative`: it was begun before the end of the turn."""

    now_ms: Callable[[], float] = field(repr=False)
    speculative: bool = False
    scripted: bool = False
    """Its text is fixed, without a language model."""
    first_token_ms: float | None = None
    speech_ready_ms: float | None = None

    def mark_first_token(self) -> None:
        """The language model returned its first token."""
        if self.first_token_ms is None and not self.scripted:
            self.first_token_ms = self.now_ms()

    def mark_speech_ready(self) -> None:
        """The first audio of the response is ready."""
        if self.speech_ready_ms is None:
            self.speech_ready_ms = self.now_ms()


@dataclass(frozen=True)
class ToolTiming:
    """A tool call; times in ms on the arrival clock. `arguments` and `result`: `calls.tools.recorded_tool_call`."""

    name: str
    start_ms: float
    end_ms: float
    ok: bool
    arguments: dict[str, Any] | None = None
    result: str | None = None


@dataclass(frozen=True)
class ToolRun:
    """A tool call that runs; what is None is known when it has ended. `number` counts the tool calls of a call from 1;
    `turn` is None while the turn that it answers is not over. Times in whole ms after the call's answer. One that was
    cancelled has neither arguments nor a result."""

    number: int
    turn: int | None
    name: str
    start_ms: int
    end_ms: int | None = None
    ok: bool | None = None
    arguments: dict[str, Any] | None = None
    result: str | None = None

    def ended(self, timing: ToolTiming, zero_ms: float) -> ToolRun:
        """Returns it as it has ended; `zero_ms`: the call's answer on the arrival clock."""
        end_ms = round(timing.end_ms - zero_ms)
        return replace(self, end_ms=end_ms, ok=timing.ok, arguments=timing.arguments, result=timing.result)


@dataclass(frozen=True)
class CitedPassage:
    """A passage of a document that a response had in its context: the document's id and name at that time, the
    passage's number in it from 0 on, and its score, 0..1."""

    document_id: str
    document: str
    position: int
    score: float


@dataclass(eq=False)
class TimelineTurn:
    """A turn of the caller and its response; number 0 is the agent's opening message. Times are ms on the arrival
    clock, None if not known."""

    number: int
    ended_by: EndedBy | None = None
    eot_probability: float | None = None
    """The probability of the end-of-turn model, if it ended the turn."""
    speech_start_ms: float | None = None
    speech_end_ms: float | None = None
    turn_end_ms: float | None = None
    text_ready_ms: float | None = None
    response: ResponseTiming | None = None
    agent_start_ms: float | None = None
    interrupted_ms: float | None = None
    agent_end_ms: float | None = None
    played_ms: float = 0.0
    """Duration of the response's audio that was sent."""
    tools: list[ToolTiming] = field(default_factory=list)
    sources: list[CitedPassage] = field(default_factory=list)
    """In order; a passage may be there twice."""
    speaker: Speaker | None = None
    """Of what connected parties say to each other."""
    transcription_ended: TranscriptionEnd | None = None
    """The transcription of the connected parties ended with this turn."""
    briefing_by: BriefingSource | None = None
    """During this turn it was decided what the target of a transfer is told about the call."""
    response_held: bool = False
    """A client had the call on hold when the response was due."""

    @property
    def first_token_ms(self) -> float | None:
        """Time of the language model's first token."""
        return self.response.first_token_ms if self.response else None

    @property
    def speech_ready_ms(self) -> float | None:
        """Time at which the first audio of the response was synthesized."""
        return self.response.speech_ready_ms if self.response else None

    @property
    def gap_ms(self) -> float | None:
        """From the end of the caller's speech to the agent's first audio. A turn that DTMF digits ended has none, nor
        has one whose response a hold has delayed."""
        if self.agent_start_ms is None or self.speech_end_ms is None or self.ended_by == "digits" or self.response_held:
            return None
        return self.agent_start_ms - self.speech_end_ms

    def to_json(self, zero_ms: float) -> dict[str, Any]:
        """Returns the turn as it is stored: whole ms since `zero_ms`."""
        moments = {name: getattr(self, name) for name in MOMENTS}
        return {
            "turn": self.number,
            "ended_by": self.ended_by,
            "eot_probability": None if self.eot_probability is None else round(self.eot_probability, 3),
            **{name: None if at is None else round(at - zero_ms) for name, at in moments.items()},
            "response_gap_ms": None if self.gap_ms is None else round(self.gap_ms),
            "played_ms": round(self.played_ms),
            "interrupted": self.interrupted_ms is not None,
            "speculated": self.response is not None and self.response.speculative,
            "tools": [
                {
                    "name": tool.name,
                    "start_ms": round(tool.start_ms - zero_ms),
                    "end_ms": round(tool.end_ms - zero_ms),
                    "ok": tool.ok,
                    "arguments": tool.arguments,
                    "result": tool.result,
                }
                for tool in self.tools
            ],
            "sources": [asdict(source) for source in _distinct(self.sources)],
            **({} if self.speaker is None else {"speaker": self.speaker}),
            **({} if self.transcription_ended is None else {"transcription_ended": self.transcription_ended}),
            **({} if self.briefing_by is None else {"briefing_by": self.briefing_by}),
        }


@dataclass(frozen=True)
class Note:
    """What a person who follows the call wrote to the agent; `at_ms` on the arrival clock."""

    at_ms: float
    author: str
    text: str

    def to_json(self, zero_ms: float) -> dict[str, Any]:
        """Returns the note as it is stored: whole ms since `zero_ms`."""
        return {"note": self.text, "author": self.author, "at_ms": round(self.at_ms - zero_ms)}


@dataclass(frozen=True)
class FallbackTime:
    """A model that failed, and the one that took over; `at_ms` on the arrival clock."""

    at_ms: float
    fallback: ModelFallback

    def to_json(self, zero_ms: float) -> dict[str, Any]:
        """Returns it as it is stored: whole ms since `zero_ms`."""
        return {"model_fallback": asdict(self.fallback), "at_ms": round(self.at_ms - zero_ms)}


@dataclass(eq=False)
class ListeningSession:
    """A person of this name listens in; times on the arrival clock. `end_ms` None: until the end of the call."""

    by: str
    start_ms: float
    end_ms: float | None = None

    def to_json(self, zero_ms: float) -> dict[str, Any]:
        """Returns the session as it is stored: whole ms since `zero_ms`."""
        end_ms = None if self.end_ms is None else round(self.end_ms - zero_ms)
        return {"listened_by": self.by, "at_ms": round(self.start_ms - zero_ms), "end_ms": end_ms}


def _distinct(sources: Sequence[CitedPassage]) -> list[CitedPassage]:
    """Returns each passage once, in the order of first citations, with the best of its scores."""
    best: dict[tuple[str, int], CitedPassage] = {}
    for source in sources:
        passage = source.document_id, source.position
        if passage not in best or source.score > best[passage].score:
            best[passage] = source
    return list(best.values())


def _began_after(turn: TimelineTurn, speech_start_ms: float) -> bool:
    """True for a turn between connected parties that began after `speech_start_ms`."""
    return turn.speaker is not None and turn.speech_start_ms is not None and turn.speech_start_ms > speech_start_ms


class Timeline:
    """The turns of one call. `zero_ms` is the call's answer, `now_ms` returns the present, both on the arrival clock.
    `on_agent_audible` is called with each turn whose response becomes audible."""

    def __init__(
        self,
        zero_ms: float,
        now_ms: Callable[[], float],
        on_agent_audible: Callable[[TimelineTurn], None] = lambda _: None,
    ) -> None:
        self.zero_ms: Final = zero_ms
        """The call's answer, ms on the arrival clock."""
        self._on_agent_audible = on_agent_audible
        self.now_ms = now_ms
        """The present, ms on the arrival clock."""
        self._turns: list[TimelineTurn] = []
        self._speaking: TimelineTurn | None = None  # the one whose response plays, or is about to
        self._audible = False
        self._held = False
        self._notes: list[Note] = []
        self._listening: list[ListeningSession] = []
        self._fallbacks: list[FallbackTime] = []
        self._taken_over: dict[str, Any] | None = None

    def items(self) -> list[dict[str, Any]]:
        """Returns the turns so far, then the notes, who has listened in, which models failed, and who has taken the
        call over, as they are stored."""
        turns = [each.to_json(self.zero_ms) for each in self._turns]
        notes = [each.to_json(self.zero_ms) for each in self._notes]
        listening = [each.to_json(self.zero_ms) for each in self._listening]
        fallbacks = [each.to_json(self.zero_ms) for each in self._fallbacks]
        return [*turns, *notes, *listening, *fallbacks, *([] if self._taken_over is None else [self._taken_over])]

    @property
    def entry_count(self) -> int:
        """The number of its entries."""
        return len(self._turns)

    def truncate(self, entry_count: int) -> None:
        """Drop everything after so many entries."""
        del self._turns[entry_count:]
        self._speaking = None

    @property
    def turn(self) -> TimelineTurn:
        """The newest turn. There is one once either side has spoken."""
        return self._turns[-1]

    def add_opening(self) -> None:
        """Add turn 0: the agent speaks first."""
        self._turns.append(TimelineTurn(0))

    def add_agent_turn(self) -> None:
        """Add a turn for what the agent says about a transfer, which nothing of the caller has caused."""
        self._turns.append(TimelineTurn(self._latest_number))

    def add_idle_prompt(self) -> None:
        """Add a turn for a prompt of the agent to an idle caller."""
        self._turns.append(TimelineTurn(self._latest_number, ended_by="silence", turn_end_ms=self.now_ms()))

    @property
    def _latest_number(self) -> int:
        return self._turns[-1].number if self._turns else 0

    def add_caller_turn(self, number: int, ended: TurnEnded | None) -> None:
        """Add a turn whose transcript is ready; without `ended` it is DTMF digits. With the number of the newest turn,
        extend that: the response that was prepared for it is dropped."""
        now = self.now_ms()
        if not self._turns or self.turn.number != number:
            self._turns.append(TimelineTurn(number))
        turn = self.turn
        turn.text_ready_ms, turn.response = now, None
        turn.response_held |= self._held
        if ended is None:
            turn.ended_by, turn.turn_end_ms, turn.eot_probability = "digits", now, None
        else:
            turn.ended_by, turn.turn_end_ms, turn.eot_probability = ended.reason, ended.at_ms, ended.probability
            turn.speech_end_ms = ended.speech_end_ms
            if turn.speech_start_ms is None:
                turn.speech_start_ms = ended.speech_start_ms

    def add_utterance(
        self,
        speaker: Speaker,
        speech_start_ms: float,
        ended: TurnEnded | None,
        *,
        transcription_ended: TranscriptionEnd | None = None,
    ) -> None:
        """Add what a connected party said to the other one, in order of the beginnings of such turns. Without `ended`,
        the end of the call cut it. `transcription_ended`: nothing more is transcribed."""
        now = self.now_ms()
        turn = TimelineTurn(
            self._latest_number,
            speech_start_ms=speech_start_ms,
            turn_end_ms=now,
            text_ready_ms=now,
            speaker=speaker,
            transcription_ended=transcription_ended,
        )
        if ended is not None:
            turn.ended_by, turn.turn_end_ms, turn.eot_probability = ended.reason, ended.at_ms, ended.probability
            turn.speech_end_ms = ended.speech_end_ms
        at = len(self._turns)
        while at and _began_after(self._turns[at - 1], speech_start_ms):
            at -= 1
        self._turns.insert(at, turn)

    def add_transcription_error(self) -> None:
        """Add a turn that says that the transcription of the connected parties ended with an error."""
        self._turns.append(TimelineTurn(self._latest_number, turn_end_ms=self.now_ms(), transcription_ended="error"))

    def add_note(self, text: str, author: str) -> None:
        """Add a note to the agent."""
        self._notes.append(Note(self.now_ms(), author, text))

    def begin_listening(self, by: str) -> ListeningSession:
        """A person of this name begins to listen in."""
        session = ListeningSession(by, self.now_ms())
        self._listening.append(session)
        return session

    def end_listening(self, session: ListeningSession) -> None:
        """The person listens no longer. Idempotent."""
        if session.end_ms is None:
            session.end_ms = self.now_ms()

    def add_fallback(self, fallback: ModelFallback) -> None:
        """A model has failed. Of many failures the first `MAX_FALLBACKS` are kept."""
        if len(self._fallbacks) < MAX_FALLBACKS:
            self._fallbacks.append(FallbackTime(self.now_ms(), fallback))

    def set_taken_over(self, by: str) -> None:
        """A person of this name has taken the call over from the agent."""
        self._taken_over = {"taken_over_by": by, "at_ms": round(self.now_ms() - self.zero_ms)}

    def set_briefing(self, by: BriefingSource) -> None:
        """It is decided, in the newest turn, who has written the briefing of a transfer's target."""
        self.turn.briefing_by = by

    def set_response(self, response: ResponseTiming) -> TimelineTurn:
        """Set the response of the newest turn, which may have been begun before the end of the turn. Returns that
        turn."""
        self.turn.response = response
        return self.turn

    def set_held(self, on: bool) -> None:
        """A client has put the call on hold, or has resumed it."""
        self._held = on
        if on and self._turns and self.turn.agent_start_ms is None:
            self.turn.response_held = True

    def on_response_queued(self) -> None:
        """The first audio of a response was queued for playout. It belongs to the newest turn, whatever it was prepared
        for: a greeting that had to wait for the caller is the response to the caller's turn."""
        self._speaking = self.turn
        if self._audible:  # audio follows on audio without an event of the engine
            self._set_agent_start(self.turn, self.now_ms())

    def on_agent_started(self, at_ms: float) -> None:
        """The agent's audio has begun."""
        turn, self._audible = self._speaking, True
        if turn is not None and turn.agent_start_ms is None:
            self._set_agent_start(turn, at_ms)

    def on_agent_stopped(self) -> None:
        """The agent's audio has ended."""
        self._audible = False

    def on_interruption(self, at_ms: float) -> None:
        """The caller interrupted the response that plays, if one does."""
        if self._speaking is not None and self._speaking.interrupted_ms is None:
            self._speaking.interrupted_ms = at_ms

    def on_response_ended(self, played_ms: float) -> TimelineTurn | None:
        """No more of the response will be played. Returns the turn whose response it was."""
        turn, self._speaking = self._speaking, None
        if turn is not None and turn.agent_start_ms is not None:
            turn.agent_end_ms = self.now_ms()
            turn.played_ms += played_ms
        return turn

    def _set_agent_start(self, turn: TimelineTurn, at_ms: float) -> None:
        turn.agent_start_ms = at_ms
        self._on_agent_audible(turn)
