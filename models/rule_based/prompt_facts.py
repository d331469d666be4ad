"""Separates the facts in an agent's prompt from its instructions.

A prompt mixes both: "You are the assistant of a hotel. Be brief. Breakfast is served from seven to ten." Only the last
sentence may be read to a caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from models.text.sentence_splitter import split_sentences
from models.text.word_lists import word_set

_BULLET: Final = re.compile(r"^\s*(?:[-*•+]|\d+[.)])\s+|^\s*#+\s*")
_ROLE: Final = re.compile(r"^you(?:'re| are)\s+(?:now\s+)?(?P<role>.+?)[.!]*$", re.IGNORECASE)
_ANSWERS_FOR: Final = re.compile(
    r"^you (?:answer|take|handle) (?:the )?(?:tele)?(?:phone|calls)(?: calls)? (?:of|for|at) (?P<role>.+?)[.!]*$", re.I
)
_NAME: Final = re.compile(r"^your name is\s+(?P<name>[^.,!]+)", re.IGNORECASE)
_QUESTION: Final = re.compile(r"^(?:q|question)\s*:\s*(?P<text>.+)$", re.IGNORECASE)
_ANSWER: Final = re.compile(r"^(?:a|answer)\s*:\s*(?P<text>.+)$", re.IGNORECASE)
_ABOUT_PARTICIPANT: Final = re.compile(
    r"^(?:you|your|you're|yours|(?:the )?(?:caller|customer|user)s?)\b", re.IGNORECASE
)
_CONDITION: Final = re.compile(
    r"^(?:if|when|whenever|once|unless|before|after|should)\b.*\b(?:caller|user|customer|you|they)\b", re.I
)
_IMPERATIVES: Final = word_set(
    """
    act always allow answer apologize ask avoid be begin call check collect confirm consider continue
    describe determine do don't double-check end ensure escalate explain finish first focus follow give
    greet handle help ignore include introduce invent keep let limit listen maintain make mention never
    note offer only output please politely pretend provide reassure refer refuse remain remember repeat
    reply respond say schedule send show sound speak start stay stick stop summarize take talk tell then
    transfer treat try use verify wait write
    """
)


@dataclass(frozen=True)
class Fact:
    """A sentence that may be spoken, and the question that it answers, if the prompt gives one."""

    text: str
    question: str = ""


@dataclass(frozen=True)
class PromptFacts:
    """A parsed prompt: the agent's role ("Anna, the assistant of the hotel", "" if not given) and the facts."""

    role: str
    facts: tuple[Fact, ...]


def parse_prompt(prompt: str) -> PromptFacts:
    """Parse a prompt into role and facts."""
    role = name = question = ""
    facts: list[Fact] = []
    for line in prompt.splitlines():
        line = _BULLET.sub("", line).replace("**", "").strip()
        if match := _QUESTION.match(line):
            question = match["text"]
            continue
        if question and (match := _ANSWER.match(line)):
            facts.append(Fact(match["text"], question))
            question = ""
            continue
        for sentence in split_sentences(line):
            if match := _ROLE.match(sentence) or _ANSWERS_FOR.match(sentence):
                role = role or match["role"]
            elif match := _NAME.match(sentence):
                name = match["name"].strip()
            elif _is_fact(sentence):
                facts.append(Fact(sentence))
    return PromptFacts(_identity(name, role), tuple(facts))


def _identity(name: str, role: str) -> str:
    if name and name.lower() not in role.lower():
        return f"{name}, {role}" if role else name
    return role


def _is_fact(sentence: str) -> bool:
    """True for a declarative sentence about neither the agent nor the caller; a heading ("Rules:") is none."""
    spoken = sentence.lower().replace(",", " ").split()
    if len(spoken) < 2 or sentence.endswith((":", "?")):
        return False
    if _ABOUT_PARTICIPANT.match(sentence) or _CONDITION.match(sentence):
        return False
    return spoken[0].rstrip(":") not in _IMPERATIVES
