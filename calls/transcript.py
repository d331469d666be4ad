"""What was said in a call and heard by the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.protocols import ChatMessage, Speech
from storage.calls import TranscriptItem


@dataclass(eq=False)
class Line:
    """One item of the talk. An assistant's line grows while it is heard; an empty one is no item."""

    role: Literal["user", "assistant"]
    text: str


class Transcript:
    """The talk in the order in which it was begun."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self.turn_count = 0
        """Turns of the caller."""

    def user(self, text: str) -> None:
        """A turn of the caller."""
        self._lines.append(Line("user", text))
        self.turn_count += 1

    def user_went_on(self, text: str) -> None:
        """More of the caller's last turn, to which nothing was answered yet."""
        spoken = [line for line in self._lines if line.text]
        if spoken and spoken[-1].role == "user":
            spoken[-1].text = f"{spoken[-1].text} {text}"
        else:
            self.user(text)

    def agent_begins(self, line: Line) -> None:
        """The agent begins to say `line`; its text is set as it is heard."""
        self._lines.append(line)

    def items(self) -> list[TranscriptItem]:
        """As it is stored."""
        return [{"role": line.role, "content": line.text} for line in self._lines if line.text]

    def messages(self) -> list[ChatMessage]:
        """As a language model gets it."""
        return [ChatMessage(line.role, line.text) for line in self._lines if line.text]


def heard_text(speech: Speech, heard: int) -> str:
    """The text of a piece of speech of which `heard` samples were played: up to the last word that was played to its
    end. Without the words' places, as much of the text as was played of the sound, cut between words."""
    if heard >= len(speech.samples):
        return speech.text
    if speech.words:
        return speech.text[: max((word.char_end for word in speech.words if word.sample_end <= heard), default=0)]
    share = len(speech.text) * heard // len(speech.samples)
    return speech.text[:share].rpartition(" ")[0]
