"""What was said in a call and heard by the other side, and which tools were used meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.protocols import ChatMessage, SynthesizedSpeech, ToolCall
from storage.calls.calls import TranscriptItem


@dataclass(eq=False)
class TranscriptLine:
    """One item of the talk. An assistant's line grows while it is heard; an empty one is no item."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class ToolUse:
    """A tool was called and answered. The language model sees it; no item of the talk."""

    call: ToolCall
    result: str
    ok: bool = True


class Transcript:
    """The talk in the order in which it was begun."""

    def __init__(self) -> None:
        self._lines: list[TranscriptLine | ToolUse] = []
        self.turn_count = 0
        """Turns of the caller."""

    def add_user_turn(self, text: str) -> None:
        """A turn of the caller."""
        self._lines.append(TranscriptLine("user", text))
        self.turn_count += 1

    def extend_user_turn(self, text: str) -> None:
        """More of the caller's last turn, to which nothing was answered yet. It comes after tools that were used for
        its first part: what it asks is still to be answered."""
        said = [index for index, line in enumerate(self._lines) if isinstance(line, TranscriptLine) and line.text]
        last = self._lines[said[-1]] if said else None
        if isinstance(last, TranscriptLine) and last.role == "user":
            del self._lines[said[-1]]
            self._lines.append(TranscriptLine("user", f"{last.text} {text}"))
        else:
            self.add_user_turn(text)

    def add_agent_line(self, line: TranscriptLine) -> None:
        """The agent begins to say `line`; its text is set as it is heard."""
        self._lines.append(line)

    def add_tool_use(self, use: ToolUse) -> None:
        """A tool has answered."""
        self._lines.append(use)

    def messages_after_tools(self, tool_uses: Sequence[ToolUse]) -> list[ChatMessage]:
        """`messages` as they would be after these tools were used."""
        return self._copy_with(tool_uses).messages()

    def messages_after_turn(
        self, text: str, *, extends_turn: bool, tool_uses: Sequence[ToolUse] = ()
    ) -> list[ChatMessage]:
        """`messages` as they would be after a turn of the caller, or more of the last one, and before it these
        tools."""
        trial = self._copy_with(tool_uses)
        if extends_turn:
            trial.extend_user_turn(text)
        else:
            trial.add_user_turn(text)
        return trial.messages()

    def _copy_with(self, tool_uses: Sequence[ToolUse]) -> Transcript:
        trial = Transcript()
        trial._lines = [*self._lines, *tool_uses]
        return trial

    def items(self) -> list[TranscriptItem]:
        """As it is stored."""
        return [
            {"role": line.role, "content": line.text}
            for line in self._lines
            if isinstance(line, TranscriptLine) and line.text
        ]

    def messages(self) -> list[ChatMessage]:
        """As a language model gets it."""
        messages: list[ChatMessage] = []
        for line in self._lines:
            if isinstance(line, ToolUse):
                messages.append(ChatMessage("assistant", "", tool_calls=(line.call,)))
                messages.append(ChatMessage("tool", line.result, tool_call_id=line.call.id, ok=line.ok))
            elif line.text:
                messages.append(ChatMessage(line.role, line.text))
        return messages


def played_text(speech: SynthesizedSpeech, played_samples: int) -> str:
    """The text of a piece of speech of which `heard` samples were played: up to the last word that was played to its
    end. Without the words' places, as much of the text as was played of the sound, cut between words."""
    if played_samples >= len(speech.samples):
        return speech.text
    if speech.words:
        return speech.text[
            : max((word.char_end for word in speech.words if word.sample_end <= played_samples), default=0)
        ]
    share = len(speech.text) * played_samples // len(speech.samples)
    return speech.text[:share].rpartition(" ")[0]
