"""Transcript of a call: the recognized words of the user, the played words of the agent, and the tool calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from models.protocols import ChatMessage, SynthesizedSpeech, ToolCall
from storage.calls.calls import Speaker, TranscriptItem

_WORD: Final = re.compile(r"\S+")


@dataclass(eq=False)
class TranscriptLine:
    """One item of the transcript. An assistant's line grows while it is played; an empty one is not stored."""

    role: Literal["user", "assistant"]
    text: str
    speaker: Speaker | None = None
    """Of what connected parties say to each other."""
    start_ms: float | None = None
    """The beginning of its audio, ms on the arrival clock; of DTMF digits, the first key."""
    end_ms: float | None = None
    """The end of its audio; of DTMF digits, the last key."""
    word_starts_ms: Sequence[float] = field(default_factory=tuple, repr=False)
    """The beginnings of the words that white space separates, on the same clock; fewer if they are not known."""


@dataclass(frozen=True)
class ToolUse:
    """A tool call and its result: a message for the language model, but no item of the stored transcript."""

    call: ToolCall
    result: str
    ok: bool = True


def _began_after(line: TranscriptLine | ToolUse, start_ms: float) -> bool:
    """True for a line of a connected party that began after `start_ms`."""
    return isinstance(line, TranscriptLine) and line.speaker is not None and (line.start_ms or 0.0) > start_ms


class Transcript:
    """The conversation in the order in which its items began. `zero_ms` is the call's answer on the arrival clock."""

    def __init__(self, zero_ms: float = 0.0) -> None:
        self._zero_ms = zero_ms
        self._lines: list[TranscriptLine | ToolUse] = []
        self._last_heard: TranscriptLine | None = None
        self._words_before = 0
        self.turn_count = 0
        """The caller's turns with the agent."""

    @property
    def line_count(self) -> int:
        """The number of items and tool calls."""
        return len(self._lines)

    def truncate(self, line_count: int, turn_count: int) -> None:
        """Drop everything after so many items and tool calls, and so many turns of the caller."""
        del self._lines[line_count:]
        self.turn_count = turn_count

    def add_user_turn(self, text: str, start_ms: float | None = None, end_ms: float | None = None) -> None:
        """Add a turn of the caller."""
        self._lines.append(self._heard(TranscriptLine("user", text, None, start_ms, end_ms)))
        self.turn_count += 1

    def extend_user_turn(self, text: str, start_ms: float | None = None, end_ms: float | None = None) -> None:
        """Extend the caller's last turn, which has no response yet. It moves behind the tool calls for its first part,
        because it is still to be answered."""
        spoken = [index for index, line in enumerate(self._lines) if isinstance(line, TranscriptLine) and line.text]
        last = self._lines[spoken[-1]] if spoken else None
        if isinstance(last, TranscriptLine) and last.role == "user":
            del self._lines[spoken[-1]]
            line = TranscriptLine("user", f"{last.text} {text}", None, last.start_ms, end_ms, last.word_starts_ms)
            self._lines.append(self._heard(line, last.text))
        else:
            self.add_user_turn(text, start_ms, end_ms)

    def add_utterance(self, speaker: Speaker, text: str, start_ms: float, end_ms: float | None = None) -> None:
        """Add what a connected party said to the other one, in order of the beginnings of such lines. It is no turn
        with the agent."""
        at = len(self._lines)
        while at and _began_after(self._lines[at - 1], start_ms):
            at -= 1
        self._lines.insert(at, self._heard(TranscriptLine("user", text, speaker, start_ms, end_ms)))

    def _heard(self, line: TranscriptLine, before: str = "") -> TranscriptLine:
        self._last_heard, self._words_before = line, len(before.split())
        return line

    def time_words(self, starts_ms: Sequence[float]) -> None:
        """Set the beginnings of the words of what was heard last, on the arrival clock; nothing if there are none, or
        those of the line's words before are not known."""
        line = self._last_heard
        if line is not None and starts_ms and len(line.word_starts_ms) == self._words_before:
            line.word_starts_ms = (*line.word_starts_ms, *starts_ms)

    def add_agent_line(self, line: TranscriptLine) -> None:
        """Add a line whose text is set while the agent's audio is played."""
        self._lines.append(line)

    def add_tool_use(self, use: ToolUse) -> None:
        """Add a tool call with its result."""
        self._lines.append(use)

    def messages_after_tools(self, tool_uses: Sequence[ToolUse]) -> list[ChatMessage]:
        """Returns `messages` as they would be after these tool calls."""
        return self._copy_with(tool_uses).messages()

    def messages_after_turn(
        self, text: str, *, extends_turn: bool, tool_uses: Sequence[ToolUse] = ()
    ) -> list[ChatMessage]:
        """Returns `messages` as they would be after these tool calls and a turn of the caller, or more of the last
        one."""
        copy = self._copy_with(tool_uses)
        if extends_turn:
            copy.extend_user_turn(text)
        else:
            copy.add_user_turn(text)
        return copy.messages()

    def _copy_with(self, tool_uses: Sequence[ToolUse]) -> Transcript:
        copy = Transcript()
        copy._lines = [*self._lines, *tool_uses]
        return copy

    def items(self, *, words: bool = False) -> list[TranscriptItem]:
        """Returns the items as they are stored, with whole ms since the answer; with the beginnings of their `words`
        once the call has ended."""
        lines = [line for line in self._lines if isinstance(line, TranscriptLine) and line.text]
        return [self._item_of(line, words) for line in lines]

    def _item_of(self, line: TranscriptLine, words: bool) -> TranscriptItem:
        item: TranscriptItem = {"role": line.role, "content": line.text}
        if line.speaker is not None:
            item["speaker"] = line.speaker
        if line.start_ms is not None:
            item["startMs"] = round(line.start_ms - self._zero_ms)
        if line.end_ms is not None:
            item["endMs"] = round(line.end_ms - self._zero_ms)
        if words and line.start_ms is not None and len(line.word_starts_ms) == len(line.text.split()):
            last_ms = max(line.start_ms, *line.word_starts_ms) if line.end_ms is None else line.end_ms
            starts_ms = (min(max(start_ms, line.start_ms), last_ms) for start_ms in line.word_starts_ms)
            item["words"] = [round(start_ms - line.start_ms) for start_ms in starts_ms]
        return item

    def messages(self) -> list[ChatMessage]:
        """Returns the messages for a language model."""
        messages: list[ChatMessage] = []
        for line in self._lines:
            if isinstance(line, ToolUse):
                messages.append(ChatMessage("assistant", "", tool_calls=(line.call,)))
                messages.append(ChatMessage("tool", line.result, tool_call_id=line.call.id, ok=line.ok))
            elif line.text:
                messages.append(ChatMessage(line.role, line.text))
        return messages


def word_starts(speech: SynthesizedSpeech) -> list[float]:
    """The beginnings of the words that white space separates in the speech's text, s; empty without word timings."""
    if not speech.words:
        return []
    starts: list[float] = []
    ends, begin = iter(speech.words), 0
    end = next(ends, None)
    for word in _WORD.finditer(speech.text):
        while end is not None and end.char_end <= word.start():
            begin, end = end.sample_end, next(ends, None)
        starts.append(begin / speech.rate)
    return starts


def played_text(speech: SynthesizedSpeech, played_samples: int) -> str:
    """Returns the text of speech of which `played_samples` were played: up to the last word that was played to its end.
    Without word timings, the same share of the text as of the audio, cut between words."""
    if played_samples >= len(speech.samples):
        return speech.text
    if speech.words:
        return speech.text[
            : max((word.char_end for word in speech.words if word.sample_end <= played_samples), default=0)
        ]
    share = len(speech.text) * played_samples // len(speech.samples)
    return speech.text[:share].rpartition(" ")[0]
