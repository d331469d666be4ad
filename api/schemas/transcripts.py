"""Transcripts of calls in responses, and their query parameters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import Field

from api.schemas.base import IdView, JsonObject, Query, View
from calls.tools.recorded_tool_call import MAX_ARGUMENTS, MAX_RESULT
from storage.calls.calls import Call, Speaker, Status
from storage.calls.calls import TranscriptItem as StoredItem


class LinkQuery(Query):
    """The signature of a link that opens without an API key."""

    expires: str | None = Field(
        None, description="Unix time at which the link expires; from recordingUrl, transcriptUrl, sampleUrl"
    )
    signature: str | None = Field(None, description="Signature of the path and the expiry")


class TranscriptQuery(LinkQuery):
    """Query parameters of a transcript."""

    include: Literal["tools", "words", "tools,words"] | None = Field(
        None,
        description="`tools`: also the tool calls of the agent, in order of their times. Requires the API key. "
        "`words`: when each word was said. `tools,words`: both",
    )


WordSource = Literal["model", "estimate"]


class TranscriptItem(View):
    """One utterance of the caller or the agent, or, with a `speaker`, of one of two connected parties."""

    role: Literal["user", "assistant"] = Field(description="`assistant`: the agent; `user`: a person")
    content: str
    start_ms: int | None = Field(
        None,
        description="When it began in the recording, whose time 0 is the call's startedAt, ms; of digits, the first "
        "key. Null in calls of earlier versions",
    )
    end_ms: int | None = Field(
        None,
        description="When it ended, ms; of what was interrupted, when its audio stopped; of digits, the last key. "
        "Null in calls of earlier versions",
    )
    speaker: Speaker | None = Field(
        None,
        description="Present on what was said after a transfer had connected the two, if the agent's stayOnCall is "
        "true: by the caller, or by the target of the transfer or the client that took the call over",
        exclude_if=lambda speaker: speaker is None,
    )
    word_starts_ms: list[int] | None = Field(
        None,
        description="Only with `include=words`: when each word began that white space separates in `content`, ms, as "
        "startMs; null without startMs or endMs",
        exclude_if=lambda starts: starts is None,
    )
    word_source: WordSource | None = Field(
        None,
        description="Present with wordStartsMs. model: the words' times are those of speech recognition or synthesis "
        "(of a synthesizer that reports none, by the pauses in its sound); estimate: the time from startMs to endMs is "
        "divided by the lengths of the words, because the recognizer reports no times, the text was redacted, or the "
        "call is live or of an earlier version",
        exclude_if=lambda source: source is None,
    )

    @classmethod
    def of(cls, stored: StoredItem, *, words: bool) -> TranscriptItem:
        """Returns the view of a stored item, with the times of its words if `words`."""
        item = cls.model_validate(stored)
        if not words or item.start_ms is None or item.end_ms is None:
            return item
        offsets, source = stored.get("words"), "model"
        if offsets is None or len(offsets) != len(item.content.split()):
            offsets, source = _estimated_offsets_ms(item.content, item.end_ms - item.start_ms), "estimate"
        starts = [item.start_ms + offset for offset in offsets]
        return item.model_copy(update={"word_starts_ms": starts, "word_source": source})


def _estimated_offsets_ms(content: str, duration_ms: int) -> list[int]:
    """The words' beginnings after that of the text, as if each character took the same time."""
    lengths = [len(word) + 1 for word in content.split()]
    return [round(duration_ms * passed / sum(lengths)) for passed in accumulate(lengths[:-1], initial=0) if lengths]


class ToolCallItem(View):
    """A tool call of the agent's language model, in a transcript with `include=tools`."""

    role: Literal["tool"]
    name: str = Field(description="Name under which the language model called it")
    arguments: JsonObject | None = Field(
        description="As the language model wrote them; credentials are `[hidden]`, and numbers are redacted as in the "
        f"transcript. Null if they were no JSON object or longer than {MAX_ARGUMENTS} characters, and in calls of "
        "earlier versions"
    )
    ok: bool = Field(description="True if the tool succeeded")
    result: str | None = Field(
        description=f"What the language model got, at most {MAX_RESULT} characters; null if the tool failed, and in "
        "calls of earlier versions"
    )
    error: str | None = Field(description="Why the tool failed, as the language model got it; null if it succeeded")
    start_ms: int = Field(description="Time of the call, ms since startedAt")
    end_ms: int = Field(description="Time of the result, ms since startedAt")
    duration_ms: int

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ToolCallItem:
        """Returns the view of a tool call in the timeline of a call."""
        ok, result = stored["ok"], stored.get("result")
        return cls(
            role="tool",
            name=stored["name"],
            arguments=stored.get("arguments"),
            ok=ok,
            result=result if ok else None,
            error=None if ok else result,
            start_ms=stored["start_ms"],
            end_ms=stored["end_ms"],
            duration_ms=stored["end_ms"] - stored["start_ms"],
        )


class TurnSource(View):
    """A passage that the language model got for a response, as it was then; its document may have been deleted."""

    document_id: IdView
    document: str = Field(description="Name of the document")
    position: int = Field(description="Index of the passage in the document, from 0")
    score: Annotated[float, Field(ge=0, le=1)] = Field(description="Relevance, as in searches")


class Transcript(View):
    """The transcript of a call."""

    call_id: IdView
    status: Status
    transcript: list[TranscriptItem | ToolCallItem] = Field(
        description="In order of time. Tool calls only with `include=tools`"
    )

    @classmethod
    def of(cls, call: Call, *, with_tools: bool = False, with_words: bool = False) -> Transcript:
        """Returns the transcript of a stored call."""
        items: list[TranscriptItem | ToolCallItem] = [
            TranscriptItem.of(each, words=with_words) for each in call.transcript
        ]
        if with_tools:
            for turn in call.timeline:
                for tool in turn.get("tools", ()):
                    items.insert(_place(items, turn["turn"], tool["start_ms"]), ToolCallItem.of(tool))
        return cls(call_id=call.id, status=call.status, transcript=items)


def _place(items: list[TranscriptItem | ToolCallItem], turn: int, start_ms: int) -> int:
    """Where a tool call belongs that began at `start_ms`, for a response to this turn of the caller: before the first
    item that began later. In calls of earlier versions, whose other items have no times, after the turn."""
    caller_turns = 0
    for at, item in enumerate(items):
        if item.start_ms is not None and item.start_ms > start_ms:
            return at
        if isinstance(item, TranscriptItem) and item.start_ms is None:
            caller_turns += item.role == "user" and item.speaker is None
            if caller_turns > turn or (caller_turns == turn and item.role == "assistant"):
                return at
    return len(items)
