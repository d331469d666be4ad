"""The built-in tools (end the call, send DTMF, search documents), and the set of all tools of an agent in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import sqlalchemy as sa
import structlog

from calls.admission.admission_reads import Reads
from calls.call_record.context_variables import substitute
from calls.knowledge.context_injection import cited_passage, passages_as_text
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from calls.tools.http_tool import CallContext, HttpTool, ToolHttpAccess
from calls.tools.toolset import CallableTool, ToolResult, ToolSet, function_name
from calls.tools.transfer_tool import TransferTool
from media.dtmf.keys import normalize_dtmf
from models.protocols import END_CALL, END_CALL_TOOL, SEARCH_KNOWLEDGE, TRANSFER_CALL, ToolDefinition
from storage.agents import tools
from storage.agents.agents import Agent
from storage.database.database import Database
from storage.document_reader.terms.tokenizer import language_of
from storage.knowledge import documents

SEND_DTMF: Final = "send_dtmf"
BUILTIN_NAMES: Final = frozenset((END_CALL, SEND_DTMF, SEARCH_KNOWLEDGE, TRANSFER_CALL))
"""Names that no tool of an organization gets, even if the built-in one is not available."""
MAX_TOOLS: Final = 64
"""Tools of the organization in one call."""
SEND_DTMF_TIMEOUT_S: Final = 60.0
"""Time to send DTMF, the agent's words before it and the pauses in it included. On hold nothing is sent."""
MAX_DTMF_KEYS: Final = 32
"""Keys of one tool call, with pauses."""

log = structlog.get_logger()
SendDigits = Callable[[str], Awaitable[None]]


class EndCallTool:
    """Hangs up: the conversation does so once the response has been played. `run` only returns a result."""

    definition: Final = END_CALL_TOOL
    has_effects: Final = True

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns a result for the model."""
        return ToolResult("The call ends.", ok=True)


class SendDtmfTool:
    """Sends DTMF for an automatic system (IVR) at the other end. `send` takes digits, and `w` or `,` for pauses; it
    raises `ConnectionError` if the call has no audio any more."""

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
    has_effects: Final = True

    def __init__(self, send: SendDigits, timeout_s: float = SEND_DTMF_TIMEOUT_S) -> None:
        self._send = send
        self._timeout_s = timeout_s

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Send the digits, without spaces and dashes between them."""
        try:
            keys = normalize_dtmf(arguments["digits"])
        except ValueError:
            keys = ""
        if not 0 < len(keys) <= MAX_DTMF_KEYS:
            return ToolResult(
                f"Parameter `digits` takes 1 to {MAX_DTMF_KEYS} of 0-9, *, #, A-D, w and comma.", ok=False
            )
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(keys)
        except ConnectionError:
            return ToolResult("The tool could not press the keys: the call is at its end.", ok=False)
        except TimeoutError:
            return ToolResult("The tool could not press the keys: the other side does not listen.", ok=False)
        return ToolResult("The keys were pressed.", ok=True)


class SearchKnowledgeTool:
    """Searches the agent's documents. `instructions` are the tool's description for the model."""

    has_effects: Final = False

    def __init__(self, prefetch: KnowledgePrefetch, instructions: str) -> None:
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
        self._prefetch = prefetch

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the best passages, each with its document's name. Raises `StorageUnavailable`."""
        found = await self._prefetch.search(arguments["query"])
        if not found:
            return ToolResult("The documents say nothing about that.", ok=True)
        return ToolResult(passages_as_text(found), ok=True, sources=tuple(map(cited_passage, found)))


async def load_toolset(
    agent: Agent,
    context: CallContext,
    *,
    database: Database,
    reads: Reads | None = None,
    http_access: ToolHttpAccess,
    send_digits: SendDigits | None = None,
    knowledge_search: KnowledgeSearch | None = None,
    can_transfer: bool = False,
) -> ToolSet:
    """Returns all tools of an agent in a call, from one read. Without `send_digits` there is no DTMF tool; without
    `knowledge_search` documents are searched by keywords alone. `can_transfer`: the call can be transferred to the
    agent's targets. `reads`: what the tools are read from, by default the database. Raises `StorageUnavailable`."""
    tools_of_call = _tools_without_database(agent, send_digits)
    stored_tools, has_documents = await _read_tools(agent, context, reads or database)
    prefetch: KnowledgePrefetch | None = None
    if agent.knowledge_search_instructions:
        prefetch = KnowledgePrefetch(
            knowledge_search or KnowledgeSearch(database),
            agent.id,
            language=language_of(agent.language_hint),
            enabled=has_documents,
        )
        instructions = substitute(agent.knowledge_search_instructions, context.values, call_id=context.call_id)
        tools_of_call.append(SearchKnowledgeTool(prefetch, instructions))
    taken = set(BUILTIN_NAMES)
    for stored in stored_tools:
        name = function_name(stored.name, taken)
        taken.add(name.lower())
        tools_of_call.append(HttpTool(stored, name, context, http_access))
    transfer = _transfer_tool(agent) if can_transfer else None
    return ToolSet(tools_of_call, call_id=context.call_id, knowledge_prefetch=prefetch, transfer=transfer)


def builtin_toolset(agent: Agent, call_id: str, send_digits: SendDigits | None = None) -> ToolSet:
    """Returns the tools of an agent that need no database."""
    return ToolSet(_tools_without_database(agent, send_digits), call_id=call_id)


def _transfer_tool(agent: Agent) -> TransferTool | None:
    return TransferTool(agent.transfer_targets, agent.hold_message) if agent.transfer_targets else None


def _tools_without_database(agent: Agent, send_digits: SendDigits | None) -> list[CallableTool]:
    tools_of_call: list[CallableTool] = []
    if agent.allow_end_call:
        tools_of_call.append(EndCallTool())
    if send_digits is not None:
        tools_of_call.append(SendDtmfTool(send_digits))
    return tools_of_call


async def _read_tools(agent: Agent, context: CallContext, reads: Reads) -> tuple[list[tools.StoredTool], bool]:
    """Returns the organization's tools of the agent, the oldest first; and True if the agent has documents to
    search."""

    def read(conn: sa.Connection) -> tuple[list[tools.StoredTool], bool]:
        own = tools.of_agent(conn, agent.organization_id, agent.tool_ids, limit=MAX_TOOLS + 1)
        return own, bool(agent.knowledge_search_instructions) and documents.has_ready(conn, agent.id)

    if not (agent.knowledge_search_instructions or agent.tool_ids is None or agent.tool_ids):
        return [], False
    stored_tools, has_documents = await reads.read(read, owner=context.call_id)
    if len(stored_tools) > MAX_TOOLS:
        log.warning("tools.left_out", call_id=context.call_id, agent_id=agent.id, kept=MAX_TOOLS)
    return stored_tools[:MAX_TOOLS], has_documents
