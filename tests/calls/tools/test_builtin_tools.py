"""The tools of an agent in a call: built-in ones and those of its organization."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from bench.turn.scripted_models import HANG_UP
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.knowledge.context_injection import MAX_CHARACTERS
from calls.knowledge.prefetch import MAX_PASSAGES, KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from calls.tools.builtin_tools import MAX_TOOLS, EndCallTool, SearchKnowledgeTool, SendDtmfTool, load_toolset
from calls.tools.http_tool import CallContext, ToolHttpAccess
from calls.tools.toolset import ToolResult, ToolSet
from config.secrets import Secrets
from models.protocols import END_CALL, SEARCH_KNOWLEDGE, TextDelta, ToolCall
from storage.agents import agents, tools
from storage.agents.agents import Agent
from storage.agents.tools import ToolConfig, ToolFields
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from tests.calls.call_service_harness import call_service
from tests.calls.http_server import LOOPBACK, client_with
from tests.calls.knowledge.ingestion_harness import Archive, running_ingester

CONFIG: ToolConfig = {
    "url": "http://127.0.0.1:9/",
    "method": "POST",
    "timeout": 100,
    "headers": [],
    "body": [{"name": "day", "type": "string", "description": "", "required": True}],
}
CONTEXT = CallContext("call-1", {"company": "Harbour Dental"})


@pytest.fixture
async def http_access(secrets: Secrets) -> AsyncIterator[ToolHttpAccess]:
    async with client_with(LOOPBACK) as client:
        yield ToolHttpAccess(client, HttpEgressConcurrency(), secrets)


async def agent_with(archive: Archive, **changes: Any) -> Agent:
    """Returns the archive's agent with other settings."""
    update = partial(agents.update, organization_id=archive.organization_id, agent_id=archive.agent_id, changes=changes)
    agent = await archive.database.write(update)
    assert agent is not None
    return agent


async def store_tools(archive: Archive, *names: str) -> list[str]:
    """Store tools of the organization; returns their ids."""

    def create(conn: sa.Connection) -> list[str]:
        fields = [ToolFields(name=name, description="Does it", config=CONFIG) for name in names]
        return [tools.create(conn, archive.organization_id, each).id for each in fields]

    return await archive.database.write(create)


def names_of(toolset: ToolSet) -> list[str]:
    return [each.name for each in toolset.definitions]


async def send_nothing(digits: str) -> None:
    """Sends nothing."""


async def test_an_agent_has_the_tools_of_its_settings_and_its_call(
    archive: Archive, http_access: ToolHttpAccess
) -> None:
    everything = await agent_with(archive, allow_end_call=True, knowledge_search_instructions="For prices")
    toolset = await load_toolset(
        everything, CONTEXT, database=archive.database, http_access=http_access, send_digits=send_nothing
    )
    assert names_of(toolset) == ["end_call", "send_dtmf", "search_knowledge"]
    bare = await agent_with(archive, allow_end_call=False, knowledge_search_instructions=None)
    assert names_of(await load_toolset(bare, CONTEXT, database=archive.database, http_access=http_access)) == []


async def test_only_a_search_is_without_effects(archive: Archive, http_access: ToolHttpAccess) -> None:
    agent = await agent_with(archive, knowledge_search_instructions="For prices")
    await store_tools(archive, "book")
    toolset = await load_toolset(
        agent, CONTEXT, database=archive.database, http_access=http_access, send_digits=send_nothing
    )
    assert [name for name in names_of(toolset) if not toolset.has_effects(name)] == ["search_knowledge"]
    assert "book" in names_of(toolset)


async def test_no_tool_of_an_organization_takes_the_name_of_a_built_in_one(
    archive: Archive, http_access: ToolHttpAccess
) -> None:
    agent = await agent_with(archive, allow_end_call=False, knowledge_search_instructions=None)
    await store_tools(
        archive, "end_call", "Send DTMF", "search-knowledge", "search_knowledge", "Look up order", "Look up: order"
    )
    toolset = await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)
    made = {"end_call_2", "Send_DTMF_2", "search-knowledge", "search_knowledge_2", "Look_up_order", "Look_up_order_2"}
    assert set(names_of(toolset)) == made


async def test_an_agent_has_the_tools_that_it_names(archive: Archive, http_access: ToolHttpAccess) -> None:
    first, _, third = await store_tools(archive, "first", "second", "third")
    for tool_ids, named in (([third, first], ["first", "third"]), ([], []), (None, ["first", "second", "third"])):
        agent = await agent_with(archive, tool_ids=tool_ids, allow_end_call=False, knowledge_search_instructions=None)
        toolset = await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)
        assert sorted(names_of(toolset)) == named


async def test_without_the_database_a_call_has_the_built_in_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise StorageUnavailable("disk I/O error")

    async with call_service(tmp_path, [TextDelta("Good bye."), HANG_UP]) as harness:
        await harness.create_number(first_speaker="agent", knowledge_search_instructions="For prices")
        monkeypatch.setattr(tools, "of_agent", fails)
        with capture_logs() as logs:
            call = await harness.ended_call(harness.invite())
    assert call.ended_reason == "agent_ended"
    assert [each.name for each in harness.llm.prompts[0].tools] == ["end_call", "send_dtmf"]
    assert [each["cause"] for each in logs if each["event"] == "call.without_own_tools"] == ["disk I/O error"]


async def test_of_too_many_tools_the_oldest_stay_and_one_log_line_says_so(
    archive: Archive, http_access: ToolHttpAccess
) -> None:
    agent = await agent_with(archive)
    await store_tools(archive, *(f"t{number}" for number in range(MAX_TOOLS)))
    with capture_logs() as logs:
        expected = await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)
        assert logs == []
        await store_tools(archive, "one_more")
        toolset = await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)
    assert names_of(toolset) == names_of(expected)
    assert [each["event"] for each in logs] == ["tools.left_out"]


async def test_all_tools_come_from_one_read(
    archive: Archive, http_access: ToolHttpAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await agent_with(archive, knowledge_search_instructions="For prices")
    await store_tools(archive, "first", "second")
    reads: list[Callable[[sa.Connection], Any]] = []
    read = archive.database.read

    async def counted(work: Callable[[sa.Connection], Any], **_more: Any) -> Any:
        reads.append(work)
        return await read(work)

    monkeypatch.setattr(archive.database, "read", counted)
    await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)
    assert len(reads) == 1


async def test_the_end_call_tool_only_returns_a_result() -> None:
    assert EndCallTool().definition.name == END_CALL
    assert await ToolSet([EndCallTool()]).run(ToolCall("1", END_CALL, "")) == ToolResult("The call ends.", ok=True)


async def pressed(arguments: str) -> tuple[list[str], ToolResult]:
    sent: list[str] = []

    async def send(digits: str) -> None:
        sent.append(digits)

    return sent, await ToolSet([SendDtmfTool(send)]).run(ToolCall("1", "send_dtmf", arguments))


@pytest.mark.parametrize(
    ("written", "digits"),
    [
        ('"1"', "1"),
        ("4711", "4711"),
        ('"1w2W3,*#ABCD"', "1w2w3,*#ABCD"),
        ('" 0 1-a "', "01A"),
        (f'"{"9" * 32}"', "9" * 32),
    ],
)
async def test_dtmf_digits_are_sent_in_order(written: str, digits: str) -> None:
    sent, result = await pressed(f'{{"digits": {written}}}')
    assert (sent, result) == ([digits], ToolResult("The keys were pressed.", ok=True))


@pytest.mark.parametrize("written", ['""', '"one"', '"-"', '"E"', '"\uff11"', f'"{"9" * 33}"'])
async def test_invalid_dtmf_digits_are_not_sent(written: str) -> None:
    sent, result = await pressed(f'{{"digits": {written}}}')
    assert (sent, result.ok) == ([], False)
    assert "`digits` takes 1 to 32 of" in result.content


async def test_dtmf_of_an_ended_call_is_a_failed_result() -> None:
    async def gone(digits: str) -> None:
        raise ConnectionError("the leg has no sound")

    result = await ToolSet([SendDtmfTool(gone)]).run(ToolCall("1", "send_dtmf", '{"digits": "1"}'))
    assert result == ToolResult("The tool could not press the keys: the call is at its end.", ok=False)


async def test_dtmf_that_cannot_be_sent_times_out() -> None:
    async def held(digits: str) -> None:
        await asyncio.Event().wait()

    result = await ToolSet([SendDtmfTool(held, timeout_s=0.01)]).run(ToolCall("1", "send_dtmf", '{"digits": "1"}'))
    assert result == ToolResult("The tool could not press the keys: the other side does not listen.", ok=False)


async def test_the_instructions_say_when_to_search_with_their_variables_filled(
    archive: Archive, http_access: ToolHttpAccess
) -> None:
    agent = await agent_with(archive, knowledge_search_instructions="For prices of {{company}}", allow_end_call=False)
    (definition,) = (await load_toolset(agent, CONTEXT, database=archive.database, http_access=http_access)).definitions
    assert (definition.name, definition.description) == ("search_knowledge", "For prices of Harbour Dental")


async def found(database: Database, agent_id: str, query: str) -> ToolResult:
    tool = SearchKnowledgeTool(KnowledgePrefetch(KnowledgeSearch(database), agent_id), "For opening hours")
    return await tool.run({"query": query})


async def test_a_search_returns_the_passages_and_their_documents(archive: Archive) -> None:
    document = await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    result = await found(archive.database, archive.agent_id, "Are you open on Sundays?")
    passages = "From the document Hours:\nWe open at nine.\nOn Sundays we are closed."
    (source,) = result.sources
    assert (source.document_id, source.document, source.position) == (document.id, "Hours", 0)
    assert 0 < source.score <= 1
    assert result == ToolResult(passages, ok=True, sources=(source,))


async def test_a_search_returns_the_best_passages_only(archive: Archive) -> None:
    for number in range(MAX_PASSAGES + 2):
        await archive.upload(f"Berth {number} costs {number} euros.".encode())
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    result = await found(archive.database, archive.agent_id, "What does berth 5 cost, in euros?")
    assert result.content.count("From the document") == MAX_PASSAGES
    assert result.content.startswith("From the document Hours:\nBerth 5 costs")


async def test_the_text_of_long_passages_is_cut(archive: Archive) -> None:
    await archive.upload(" ".join(f"{'berth' * 11}{number:04}" for number in range(800)).encode() + b" berth" * 800)
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    result = await found(
        archive.database, archive.agent_id, " ".join(f"{'berth' * 11}{number:04}" for number in (1, 500))
    )
    assert (len(result.content), result.ok) == (MAX_CHARACTERS, True)


async def test_a_search_without_results_says_so(archive: Archive) -> None:
    await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    nothing_there = ToolResult("The documents say nothing about that.", ok=True)
    for query in ("Do you sell helicopters?", "", '" OR agent:*', "x" * 5_000):
        assert await found(archive.database, archive.agent_id, query) == nothing_there
    assert await found(archive.database, "another", "open on sunday") == nothing_there


async def test_a_failing_database_is_a_failed_result(archive: Archive) -> None:
    closed = Database(str(archive.database.url))
    toolset = ToolSet(
        [SearchKnowledgeTool(KnowledgePrefetch(KnowledgeSearch(closed), archive.agent_id), "For opening hours")]
    )
    with capture_logs() as logs:
        result = await toolset.run(ToolCall("1", SEARCH_KNOWLEDGE, '{"query": "open"}'))
    assert result == ToolResult("`search_knowledge` does not work at the moment.", ok=False)
    assert [each["event"] for each in logs] == ["tool.broken"]
