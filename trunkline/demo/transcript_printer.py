"""Prints a call's conversation as it grows, as the API tells it: who said what, what was cut, which tools were used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from trunkline.demo.api_client import Api

LOOK_EVERY_S: Final = 0.2
CUT: Final = "— interrupted by the caller"


async def print_new_calls(api: Api, before: set[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Follow the call that is not among `before`; returns it, ended, and the turns of its timeline."""
    shown = 0
    while True:
        new = [call for call in await api.calls() if call["id"] not in before]
        if new:
            call = await api.call(new[0]["id"])
            turns = await api.timeline(call["id"])  # after the call: it tells of every turn that the transcript has
            ended = call["endedAt"] is not None
            ready = len(call["transcript"]) if ended else _settled(call["transcript"])
            known = list(lines(call["transcript"][:ready], turns))
            for line in known[shown:]:
                print(f"  {line}")
            shown = len(known)
            if ended:
                return call, turns
        await asyncio.sleep(LOOK_EVERY_S)


def answer_of(transcript: list[dict[str, Any]], turn: int) -> str:
    """What the caller heard in a turn; 0 is the agent's opening message."""
    return " ".join(
        item["content"] for number, item in _numbered(transcript) if number == turn and item["role"] == "assistant"
    )


def _settled(transcript: list[dict[str, Any]]) -> int:
    """How many items will not change any more: the agent's last line grows while it is heard."""
    return len(transcript) - (1 if transcript and transcript[-1]["role"] == "assistant" else 0)


def _numbered(transcript: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each item with the number of its turn."""
    number = 0
    for item in transcript:
        number += item["role"] == "user"
        yield number, item


def lines(transcript: list[dict[str, Any]], turns: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each item, and before an answer one for each use of a tool and for its best source."""
    numbered = list(_numbered(transcript))
    printed: set[int] = set()
    for at, (number, item) in enumerate(numbered):
        if item["role"] == "user":
            yield f"caller │ {item['content']}"
            continue
        if number not in printed:
            printed.add(number)
            of_turn = [turn for turn in turns if turn["turn"] == number]
            yield from (_tool_line(tool) for turn in of_turn for tool in turn["tools"])
            yield from (_source_line(source) for turn in of_turn for source in turn["sources"][:1])
        left = sum(each == number and other["role"] == "assistant" for each, other in numbered[at:])
        yield f"agent  │ {item['content']}" + (f" {CUT}" if _was_cut(turns, number, left) else "")


def _was_cut(turns: list[dict[str, Any]], number: int, left: int) -> bool:
    """Whether the caller cut the item after which this many of the same number are left, itself included. A caller's
    silence makes several entries of one number; the newest belong to the newest items."""
    heard = [turn for turn in turns if turn["turn"] == number and turn["agentStartMs"] is not None]
    return bool(heard) and bool(heard[max(len(heard) - left, 0)]["interrupted"])


def _source_line(source: dict[str, Any]) -> str:
    return f"source │ {source['document']}, passage {source['position'] + 1}, score {source['score']:.2f}"


def _tool_line(tool: dict[str, Any]) -> str:
    outcome = "answered" if tool["ok"] else "failed"
    return f"tool   │ {tool['name']} → {outcome} in {tool['endMs'] - tool['startMs']} ms"
