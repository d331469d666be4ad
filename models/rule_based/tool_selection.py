"""Selects a tool by the caller's words, and asks for what it needs: rules, no weights. English only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.protocols import END_CALL, SEARCH_KNOWLEDGE, ChatMessage, ChatPrompt, ToolCall, ToolDefinition
from models.rule_based.ivr_keys import keys_to_press
from models.rule_based.tool_arguments import (
    Parameter,
    Value,
    answered_argument,
    missing,
    parameters_of,
    question_for,
    readable,
    said_arguments,
)
from models.rule_based.tool_results import SORRY, said_result
from models.text.bm25 import Bm25Index, stem, tokens
from models.text.word_lists import words

SEND_DTMF: Final = "send_dtmf"
_BUILT_IN: Final = frozenset({END_CALL, SEND_DTMF, SEARCH_KNOWLEDGE})
NOT_HEARD: Final = "I am sorry, I did not get that."
GIVEN_UP: Final = "I am sorry, I cannot do that without it. Is there anything else I can help you with?"
DROPPED: Final = "All right. Is there anything else I can help you with?"
_QUESTIONS_AT_MOST: Final = 2
"""Times that one parameter is asked for in a row."""
_GENERIC: Final = words(
    "api call caller check customer data fetch find function get give given information look lookup number provide"
    " query read return retrieve search show tell tool use user whether"
)
"""Words in which the names and descriptions of tools are alike."""
_ACTING: Final = words(
    "add arrange book buy cancel change close create delete make move open order pay place refund register remove"
    " reschedule reserve schedule send set start stop submit transfer update"
)
"""A tool whose name begins with one of these does something: it is used only when that was said."""
_SYNONYMS: Final = {
    "make": "book create schedule arrange",
    "reserve": "book",
    "reservation": "book",
    "book": "reserve schedule",
    "schedule": "book",
    "move": "reschedule change update",
    "change": "reschedule update",
    "arrive": "delivery status",
    "track": "status",
    "tell": "send",
}
_NAMED: Final = 0.5
"""What a tool has in addition, of whose name a word was said; each word counts 1, as one of a fact does."""
_TO_ACT: Final = 1.0
"""What a tool has in addition that was told to act: not a question, and the word for what it does."""
_CLEARLY: Final = 1.4
"""Of the best fact's weight a tool must have so much."""
_SURE: Final = 0.7
"""Least likeness of a misheard word that may choose a tool."""
_ASKS: Final = re.compile(r"^(?:what|where|when|who|why|how|which)\b")
_LIKE_A_QUESTION: Final = re.compile(rf"{_ASKS.pattern}|^(?:do|does|can|could|are|is there)\b")
_NEVER_MIND: Final = re.compile(r"\b(never mind|nevermind|forget (it|that|about it)|leave it|no longer|cancel that)\b")


@dataclass(frozen=True)
class Offer:
    """A tool that can be chosen."""

    tool: ToolDefinition
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class _Request:
    """What the caller wants a tool for: the first words, then each parameter that was asked for and the answer."""

    words: str
    answers: tuple[tuple[Parameter, str], ...]


class Toolbox:
    """The tools of a prompt, ready to be chosen from."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._built_in = _BUILT_IN & {tool.name for tool in tools}
        own = [(tool, parameters_of(tool)) for tool in tools if tool.name not in _BUILT_IN]
        self._offers = [Offer(tool, tuple(found)) for tool, found in own if found is not None]
        self._names = Bm25Index([_telling(readable(offer.tool.name)) for offer in self._offers])
        self._texts = Bm25Index([_described(offer) for offer in self._offers])

    def step(self, prompt: ChatPrompt, heard: str, fact_weight: float) -> str | ToolCall | None:
        """What to do about the caller's last words: a tool to call, something to say, or None when it is no matter
        for a tool. `heard` is them in small letters, `fact_weight` what the best fact has of them."""
        pending = self._pending(prompt.messages)
        if pending is not None:
            return self._answered(prompt, *pending, heard, fact_weight)
        offer = self._best(heard, fact_weight)
        return self._go_on(prompt, offer, _Request(prompt.messages[-1].content, ())) if offer else None

    def press(self, prompt: ChatPrompt, heard: str) -> ToolCall | None:
        """Press the keys that the caller's last words ask for, if they do."""
        keys = keys_to_press(heard, prompt.system) if SEND_DTMF in self._built_in else ""
        return self.call(prompt, SEND_DTMF, {"digits": keys}) if keys else None

    def search(self, prompt: ChatPrompt) -> ToolCall | None:
        """Look up the caller's last words in the documents, if there are any."""
        return self.call(prompt, SEARCH_KNOWLEDGE, {"query": prompt.messages[-1].content})

    def call(self, prompt: ChatPrompt, name: str, arguments: Mapping[str, Value]) -> ToolCall | None:
        """A call of a built-in tool; None when it is not offered."""
        return _call(prompt, name, arguments) if name in self._built_in else None

    def _best(self, heard: str, fact_weight: float) -> Offer | None:
        """The tool that the words mean, when they mean it clearly better than any fact; the first of several."""
        weights = self._weights(heard)
        if not weights:
            return None
        place = max(weights, key=lambda place: (weights[place], -place))
        return self._offers[place] if weights[place] >= _CLEARLY * fact_weight else None

    def _weights(self, heard: str) -> dict[int, float]:
        """What each tool has of the words; only those tools that share a word of their name, or two others."""
        meant = " ".join([heard, *(_SYNONYMS.get(word, "") for word in tokens(heard))])
        named = {match.index: _sure(match.words) for match in self._names.search(meant)}
        described = {match.index: _sure(match.words) for match in self._texts.search(meant)}
        found = {}
        for place, offer in enumerate(self._offers):
            name, text = named.get(place, {}), described.get(place, {})
            hits = {word: max(name.get(word, 0.0), text.get(word, 0.0)) for word in {*name, *text}}
            action = _action(offer.tool)
            if (name or len(text) >= 2) and (action is None or action in map(stem, tokens(meant))):
                told = action is not None and not _ASKS.match(heard)
                found[place] = sum(hits.values()) + (_NAMED if name else 0.0) + (_TO_ACT if told else 0.0)
        return found

    def _pending(self, messages: Sequence[ChatMessage]) -> tuple[Offer, _Request] | None:
        """The tool for which something was asked just now."""
        asked = [(offer, request) for offer in self._offers if (request := _request_for(offer.parameters, messages))]
        return max(
            asked, key=lambda each: self._weights(each[1].words).get(self._offers.index(each[0]), 0), default=None
        )

    def _answered(
        self, prompt: ChatPrompt, offer: Offer, request: _Request, heard: str, fact_weight: float
    ) -> str | ToolCall | None:
        """The caller's words come after a question of ours."""
        if _NEVER_MIND.search(heard):
            return DROPPED
        asked, answer = request.answers[-1]
        value = answered_argument(asked, answer)
        if fact_weight > 0 and (value is None or _LIKE_A_QUESTION.match(heard)):
            return None
        if value is None:
            times = sum(1 for parameter, _ in request.answers if parameter == asked)
            return f"{NOT_HEARD} {question_for(asked)}" if times < _QUESTIONS_AT_MOST else GIVEN_UP
        return self._go_on(prompt, offer, request)

    def _go_on(self, prompt: ChatPrompt, offer: Offer, request: _Request) -> str | ToolCall:
        """Ask for what is missing, or call the tool; what it has answered to the same words is said again."""
        arguments = _arguments(offer, request)
        open_ones = missing(arguments, offer.parameters)
        if open_ones:
            return question_for(open_ones[0])
        call = _call(prompt, offer.tool.name, arguments)
        return _answered_before(prompt.messages, call) or call


def _request_for(parameters: Sequence[Parameter], messages: Sequence[ChatMessage]) -> _Request | None:
    """The talk about a tool's parameters at the end of the messages: a request, then questions and answers."""
    answers: list[tuple[Parameter, str]] = []
    at = len(messages) - 1
    while at >= 2 and messages[at].role == "user" and messages[at - 1].role == "assistant":
        asked = next((each for each in parameters if _asks(messages[at - 1].content, each)), None)
        if asked is None:
            break
        answers.insert(0, (asked, messages[at].content))
        at -= 2
    if not answers or messages[at].role != "user":
        return None
    return _Request(messages[at].content, tuple(answers))


def _asks(said: str, parameter: Parameter) -> bool:
    """True if the agent's words ask for the parameter; the caller may have cut them short."""
    question, said = question_for(parameter), said.removeprefix(NOT_HEARD).strip()
    return said == question or (len(said.split()) >= 3 and question.startswith(said))


def _arguments(offer: Offer, request: _Request) -> dict[str, Value]:
    """What was said in the request and in the answers; an answer counts more."""
    about = {stem(word) for word in tokens(f"{readable(offer.tool.name)} {offer.tool.description}")}
    found = said_arguments(offer.parameters, request.words, about)
    for parameter, answer in request.answers:
        value = answered_argument(parameter, answer)
        if value is not None:
            found[parameter.name] = value
    return found


def _call(prompt: ChatPrompt, name: str, arguments: Mapping[str, Value]) -> ToolCall:
    before = sum(len(message.tool_calls) for message in prompt.messages)
    return ToolCall(f"call_{before + 1}", name, json.dumps(arguments, ensure_ascii=False))


def _answered_before(messages: Sequence[ChatMessage], call: ToolCall) -> str | None:
    """What to say again when this was done for the same words already, and done well."""
    results = {message.tool_call_id: message for message in messages if message.role == "tool"}
    said = ""
    for message in messages[:-1]:
        if message.role == "user":
            said = message.content
        for made in message.tool_calls:
            if said == messages[-1].content and (made.name, made.arguments) == (call.name, call.arguments):
                result = results.get(made.id)
                again = SORRY if result is None else said_result(result, call)
                return None if again == SORRY else again
    return None


def _telling(text: str) -> str:
    """Without the words in which all tools are alike."""
    return " ".join(word for word in tokens(text) if word not in _GENERIC and stem(word) not in _GENERIC)


def _described(offer: Offer) -> str:
    return _telling(" ".join([offer.tool.description, *(readable(parameter.name) for parameter in offer.parameters)]))


def _sure(heard: Mapping[str, float]) -> dict[str, float]:
    return {word: weight for word, weight in heard.items() if weight >= _SURE}


def _action(tool: ToolDefinition) -> str | None:
    """The stem of what the tool does; None for one that only tells something."""
    first = readable(tool.name).split()[:1]
    return stem(first[0]) if first and first[0] in _ACTING else None
