"""Prints a call's conversation as it grows, as the API tells it: who said what, what was cut, which tools were used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from trunkline.demo_client import Api

LOOK_EVERY_S: Final = 0.2
CUT: Final = "— interrupted by the caller"


async def watch(api: Api, before: set[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Follow the call that is not among `before`; returns it, ended, and the turns of its timeline."""
    shown = 0
    while True:
        new = [call for call in await api.calls() if call["id"] not in before]
        if new:
            call = await api.call(new[0]["id"])
            turns = await api.timeline(call["id"])  # after the call: it tells of every turn that the transcript has
            ended = call["endedAt"] is not None
            ready = len(call["transcript"]) if ended else _settled(call["transcript"])
            lines = list(_lines(call["transcript"][:ready], turns))
            for line in lines[shown:]:
                print(f"  {line}")
            shown = len(lines)
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


def _lines(transcript: list[dict[str, Any]], turns: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each item, and for each use of a tool before the answer that it was for."""
    by_number = {turn["turn"]: turn for turn in turns}
    told: set[int] = set()
    for number, item in _numbered(transcript):
        turn = by_number.get(number, {})
        if item["role"] == "user":
            yield f"caller │ {item['content']}"
            continue
        if number not in told:
            told.add(number)
            yield from map(_tool_line, turn.get("tools", ()))
        yield f"agent  │ {item['content']}" + (f" {CUT}" if turn.get("interrupted") else "")


def _tool_line(tool: dict[str, Any]) -> str:
    outcome = "answered" if tool["ok"] else "failed"
    return f"tool   │ {tool['name']} → {outcome} in {tool['endMs'] - tool['startMs']} ms"
