"""Prints the conversation of a live call from the API: transcript, interruptions, tool calls and sources."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trunkline.demo.api_client import ApiClient

POLL_EVERY_S: Final = 0.2
INTERRUPTED_MARK: Final = "— interrupted by the caller"


async def print_new_call(api: ApiClient, known_ids: set[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Print the conversation of the first call that is not in `known_ids`, until the call ends; returns the call and
    the turns of its timeline."""
    printed = 0
    while True:
        new = [call for call in await api.calls() if call["id"] not in known_ids]
        if new:
            call = await api.call(new[0]["id"])
            turns = await api.timeline(call["id"])  # after the call, so that it has every turn of the transcript
            ended = call["endedAt"] is not None
            final = len(call["transcript"]) if ended else final_items(call["transcript"])
            current = list(lines(call["transcript"][:final], turns))
            for line in current[printed:]:
                print(f"  {line}")
            printed = len(current)
            if ended:
                return call, turns
        await asyncio.sleep(POLL_EVERY_S)


def agent_text(transcript: list[dict[str, Any]], turn: int) -> str:
    """The agent's words in a turn, as far as the caller heard them; turn 0 is the agent's first message."""
    return " ".join(
        item["content"] for number, item in _numbered(transcript) if number == turn and item["role"] == "assistant"
    )


def final_items(transcript: list[dict[str, Any]]) -> int:
    """The number of items that do not change any more: the agent's last item grows while it is played."""
    return len(transcript) - (1 if transcript and transcript[-1]["role"] == "assistant" else 0)


def _numbered(transcript: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each item with the number of its turn."""
    number = 0
    for item in transcript:
        number += item["role"] == "user" and "speaker" not in item
        yield number, item


def lines(transcript: list[dict[str, Any]], turns: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each item, and before an answer a line for each tool call and one for the best source."""
    numbered = list(_numbered(transcript))
    printed: set[int] = set()
    for at, (number, item) in enumerate(numbered):
        if item["role"] == "user":
            yield f"{item.get('speaker', 'caller')} │ {item['content']}"
            continue
        if number not in printed:
            printed.add(number)
            of_turn = [turn for turn in turns if turn["turn"] == number]
            yield from (_tool_line(tool) for turn in of_turn for tool in turn["tools"])
            yield from (_source_line(source) for turn in of_turn for source in turn["sources"][:1])
        remaining = sum(each == number and other["role"] == "assistant" for each, other in numbered[at:])
        mark = f" {INTERRUPTED_MARK}" if _was_interrupted(turns, number, remaining) else ""
        yield f"agent  │ {item['content']}{mark}"


def _was_interrupted(turns: list[dict[str, Any]], number: int, remaining: int) -> bool:
    """True if the caller interrupted an item of turn `number`, of which `remaining` items are left, itself included. A
    turn has several entries if the caller stayed silent; the last entries belong to the last items."""
    played = [turn for turn in turns if turn["turn"] == number and turn["agentStartMs"] is not None]
    return bool(played) and bool(played[max(len(played) - remaining, 0)]["interrupted"])


def _source_line(source: dict[str, Any]) -> str:
    return f"source │ {source['document']}, passage {source['position'] + 1}, score {source['score']:.2f}"


def _tool_line(tool: dict[str, Any]) -> str:
    outcome = "answered" if tool["ok"] else "failed"
    return f"tool   │ {tool['name']} → {outcome} in {tool['endMs'] - tool['startMs']} ms"
