"""Selects a tool by the caller's words, and asks for what it needs: rules, no weights. English only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.protocols import (
    END_CALL,
    SEARCH_KNOWLEDGE,
    TRANSFER_CALL,
    ChatMessage,
    ChatPrompt,
    ToolCall,
    ToolDefinition,
)
from models.rule_based.ivr_keys import keys_to_press
from models.rule_based.tool_arguments import (
    Parameter,
    Value,
    argument_in_answer,
    arguments_in,
    missing,
    parameters_of,
    question_for,
    readable,
)
from models.rule_based.tool_results import SORRY, speak_result
from models.rule_based.transfer_requests import TransferTargets
from models.text.bm25 import Bm25Index, stem, tokenize
from models.text.word_lists import word_set

SEND_DTMF: Final = "send_dtmf"
_BUILT_IN: Final = frozenset({END_CALL, SEND_DTMF, SEARCH_KNOWLEDGE, TRANSFER_CALL})
NOT_UNDERSTOOD: Final = "I am sorry, I did not get that."
GIVEN_UP: Final = "I am sorry, I cannot do that without it. Is there anything else I can help you with?"
CANCELLED: Final = "All right. Is there anything else I can help you with?"
_MAX_QUESTIONS: Final = 2
"""Times that the caller is asked for one parameter in a row."""
_GENERIC_WORDS: Final = word_set(
    "api call caller check customer data fetch find function get give given information look lookup number provide"
    " query read return retrieve search show tell tool use user whether"
)
"""Words that the names and descriptions of most tools have in common."""
_ACTION_WORDS: Final = word_set(
    "add arrange book buy cancel change close create delete make move open order pay place refund register remove"
    " reschedule reserve schedule send set start stop submit transfer update"
)
"""A tool whose name begins with one of these verbs has an effect: it is called only when the caller says the verb."""
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
_NAME_BONUS: Final = 0.5
"""Added to the weight of a tool when the caller says a word of its name; each matching word weighs 1, as in a fact."""
_ACTION_BONUS: Final = 1.0
"""Added to the weight of a tool that the caller tells to act: with its verb, and not in a question."""
_MIN_FACT_RATIO: Final = 1.4
"""Least ratio of a tool's weight to the best fact's weight for the tool to be selected."""
_MIN_LIKENESS: Final = 0.7
"""Least likeness (0..1) of a misrecognized word that counts for a tool."""
_WH_QUESTION: Final = re.compile(r"^(?:what|where|when|who|why|how|which)\b")
_QUESTION: Final = re.compile(rf"{_WH_QUESTION.pattern}|^(?:do|does|can|could|are|is there)\b")
_CANCEL_REQUEST: Final = re.compile(
    r"\b(never mind|nevermind|forget (it|that|about it)|leave it|no longer|cancel that)\b"
)


@dataclass(frozen=True)
class SelectableTool:
    """A tool of the agent and the parameters that can be filled by voice."""

    definition: ToolDefinition
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class _ToolRequest:
    """The caller's request for a tool: its first words, then each parameter asked for, with the answer."""

    words: str
    answers: tuple[tuple[Parameter, str], ...]


class ToolSelector:
    """Selects among the tools of one prompt."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._built_in = _BUILT_IN & {tool.name for tool in tools}
        custom_tools = [(tool, parameters_of(tool)) for tool in tools if tool.name not in _BUILT_IN]
        self._candidates = [
            SelectableTool(tool, tuple(parameters)) for tool, parameters in custom_tools if parameters is not None
        ]
        transfer_tool = next((tool for tool in tools if tool.name == TRANSFER_CALL), None)
        self._transfer_targets = None if transfer_tool is None else TransferTargets(transfer_tool)
        self._names = Bm25Index(
            [_distinctive_words(readable(candidate.definition.name)) for candidate in self._candidates]
        )
        self._texts = Bm25Index([_searchable_text(candidate) for candidate in self._candidates])

    def select(self, prompt: ChatPrompt, user_text: str, fact_weight: float) -> str | ToolCall | None:
        """The tool call, or the text to speak, for the caller's last words; None if no tool applies. `user_text` is
        these words in lower case, `fact_weight` the weight of the best fact for them."""
        pending = self._pending_request(prompt.messages)
        if pending is not None:
            return self._handle_answer(prompt, *pending, user_text, fact_weight)
        candidate = self._best_tool(user_text, fact_weight)
        return (
            self._ask_or_call(prompt, candidate, _ToolRequest(prompt.messages[-1].content, ())) if candidate else None
        )

    def press(self, prompt: ChatPrompt, user_text: str) -> ToolCall | None:
        """The call of `send_dtmf` for the keys that the caller's last words name; None if they name none."""
        keys = keys_to_press(user_text, prompt.system) if SEND_DTMF in self._built_in else ""
        return self.call(prompt, SEND_DTMF, {"digits": keys}) if keys else None

    def transfer(self, prompt: ChatPrompt, user_text: str) -> str | ToolCall | None:
        """The call of `transfer_call` for the caller's last words, or the question for its target; None if the caller
        does not ask for a person, or the prompt offers no transfer."""
        if self._transfer_targets is None:
            return None
        request = self._transfer_targets.request(prompt.messages, user_text)
        if request is None or isinstance(request, str):
            return request
        return self.call(prompt, TRANSFER_CALL, request.arguments())

    def search(self, prompt: ChatPrompt) -> ToolCall | None:
        """The call of `search_knowledge` with the caller's last words; None without documents."""
        return self.call(prompt, SEARCH_KNOWLEDGE, {"query": prompt.messages[-1].content})

    def call(self, prompt: ChatPrompt, name: str, arguments: Mapping[str, Value]) -> ToolCall | None:
        """A call of a built-in tool; None if the prompt does not offer it."""
        return _call(prompt, name, arguments) if name in self._built_in else None

    def _best_tool(self, user_text: str, fact_weight: float) -> SelectableTool | None:
        """The tool that matches the words clearly better than any fact does; the first of equals."""
        weights = self._weights(user_text)
        if not weights:
            return None
        index = max(weights, key=lambda index: (weights[index], -index))
        return self._candidates[index] if weights[index] >= _MIN_FACT_RATIO * fact_weight else None

    def _weights(self, user_text: str) -> dict[int, float]:
        """The weight of each tool that shares a word of its name, or two words of its description, with the text."""
        expanded_text = " ".join([user_text, *(_SYNONYMS.get(word, "") for word in tokenize(user_text))])
        name_matches = {match.index: _likely_words(match.words) for match in self._names.search(expanded_text)}
        text_matches = {match.index: _likely_words(match.words) for match in self._texts.search(expanded_text)}
        weights = {}
        for index, candidate in enumerate(self._candidates):
            name, text = name_matches.get(index, {}), text_matches.get(index, {})
            hits = {word: max(name.get(word, 0.0), text.get(word, 0.0)) for word in {*name, *text}}
            action = _action_stem(candidate.definition)
            if (name or len(text) >= 2) and (action is None or action in map(stem, tokenize(expanded_text))):
                is_told_to_act = action is not None and not _WH_QUESTION.match(user_text)
                weights[index] = (
                    sum(hits.values()) + (_NAME_BONUS if name else 0.0) + (_ACTION_BONUS if is_told_to_act else 0.0)
                )
        return weights

    def _pending_request(self, messages: Sequence[ChatMessage]) -> tuple[SelectableTool, _ToolRequest] | None:
        """The tool for which the agent has just asked for a parameter."""
        pending = [
            (candidate, request)
            for candidate in self._candidates
            if (request := _request_for(candidate.parameters, messages))
        ]
        return max(
            pending,
            key=lambda each: self._weights(each[1].words).get(self._candidates.index(each[0]), 0),
            default=None,
        )

    def _handle_answer(
        self, prompt: ChatPrompt, candidate: SelectableTool, request: _ToolRequest, user_text: str, fact_weight: float
    ) -> str | ToolCall | None:
        """Handle the caller's answer to a question for a parameter."""
        if _CANCEL_REQUEST.search(user_text):
            return CANCELLED
        asked_parameter, answer = request.answers[-1]
        value = argument_in_answer(asked_parameter, answer)
        if fact_weight > 0 and (value is None or _QUESTION.match(user_text)):
            return None
        if value is None:
            times_asked = sum(1 for parameter, _ in request.answers if parameter == asked_parameter)
            return f"{NOT_UNDERSTOOD} {question_for(asked_parameter)}" if times_asked < _MAX_QUESTIONS else GIVEN_UP
        return self._ask_or_call(prompt, candidate, request)

    def _ask_or_call(self, prompt: ChatPrompt, candidate: SelectableTool, request: _ToolRequest) -> str | ToolCall:
        """Ask for the next missing parameter, or call the tool; a result for the same words is repeated instead."""
        arguments = _arguments(candidate, request)
        missing_parameters = missing(arguments, candidate.parameters)
        if missing_parameters:
            return question_for(missing_parameters[0])
        call = _call(prompt, candidate.definition.name, arguments)
        return _previous_answer(prompt.messages, call) or call


def _request_for(parameters: Sequence[Parameter], messages: Sequence[ChatMessage]) -> _ToolRequest | None:
    """The request for a tool at the end of the messages, with the questions and answers after it."""
    answers: list[tuple[Parameter, str]] = []
    at = len(messages) - 1
    while at >= 2 and messages[at].role == "user" and messages[at - 1].role == "assistant":
        asked_parameter = next((each for each in parameters if _asks_for(messages[at - 1].content, each)), None)
        if asked_parameter is None:
            break
        answers.insert(0, (asked_parameter, messages[at].content))
        at -= 2
    if not answers or messages[at].role != "user":
        return None
    return _ToolRequest(messages[at].content, tuple(answers))


def _asks_for(agent_text: str, parameter: Parameter) -> bool:
    """True if the agent's text asks for the parameter; barge-in may have cut it short."""
    question, agent_text = question_for(parameter), agent_text.removeprefix(NOT_UNDERSTOOD).strip()
    return agent_text == question or (len(agent_text.split()) >= 3 and question.startswith(agent_text))


def _arguments(candidate: SelectableTool, request: _ToolRequest) -> dict[str, Value]:
    """The arguments given in the request and in the answers; an answer overrides the request."""
    about = {
        stem(word) for word in tokenize(f"{readable(candidate.definition.name)} {candidate.definition.description}")
    }
    arguments = arguments_in(candidate.parameters, request.words, about)
    for parameter, answer in request.answers:
        value = argument_in_answer(parameter, answer)
        if value is not None:
            arguments[parameter.name] = value
    return arguments


def _call(prompt: ChatPrompt, name: str, arguments: Mapping[str, Value]) -> ToolCall:
    before = sum(len(message.tool_calls) for message in prompt.messages)
    return ToolCall(f"call_{before + 1}", name, json.dumps(arguments, ensure_ascii=False))


def _previous_answer(messages: Sequence[ChatMessage], call: ToolCall) -> str | None:
    """The text of an earlier result for the same words and the same call; None without one, or if it failed."""
    results = {message.tool_call_id: message for message in messages if message.role == "tool"}
    user_text = ""
    for message in messages[:-1]:
        if message.role == "user":
            user_text = message.content
        for earlier_call in message.tool_calls:
            if user_text == messages[-1].content and (earlier_call.name, earlier_call.arguments) == (
                call.name,
                call.arguments,
            ):
                result = results.get(earlier_call.id)
                previous_text = SORRY if result is None else speak_result(result, call)
                return None if previous_text == SORRY else previous_text
    return None


def _distinctive_words(text: str) -> str:
    """The text without words that most tools have in common."""
    return " ".join(word for word in tokenize(text) if word not in _GENERIC_WORDS and stem(word) not in _GENERIC_WORDS)


def _searchable_text(candidate: SelectableTool) -> str:
    return _distinctive_words(
        " ".join([candidate.definition.description, *(readable(parameter.name) for parameter in candidate.parameters)])
    )


def _likely_words(likeness: Mapping[str, float]) -> dict[str, float]:
    return {word: weight for word, weight in likeness.items() if weight >= _MIN_LIKENESS}


def _action_stem(definition: ToolDefinition) -> str | None:
    """The stem of the tool's verb; None for a tool that only reads."""
    first = readable(definition.name).split()[:1]
    return stem(first[0]) if first and first[0] in _ACTION_WORDS else None
