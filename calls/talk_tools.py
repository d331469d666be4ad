"""The tools that every agent can have, and the belt of all its tools in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from calls.context import substitute
from calls.http_tool import CallContext, HttpTool, Outside
from calls.tools import Tool, ToolBelt, ToolResult, function_name
from media.dtmf_keys import pressable
from models.protocols import END_CALL, HANG_UP, ToolDefinition
from storage import knowledge_index, tools
from storage.agents import Agent
from storage.database import Database
from storage.knowledge_index import Found

SEND_DTMF: Final = "send_dtmf"
SEARCH_KNOWLEDGE: Final = "search_knowledge"
BUILT_IN: Final = frozenset((END_CALL, SEND_DTMF, SEARCH_KNOWLEDGE))
"""Names that no tool of an organization gets, whether or not the built-in one is there."""
MOST_TOOLS: Final = 64
"""Of an organization's own, in one call."""
SENDING_S: Final = 60.0
"""For keys: what the agent says first and the pauses between them included. On hold nothing is sent."""
PASSAGES: Final = 4
"""That a search gives at most; about 200 words each."""
LONGEST_FINDINGS: Final = 8_000
"""Characters of passages."""
MOST_KEYS: Final = 32
"""That are pressed at a time, pauses included."""

log = structlog.get_logger()
SendDigits = Callable[[str], Awaitable[None]]


class EndCall:
    """Hangs up: the conversation does so, once the caller has heard what was said. To run it only answers the model."""

    definition: Final = HANG_UP
    effects: Final = True

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Nothing is left to be done."""
        return ToolResult("The call ends.", ok=True)


class SendDtmf:
    """Presses keys for a machine at the other end. `send` gets keys, and `w` or `,` where it is to pause; it raises
    `ConnectionError` when the call has no sound any more."""

    definition: Final = ToolDefinition(
        SEND_DTMF,
        "Press telephone keys, for the menu of an automatic system at the other end.",
        {
            "type": "object",
            "properties": {
                "digits": {
                    "type": "string",
                    "description": "1 to 32 of 0-9, *, #, A-D; w or a comma is a pause. As in 1w2# or 4711",
                }
            },
            "required": ["digits"],
            "additionalProperties": False,
        },
    )
    effects: Final = True

    def __init__(self, send: SendDigits, most_s: float = SENDING_S) -> None:
        self._send = send
        self._most_s = most_s

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Press them; spaces and dashes between them do not count."""
        try:
            keys = pressable(arguments["digits"])
        except ValueError:
            keys = ""
        if not 0 < len(keys) <= MOST_KEYS:
            return ToolResult(f"Parameter `digits` takes 1 to {MOST_KEYS} of 0-9, *, #, A-D, w and comma.", ok=False)
        try:
            async with asyncio.timeout(self._most_s):
                await self._send(keys)
        except ConnectionError:
            return ToolResult("The tool could not press the keys: the call is at its end.", ok=False)
        except TimeoutError:
            return ToolResult("The tool could not press the keys: the other side does not listen.", ok=False)
        return ToolResult("The keys were pressed.", ok=True)


class SearchKnowledge:
    """Finds passages in the agent's own documents. `instructions` tell the model when to search."""

    effects: Final = False

    def __init__(self, database: Database, agent_id: str, instructions: str) -> None:
        self.definition: Final = ToolDefinition(
            SEARCH_KNOWLEDGE,
            instructions,
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for: a question, or its words"}
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        )
        self._database = database
        self._agent_id = agent_id

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """The passages that answer best, each with its document's name. Raises `StorageTrouble`."""
        search = partial(knowledge_index.search, agent_id=self._agent_id, text=arguments["query"], most=PASSAGES)
        found = await self._database.read(search)
        if not found:
            return ToolResult("The documents say nothing about that.", ok=True)
        return ToolResult("\n\n".join(map(_told, found))[:LONGEST_FINDINGS], ok=True)


def _told(found: Found) -> str:
    return f"From the document {found.document}:\n{found.content}"


async def belt_for(
    agent: Agent, context: CallContext, *, database: Database, outside: Outside, send_digits: SendDigits | None = None
) -> ToolBelt:
    """Every tool of an agent in a call, from one read. Without `send_digits` no keys can be pressed. Raises
    `StorageTrouble`."""
    belt = _without_database(agent, send_digits)
    if agent.knowledge_search_instructions:
        instructions = substitute(agent.knowledge_search_instructions, context.values, call_id=context.call_id)
        belt.append(SearchKnowledge(database, agent.id, instructions))
    taken = set(BUILT_IN)
    for stored in await _own(agent, context, database):
        name = function_name(stored.name, taken)
        taken.add(name.lower())
        belt.append(HttpTool(stored, name, context, outside))
    return ToolBelt(belt, call_id=context.call_id)


def bare_belt(agent: Agent, call_id: str, send_digits: SendDigits | None = None) -> ToolBelt:
    """Those of an agent's tools that need no database."""
    return ToolBelt(_without_database(agent, send_digits), call_id=call_id)


def _without_database(agent: Agent, send_digits: SendDigits | None) -> list[Tool]:
    belt: list[Tool] = []
    if agent.allow_end_call:
        belt.append(EndCall())
    if send_digits is not None:
        belt.append(SendDtmf(send_digits))
    return belt


async def _own(agent: Agent, context: CallContext, database: Database) -> list[tools.Tool]:
    """The agent's tools that its organization has defined, the oldest first."""
    if agent.tool_ids is not None and not agent.tool_ids:
        return []
    read = partial(tools.of_agent, organization_id=agent.organization_id, tool_ids=agent.tool_ids, most=MOST_TOOLS + 1)
    found = await database.read(read)
    if len(found) > MOST_TOOLS:
        log.warning("tools.left_out", call_id=context.call_id, agent_id=agent.id, kept=MOST_TOOLS)
    return found[:MOST_TOOLS]
