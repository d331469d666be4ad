"""Extractive responder: a language model without weights that answers with sentences of the agent's prompt.

Deterministic and fast, so that calls, demos and tests work where no language model is installed. It also speaks the
results of tools and the passages of documents.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from models.protocols import (
    END_CALL,
    SEARCH_KNOWLEDGE,
    SUPERVISOR_NOTE,
    TRANSFER_CALL,
    ChatPrompt,
    CostSource,
    LlmOutput,
    TextDelta,
    ToolCall,
    ToolDefinition,
)
from models.rule_based.ivr_keys import is_menu
from models.rule_based.prompt_facts import PromptFacts, parse_prompt
from models.rule_based.tool_results import passage_sentences, speak_result
from models.rule_based.tool_selection import SEND_DTMF, ToolSelector
from models.rule_based.transfer_requests import MORE_QUESTION, speak_transfer_result
from models.text.bm25 import STOP_WORDS, Bm25Index, tokenize
from models.text.sentence_splitter import split_sentences

NAME: Final = "extractive-responder"
CONTEXT_LENGTH: Final = 32_768
"""Tokens of a prompt, at most; the longest prompt that an agent may have is shorter."""

_MAX_PROMPTS: Final = 64
_SECOND_SENTENCE_SHARE: Final = 0.75
"""Share of the best sentence's score from which a second sentence is spoken too."""
_COVERED_SHARE: Final = 0.5
"""Share of a question's content words that a fact must cover; below it the documents are searched."""
_MAX_TOPICS: Final = 3
_GOODBYE: Final = "Thank you for calling. Goodbye!"
_FAREWELL: Final = re.compile(
    r"\b(good ?bye|bye|see you|hang up|good ?night|have a (nice|good|great) (day|evening|weekend)"
    r"|that's all|that is all|that's it|that will be all|nothing else)\b"
)
_REPEAT_REQUEST: Final = re.compile(
    r"\b(repeat|pardon|come again|(say|tell me|hear) (that|it|this) (again|once more)|what did you say|say again"
    r"|(didn't|did not|couldn't|could not) (understand|hear|get|catch)|one more time)\b"
)
_IDENTITY_QUESTION: Final = re.compile(
    r"\b(who (are|is) (you|this)|who am i (talking|speaking)|what('s| is) your name|are you (a|an) (\w+ )?"
    r"(robot|machine|computer|human|person|bot|ai))\b"
)
_THANKS: Final = re.compile(r"\b(thanks|thank you)\b")
_GREETING: Final = re.compile(r"^(hello|hi|hey|good (morning|afternoon|evening|day))\b")
_YES_WORDS: Final = frozenset({"yes", "yeah", "yep", "sure", "okay", "ok", "please", "of", "course"})
_NO_WORDS: Final = frozenset(
    {"no", "nope", "nothing", "thanks", "thank", "you", "not", "really", "i'm", "good", "fine"}
)
_COURTESY_WORDS: Final = frozenset(
    {"thanks", "thank", "morning", "afternoon", "evening", "day", "great", "perfect", "lot", "much", "bye", "nice"}
)
"""Words of courtesies, beside the words for yes and no."""
_SUBJECT_END: Final = re.compile(
    r"\s*(?::|,|\b(?:is|are|was|were|has|have|can|costs?|opens?|closes?|starts?|takes?|will)\b)"
)
_ARTICLE: Final = re.compile(r"^(?:our|the|a|an)\s+", re.IGNORECASE)


@dataclass(frozen=True)
class _ParsedPrompt:
    """A prompt and its tools, parsed and indexed."""

    prompt_facts: PromptFacts
    index: Bm25Index
    tool_selector: ToolSelector
    tools: Sequence[ToolDefinition]
    """Referenced so that no other objects get the ids by which the cache knows these."""


Response = tuple[str, ToolCall | None]
"""The text to speak, and the tool to call after it."""


class ExtractiveResponder:
    """See `LanguageModel`. English only; facts in another language are found and spoken as they are."""

    cost_source: CostSource = "negligible"

    name = NAME
    restarts_response = True
    """It would take the instruction to continue for a question about the prompt."""

    def __init__(self) -> None:
        self._parsed_prompts: OrderedDict[tuple[str, tuple[int, ...]], _ParsedPrompt] = OrderedDict()

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Stream the answer sentence by sentence; a tool call comes last."""
        text, call = next_response(prompt, await self._parse(prompt))
        sentences = split_sentences(text)
        for number, sentence in enumerate(sentences, 1):
            yield TextDelta(sentence if number == len(sentences) else sentence + " ")
        if call is not None:
            yield call

    async def _parse(self, prompt: ChatPrompt) -> _ParsedPrompt:
        """The parsed prompt, cached; a long one takes some milliseconds, so it is parsed off the event loop. The cache
        compares tools by identity: those of a call stay the same objects, and comparing their content is slow."""
        key = (prompt.system, tuple(map(id, prompt.tools)))
        parsed = self._parsed_prompts.get(key)
        if parsed is None:
            parsed = await asyncio.to_thread(_parse_prompt, prompt.system, prompt.tools)
            self._parsed_prompts[key] = parsed
            while len(self._parsed_prompts) > _MAX_PROMPTS:
                self._parsed_prompts.popitem(last=False)
        self._parsed_prompts.move_to_end(key)
        return parsed


def next_response(prompt: ChatPrompt, parsed: _ParsedPrompt) -> Response:
    """The next response in a conversation. Notes of a supervisor are beyond it."""
    prompt = _without_notes(prompt)
    agent_lines = [message.content for message in prompt.messages if message.role == "assistant" and message.content]
    last = prompt.messages[-1] if prompt.messages else None
    if last is None or last.role == "assistant":
        return _greeting(parsed.prompt_facts), None
    if last.role == "tool":
        return _after_tool(prompt, agent_lines, parsed), None
    user_text = _normalize(last.content)
    if not user_text:
        return "I am sorry, I did not hear you. Could you say that again?", None
    if keys := parsed.tool_selector.press(prompt, user_text):
        return "", keys
    if _REPEAT_REQUEST.search(user_text):
        return (agent_lines[-1] if agent_lines else _greeting(parsed.prompt_facts)), None
    if _IDENTITY_QUESTION.search(user_text):
        return _introduction(parsed.prompt_facts), None
    if _FAREWELL.search(user_text) or (_has_only(user_text, _NO_WORDS) and _has_offered_more(agent_lines)):
        return _GOODBYE, parsed.tool_selector.call(prompt, END_CALL, {})
    return _answer_request(prompt, user_text, agent_lines, parsed)


def _without_notes(prompt: ChatPrompt) -> ChatPrompt:
    notes = {call.id for each in prompt.messages for call in each.tool_calls if call.name == SUPERVISOR_NOTE}
    if not notes:
        return prompt
    messages = [
        each
        for each in prompt.messages
        if each.tool_call_id not in notes and not any(call.id in notes for call in each.tool_calls)
    ]
    return replace(prompt, messages=messages)


def _answer_request(prompt: ChatPrompt, user_text: str, agent_lines: list[str], parsed: _ParsedPrompt) -> Response:
    """A transfer if the caller asks for a person; else a tool if it matches clearly better than any fact; else a fact;
    else a search of the documents."""
    transfer = parsed.tool_selector.transfer(prompt, user_text)
    if transfer is not None:
        return (transfer, None) if isinstance(transfer, str) else ("", transfer)
    facts = parsed.index.search(user_text)
    selected = parsed.tool_selector.select(prompt, user_text, facts[0].weight if facts else 0.0)
    if selected is not None:
        return (selected, None) if isinstance(selected, str) else ("", selected)
    is_covered = bool(facts) and facts[0].weight >= _COVERED_SHARE * len(_content_words(user_text))
    if not is_covered and _content_words(user_text) and (call := parsed.tool_selector.search(prompt)):
        return "", call
    return _answer_from_prompt(user_text, agent_lines, parsed), None


def _answer_from_prompt(user_text: str, agent_lines: list[str], parsed: _ParsedPrompt) -> str:
    prompt_facts = parsed.prompt_facts
    facts = _best_sentences(user_text, [fact.text for fact in prompt_facts.facts], parsed.index)
    if facts:
        return facts
    if _THANKS.search(user_text):
        return f"You are welcome. {MORE_QUESTION}"
    if _GREETING.match(user_text):
        return "Hello! How can I help you?"
    if _has_only(user_text, _YES_WORDS):
        return f"{'Of course' if _has_offered_more(agent_lines) else 'Good'}. {_offer_topics(prompt_facts)}"
    if _has_only(user_text, _NO_WORDS):
        return f"All right. {MORE_QUESTION}"
    return f"I am sorry, I do not know that. {_offer_topics(prompt_facts)}"


def _after_tool(prompt: ChatPrompt, agent_lines: list[str], parsed: _ParsedPrompt) -> str:
    """The text to speak after a tool result; empty for an IVR menu and after a farewell."""
    result = prompt.messages[-1]
    [call] = [each for message in prompt.messages for each in message.tool_calls if each.id == result.tool_call_id][-1:]
    user_text = next(
        (_normalize(message.content) for message in reversed(prompt.messages) if message.role == "user"), ""
    )
    if call.name == END_CALL or (call.name == SEND_DTMF and is_menu(user_text)):
        return ""
    if call.name == TRANSFER_CALL:
        return speak_transfer_result(result)
    if call.name == SEARCH_KNOWLEDGE:
        passages = passage_sentences(result)
        return _best_sentences(user_text, passages, Bm25Index(passages)) or _answer_from_prompt(
            user_text, agent_lines, parsed
        )
    return speak_result(result, call)


def _normalize(text: str) -> str:
    return text.lower().replace("\u2019", "'").strip(" .,!?")


def _content_words(user_text: str) -> list[str]:
    """The words of a text that carry meaning; empty for courtesies."""
    return [
        word
        for word in tokenize(user_text)
        if not (word in STOP_WORDS or word in _NO_WORDS or word in _YES_WORDS or word in _COURTESY_WORDS)
    ]


def _best_sentences(user_text: str, texts: Sequence[str], index: Bm25Index) -> str:
    """The best sentence, with the second one if it scores nearly as well; "" without a match."""
    matches = index.search(user_text)
    if not matches:
        return ""
    best = matches[0]
    close = [
        match
        for match in matches[1:2]
        if match.score >= _SECOND_SENTENCE_SHARE * best.score and match.certainty >= best.certainty
    ]
    return " ".join(texts[match.index] for match in sorted([best, *close], key=lambda match: match.index))


def _parse_prompt(system: str, tools: Sequence[ToolDefinition]) -> _ParsedPrompt:
    prompt_facts = parse_prompt(system)
    index = Bm25Index([f"{fact.question} {fact.text}" for fact in prompt_facts.facts])
    return _ParsedPrompt(prompt_facts, index, ToolSelector(tools), tuple(tools))


def _greeting(prompt_facts: PromptFacts) -> str:
    return (
        f"Hello, this is {prompt_facts.role}. How can I help you?"
        if prompt_facts.role
        else "Hello! How can I help you?"
    )


def _introduction(prompt_facts: PromptFacts) -> str:
    who = f"This is {prompt_facts.role}. " if prompt_facts.role else ""
    return f"{who}I am a computer that answers the telephone."


def _offer_topics(prompt_facts: PromptFacts) -> str:
    """An offer of topics: the subjects of the first facts."""
    topics = _topic_names(prompt_facts)
    if not topics:
        return "What would you like to know?"
    listed = topics[0] if len(topics) == 1 else ", ".join(topics[:-1]) + " and " + topics[-1]
    return f"You can ask me about {listed}."


def _topic_names(prompt_facts: PromptFacts) -> list[str]:
    topics: list[str] = []
    for fact in prompt_facts.facts:
        subject = _SUBJECT_END.split(fact.text, maxsplit=1)[0]
        subject = _ARTICLE.sub("", subject).strip(" .")
        content = [word for word in tokenize(subject) if word not in STOP_WORDS]
        if content and len(subject.split()) <= 4 and subject != fact.text and subject.lower() not in topics:
            topics.append(subject if subject.isupper() else subject[0].lower() + subject[1:])
    return topics[:_MAX_TOPICS]


def _has_only(user_text: str, words: frozenset[str]) -> bool:
    return all(word in words for word in tokenize(user_text))


def _has_offered_more(agent_lines: list[str]) -> bool:
    return bool(agent_lines) and agent_lines[-1].rstrip().endswith(MORE_QUESTION)
