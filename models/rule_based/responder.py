"""A language model without weights: it answers with sentences of the agent's own prompt, and makes nothing up.

Deterministic and quick, so that a call can be held, shown and tested where no language model is installed. What tools
and documents told is said too.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from models.protocols import (
    END_CALL,
    SEARCH_KNOWLEDGE,
    ChatPrompt,
    LlmOutput,
    Measured,
    TextDelta,
    ToolCall,
    ToolDefinition,
)
from models.rule_based.ivr_keys import is_menu
from models.rule_based.prompt_facts import PromptFacts, parse_prompt
from models.rule_based.tool_results import said_result, sentences_of
from models.rule_based.tool_selection import SEND_DTMF, Toolbox
from models.text.bm25 import STOP_WORDS, Bm25Index, tokens
from models.text.sentence_splitter import split_sentences

NAME: Final = "extractive-responder"
CONTEXT_LENGTH: Final = 32_768
"""Tokens of prompt that it reads; the longest prompt that an agent may have is shorter."""

_KEPT_BRIEFS: Final = 64
_CLOSE: Final = 0.75
"""A second sentence is said too when its score comes this near the best one's."""
_COVERED: Final = 0.5
"""Share of a question's words that a fact must have to be told without a look into the documents."""
_TOPICS: Final = 3
_MORE: Final = "Is there anything else I can help you with?"
_GOODBYE: Final = "Thank you for calling. Goodbye!"
_SAYS_GOODBYE: Final = re.compile(
    r"\b(good ?bye|bye|see you|hang up|good ?night|have a (nice|good|great) (day|evening|weekend)"
    r"|that's all|that is all|that's it|that will be all|nothing else)\b"
)
_ASKS_AGAIN: Final = re.compile(
    r"\b(repeat|pardon|come again|(say|tell me|hear) (that|it|this) (again|once more)|what did you say|say again"
    r"|(didn't|did not|couldn't|could not) (understand|hear|get|catch)|one more time)\b"
)
_ASKS_WHO: Final = re.compile(
    r"\b(who (are|is) (you|this)|who am i (talking|speaking)|what('s| is) your name|are you (a|an) (\w+ )?"
    r"(robot|machine|computer|human|person|bot|ai))\b"
)
_THANKS: Final = re.compile(r"\b(thanks|thank you)\b")
_GREETS: Final = re.compile(r"^(hello|hi|hey|good (morning|afternoon|evening|day))\b")
_YES: Final = frozenset({"yes", "yeah", "yep", "sure", "okay", "ok", "please", "of", "course"})
_NO: Final = frozenset({"no", "nope", "nothing", "thanks", "thank", "you", "not", "really", "i'm", "good", "fine"})
_SMALL: Final = frozenset(
    {"thanks", "thank", "morning", "afternoon", "evening", "day", "great", "perfect", "lot", "much", "bye", "nice"}
)
"""With the words for yes and no: what courtesies consist of."""
_SUBJECT_END: Final = re.compile(
    r"\s*(?::|,|\b(?:is|are|was|were|has|have|can|costs?|opens?|closes?|starts?|takes?|will)\b)"
)
_ARTICLE: Final = re.compile(r"^(?:our|the|a|an)\s+", re.IGNORECASE)


@dataclass(frozen=True)
class _Knowledge:
    """A prompt made ready for questions."""

    brief: PromptFacts
    index: Bm25Index
    toolbox: Toolbox
    tools: Sequence[ToolDefinition]
    """Kept, so that no others get their identities while these are remembered by them."""


Reply = tuple[str, ToolCall | None]
"""What to say, and the tool to call then."""


class ExtractiveResponder:
    """See `LanguageModel`. English only; facts of another language are found and read as they are."""

    measured: Measured = "takes no time"

    name = NAME
    cannot_continue = True
    """Told to go on behind another model's words it would look for them in the prompt."""

    def __init__(self) -> None:
        self._knowledge: OrderedDict[tuple[str, tuple[int, ...]], _Knowledge] = OrderedDict()

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Stream the answer sentence by sentence; a tool call comes last."""
        text, call = reply(prompt, await self._read(prompt))
        sentences = split_sentences(text)
        for number, sentence in enumerate(sentences, 1):
            yield TextDelta(sentence if number == len(sentences) else sentence + " ")
        if call is not None:
            yield call

    async def _read(self, prompt: ChatPrompt) -> _Knowledge:
        """The prompt and its tools, taken apart once; a long one takes some milliseconds, so off the event loop. The
        tools of a call stay the same objects; to compare what they hold would take as long as many answers."""
        key = (prompt.system, tuple(map(id, prompt.tools)))
        knowledge = self._knowledge.get(key)
        if knowledge is None:
            knowledge = await asyncio.to_thread(_study, prompt.system, prompt.tools)
            self._knowledge[key] = knowledge
            while len(self._knowledge) > _KEPT_BRIEFS:
                self._knowledge.popitem(last=False)
        self._knowledge.move_to_end(key)
        return knowledge


def reply(prompt: ChatPrompt, known: _Knowledge) -> Reply:
    """What to do next in the talk."""
    said = [message.content for message in prompt.messages if message.role == "assistant" and message.content]
    last = prompt.messages[-1] if prompt.messages else None
    if last is None or last.role == "assistant":
        return _greeting(known.brief), None
    if last.role == "tool":
        return _told(prompt, said, known), None
    heard = _plain(last.content)
    if not heard:
        return "I am sorry, I did not hear you. Could you say that again?", None
    if keys := known.toolbox.press(prompt, heard):
        return "", keys
    if _ASKS_AGAIN.search(heard):
        return (said[-1] if said else _greeting(known.brief)), None
    if _ASKS_WHO.search(heard):
        return _introduction(known.brief), None
    if _SAYS_GOODBYE.search(heard) or (_is_only(heard, _NO) and _offered_more(said)):
        return _GOODBYE, known.toolbox.call(prompt, END_CALL, {})
    return _answer(prompt, heard, said, known)


def _answer(prompt: ChatPrompt, heard: str, said: list[str], known: _Knowledge) -> Reply:
    """A tool when the words fit one clearly better than any fact; else a fact; else what the documents tell."""
    facts = known.index.search(heard)
    step = known.toolbox.step(prompt, heard, facts[0].weight if facts else 0.0)
    if step is not None:
        return (step, None) if isinstance(step, str) else ("", step)
    covered = bool(facts) and facts[0].weight >= _COVERED * len(_content(heard))
    if not covered and _content(heard) and (call := known.toolbox.search(prompt)):
        return "", call
    return _without_tools(heard, said, known), None


def _without_tools(heard: str, said: list[str], known: _Knowledge) -> str:
    brief = known.brief
    facts = _best_of(heard, [fact.text for fact in brief.facts], known.index)
    if facts:
        return facts
    if _THANKS.search(heard):
        return f"You are welcome. {_MORE}"
    if _GREETS.match(heard):
        return "Hello! How can I help you?"
    if _is_only(heard, _YES):
        return f"Good. {_offer(brief)}" if not _offered_more(said) else f"Of course. {_offer(brief)}"
    if _is_only(heard, _NO):
        return f"All right. {_MORE}"
    return f"I am sorry, I do not know that. {_offer(brief)}"


def _told(prompt: ChatPrompt, said: list[str], known: _Knowledge) -> str:
    """What to say after a tool has answered; nothing to a machine, and nothing more after a farewell."""
    result = prompt.messages[-1]
    [call] = [each for message in prompt.messages for each in message.tool_calls if each.id == result.tool_call_id][-1:]
    heard = next((_plain(message.content) for message in reversed(prompt.messages) if message.role == "user"), "")
    if call.name == END_CALL or (call.name == SEND_DTMF and is_menu(heard)):
        return ""
    if call.name == SEARCH_KNOWLEDGE:
        passages = sentences_of(result)
        return _best_of(heard, passages, Bm25Index(passages)) or _without_tools(heard, said, known)
    return said_result(result, call)


def _plain(said: str) -> str:
    return said.lower().replace("\u2019", "'").strip(" .,!?")


def _content(heard: str) -> list[str]:
    """The words that say what it is about; none are left of courtesies."""
    return [word for word in tokens(heard) if not (word in STOP_WORDS or word in _NO or word in _YES or word in _SMALL)]


def _best_of(heard: str, texts: Sequence[str], index: Bm25Index) -> str:
    """The best sentence; a second one with it when that fits nearly as well; "" for none."""
    matches = index.search(heard)
    if not matches:
        return ""
    best = matches[0]
    close = [
        match for match in matches[1:2] if match.score >= _CLOSE * best.score and match.certainty >= best.certainty
    ]
    return " ".join(texts[match.index] for match in sorted([best, *close], key=lambda match: match.index))


def _study(system: str, tools: Sequence[ToolDefinition]) -> _Knowledge:
    brief = parse_prompt(system)
    index = Bm25Index([f"{fact.asked} {fact.text}" for fact in brief.facts])
    return _Knowledge(brief, index, Toolbox(tools), tuple(tools))


def _greeting(brief: PromptFacts) -> str:
    return f"Hello, this is {brief.role}. How can I help you?" if brief.role else "Hello! How can I help you?"


def _introduction(brief: PromptFacts) -> str:
    who = f"This is {brief.role}. " if brief.role else ""
    return f"{who}I am a computer that answers the telephone."


def _offer(brief: PromptFacts) -> str:
    """What can be asked: the subjects of the first facts."""
    topics = _topics(brief)
    if not topics:
        return "What would you like to know?"
    listed = topics[0] if len(topics) == 1 else ", ".join(topics[:-1]) + " and " + topics[-1]
    return f"You can ask me about {listed}."


def _topics(brief: PromptFacts) -> list[str]:
    topics: list[str] = []
    for fact in brief.facts:
        subject = _SUBJECT_END.split(fact.text, maxsplit=1)[0]
        subject = _ARTICLE.sub("", subject).strip(" .")
        content = [word for word in tokens(subject) if word not in STOP_WORDS]
        if content and len(subject.split()) <= 4 and subject != fact.text and subject.lower() not in topics:
            topics.append(subject if subject.isupper() else subject[0].lower() + subject[1:])
    return topics[:_TOPICS]


def _is_only(heard: str, words: frozenset[str]) -> bool:
    return all(word in words for word in tokens(heard))


def _offered_more(said: list[str]) -> bool:
    return bool(said) and said[-1].rstrip().endswith(_MORE)
