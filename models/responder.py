"""A language model without weights: it answers with sentences of the agent's own prompt, and with nothing else.

Deterministic and quick, so that a call can be held, shown and tested where no language model is installed.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from models.facts import Brief, read_prompt
from models.matching import STOP_WORDS, TextIndex, tokens
from models.protocols import END_CALL, AnswerPart, ChatPrompt, TextDelta, ToolCall
from models.sentences import split_sentences

NAME: Final = "extractive-responder"
CONTEXT_LENGTH: Final = 32_768
"""Tokens of prompt that it reads; the longest prompt that an agent may have is shorter."""

_KEPT_BRIEFS: Final = 64
_CLOSE: Final = 0.75
"""A second sentence is said too when its score comes this near the best one's."""
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
_SUBJECT_END: Final = re.compile(
    r"\s*(?::|,|\b(?:is|are|was|were|has|have|can|costs?|opens?|closes?|starts?|takes?|will)\b)"
)
_ARTICLE: Final = re.compile(r"^(?:our|the|a|an)\s+", re.IGNORECASE)


@dataclass(frozen=True)
class _Knowledge:
    """A prompt made ready for questions."""

    brief: Brief
    index: TextIndex


class ExtractiveResponder:
    """See `LanguageModel`. English only; facts of another language are found and read as they are."""

    name = NAME

    def __init__(self) -> None:
        self._knowledge: OrderedDict[str, _Knowledge] = OrderedDict()

    async def answer(self, prompt: ChatPrompt) -> AsyncIterator[AnswerPart]:
        """Stream the answer sentence by sentence."""
        knowledge = await self._read(prompt.system)
        text, ends_call = reply(prompt, knowledge.brief, knowledge.index)
        sentences = split_sentences(text)
        for number, sentence in enumerate(sentences, 1):
            yield TextDelta(sentence if number == len(sentences) else sentence + " ")
        if ends_call:
            yield ToolCall(END_CALL, END_CALL, "{}")

    async def _read(self, system: str) -> _Knowledge:
        """The prompt, taken apart once; a long one takes some milliseconds, so off the event loop."""
        knowledge = self._knowledge.get(system)
        if knowledge is None:
            knowledge = await asyncio.to_thread(_study, system)
            self._knowledge[system] = knowledge
            while len(self._knowledge) > _KEPT_BRIEFS:
                self._knowledge.popitem(last=False)
        self._knowledge.move_to_end(system)
        return knowledge


def reply(prompt: ChatPrompt, brief: Brief, index: TextIndex) -> tuple[str, bool]:
    """What to say, and whether to hang up afterwards."""
    said = [message.content for message in prompt.messages if message.role == "assistant"]
    if not prompt.messages or prompt.messages[-1].role != "user":
        return _greeting(brief), False
    heard = prompt.messages[-1].content.lower().replace("\u2019", "'").strip(" .,!?")
    if not heard:
        return "I am sorry, I did not hear you. Could you say that again?", False
    if _ASKS_AGAIN.search(heard):
        return (said[-1] if said else _greeting(brief)), False
    if _ASKS_WHO.search(heard):
        return _introduction(brief), False
    if _SAYS_GOODBYE.search(heard) or (_is_only(heard, _NO) and _offered_more(said)):
        return _GOODBYE, prompt.may_end_call
    return _answer(heard, said, brief, index), False


def _answer(heard: str, said: list[str], brief: Brief, index: TextIndex) -> str:
    facts = _facts_for(heard, brief, index)
    if facts:
        return " ".join(facts)
    if _THANKS.search(heard):
        return f"You are welcome. {_MORE}"
    if _GREETS.match(heard):
        return "Hello! How can I help you?"
    if _is_only(heard, _YES):
        return f"Good. {_offer(brief)}" if not _offered_more(said) else f"Of course. {_offer(brief)}"
    if _is_only(heard, _NO):
        return f"All right. {_MORE}"
    return f"I am sorry, I do not know that. {_offer(brief)}"


def _facts_for(heard: str, brief: Brief, index: TextIndex) -> list[str]:
    """The best sentence; a second one when it fits nearly as well."""
    matches = index.search(heard)
    if not matches:
        return []
    best = matches[0]
    close = [
        match for match in matches[1:2] if match.score >= _CLOSE * best.score and match.certainty >= best.certainty
    ]
    return [brief.facts[match.index].text for match in sorted([best, *close], key=lambda match: match.index)]


def _study(system: str) -> _Knowledge:
    brief = read_prompt(system)
    return _Knowledge(brief, TextIndex([f"{fact.asked} {fact.text}" for fact in brief.facts]))


def _greeting(brief: Brief) -> str:
    return f"Hello, this is {brief.role}. How can I help you?" if brief.role else "Hello! How can I help you?"


def _introduction(brief: Brief) -> str:
    who = f"This is {brief.role}. " if brief.role else ""
    return f"{who}I am a computer that answers the telephone."


def _offer(brief: Brief) -> str:
    """What can be asked: the subjects of the first facts."""
    topics = _topics(brief)
    if not topics:
        return "What would you like to know?"
    listed = topics[0] if len(topics) == 1 else ", ".join(topics[:-1]) + " and " + topics[-1]
    return f"You can ask me about {listed}."


def _topics(brief: Brief) -> list[str]:
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
