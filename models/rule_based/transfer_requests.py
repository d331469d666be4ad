"""Transfers by rules: recognizes a request for a person, chooses the target, and speaks what came of a transfer.
English only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.protocols import ChatMessage, ToolDefinition
from models.text.bm25 import STOP_WORDS, Bm25Index, stem, tokenize
from models.text.word_lists import word_set

STAYS: Final = "All right, I am still here. How can I help you?"
NOT_POSSIBLE: Final = "I am sorry, I cannot put you through now."
MORE_QUESTION: Final = "Is there anything else I can help you with?"
_PERSON: Final = (
    r"(?:(?:a|an|the|your|some|any|another) )?(?:(?:real|live|actual|human|other) )?"
    r"(?:person|human|someone|somebody|anyone|anybody|operator|representative|receptionist|agent"
    r"|colleague|manager|supervisor|employee|member of staff)"
)
_PERSON_REQUEST: Final = re.compile(
    rf"\b(?:(?:speak|talk|chat) (?:to|two|too|with) {_PERSON}|(?:get|give|need|want|like) (?:me )?{_PERSON}"
    r"|(?:put|pass) (?:me|us) (?:through|on|over)|(?:connect|transfer) (?:me|us|my call|this call))\b"
)
_CONTACT_REQUEST: Final = re.compile(r"\b(?:(?:speak|talk|chat) (?:to|two|too|with)|(?:get|give) me|reach)\b")
"""A request if a target is named."""
_NEGATION: Final = re.compile(r"\b(?:not|don't|no need to|never|without)\b[\w' ]{0,24}$")
"""At the end of the text before a request: it is none."""
_TOPIC: Final = re.compile(r"\b(?:about|regarding|concerning|because of|because)\s+(?P<topic>.+)$")
_SAID_OF_THEM: Final[Mapping[str, str]] = {
    "i": "they", "we": "they", "i'm": "they are", "we're": "they are", "am": "are", "i've": "they have",
    "i'd": "they would", "i'll": "they will", "me": "them", "us": "them", "my": "their", "our": "their",
}  # fmt: skip
"""The caller's words about themselves, as another person says them."""
_COURTESY_WORDS: Final = word_set("please thanks thank you now then today")
_MAX_EARLIER_LINES: Final = 2
"""Earlier lines of the caller that the target is told."""
_NOT_MADE: Final = re.compile(r"The transfer to (?P<target>.+?) did not happen: (?P<why>[^.]+)\.")
_CANCELLED: Final = re.compile(r"The transfer to .+ was cancelled\b")


@dataclass(frozen=True)
class TransferRequest:
    """A transfer to `target`. `reason` and `summary` are in the caller's words, "" without any."""

    target: str
    reason: str
    summary: str

    def arguments(self) -> dict[str, str]:
        """The arguments of the tool."""
        given = {"target": self.target, "reason": self.reason, "summary": self.summary}
        return {name: value for name, value in given.items() if value}


class TransferTargets:
    """The targets of the tool `transfer_call`: their names, and their descriptions from the tool's description."""

    def __init__(self, tool: ToolDefinition) -> None:
        names: Sequence[str] = tool.parameters["properties"]["target"]["enum"]
        self._names: Final = tuple(names)
        _, _, listed = tool.description.partition("Targets: ")
        self._named: Final = Bm25Index(names)
        self._described: Final = Bm25Index(_descriptions(names, listed))

    def request(self, messages: Sequence[ChatMessage], user_text: str) -> str | TransferRequest | None:
        """The transfer for the caller's last words, or the question for its target; None if no transfer is requested.
        `user_text` is these words in lower case."""
        answers_question = len(messages) >= 2 and messages[-2].content == self._question
        named = self._target_in(user_text, self._named)
        if not (is_request(user_text) or (named and (answers_question or _asks_for_contact(user_text)))):
            return None
        target = named or self._target_in(user_text, self._described)
        if target is None and len(self._names) > 1:
            return self._question
        return TransferRequest(target or self._names[0], _reason(user_text), _summary(messages))

    @property
    def _question(self) -> str:
        *first, last = self._names
        return f"Who would you like to speak to: {', '.join(first)} or {last}?"

    def _target_in(self, user_text: str, index: Bm25Index) -> str | None:
        """The target that matches better than any other one."""
        matches = index.search(user_text)
        if not matches or (len(matches) > 1 and matches[1].score == matches[0].score):
            return None
        return self._names[matches[0].index] if matches[0].certainty == 1 else None


def is_request(user_text: str) -> bool:
    """True if the caller asks for a person, or for a transfer."""
    return _is_affirmed(_PERSON_REQUEST.search(user_text), user_text)


def speak_transfer_result(result: ChatMessage) -> str:
    """The text to speak when the caller is back from a transfer. What the target said is not repeated."""
    if _CANCELLED.match(result.content):
        return STAYS
    if match := _NOT_MADE.match(result.content):
        return f"I am sorry, I could not put you through to {match['target']}: {match['why']}. {MORE_QUESTION}"
    return f"{NOT_POSSIBLE} {MORE_QUESTION}"


def _asks_for_contact(user_text: str) -> bool:
    return _is_affirmed(_CONTACT_REQUEST.search(user_text), user_text)


def _is_affirmed(match: re.Match[str] | None, user_text: str) -> bool:
    return match is not None and _NEGATION.search(user_text[: match.start()]) is None


def _descriptions(names: Sequence[str], listed: str) -> list[str]:
    """The name and the description of each target, from a list like "Sales: prices; Support: faults"."""
    starts = [listed.find(f"{name}: ") for name in names]
    ends = [*starts[1:], len(listed)]
    return [listed[start:end] if start >= 0 else "" for start, end in zip(starts, ends, strict=True)]


def _reason(user_text: str) -> str:
    """What the caller wants to talk about: "their bill"; "" if they do not say."""
    match = _TOPIC.search(user_text)
    words = match["topic"].split() if match else []
    while words and words[-1].strip(".,!?") in _COURTESY_WORDS:
        words.pop()
    return " ".join(_SAID_OF_THEM.get(word, word) for word in words).strip(" .,!?")


def _summary(messages: Sequence[ChatMessage]) -> str:
    """The last lines of the caller before the request that mean something."""
    earlier = [
        message.content.strip(" .")
        for message in messages[:-1]
        if message.role == "user" and not is_request(message.content.lower()) and _means_something(message.content)
    ]
    return f"They said before: {'; '.join(earlier[-_MAX_EARLIER_LINES:])}" if earlier else ""


def _means_something(text: str) -> bool:
    return len({stem(word) for word in tokenize(text) if word not in STOP_WORDS}) >= 2
