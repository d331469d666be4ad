"""The tools of an agent; updates and deletion of tools."""

from __future__ import annotations

import sqlalchemy as sa

from storage.accounts import organizations
from storage.agents import agents, tools
from storage.agents.agents import Agent
from storage.agents.tools import StoredTool, ToolConfig, ToolFields
from storage.database.database import Database
from storage.tables.agent_fields import AgentFields

CONFIG: ToolConfig = {
    "url": "https://tools.example/weather",
    "method": "GET",
    "timeout": 5000,
    "headers": [{"key": "Authorization", "value_encrypted": "token"}],
    "body": [{"name": "city", "type": "string", "description": "", "required": True}],
}


def _tool(conn: sa.Connection, organization_id: str, name: str) -> StoredTool:
    return tools.create(conn, organization_id, ToolFields(name=name, config=CONFIG))


def _again(conn: sa.Connection, agent: Agent) -> Agent:
    found = agents.get(conn, agent.organization_id, agent.id)
    assert found is not None
    return found


async def test_an_agent_has_its_listed_tools_or_all_of_its_organization(
    database: Database, organization_id: str
) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other")
        first, second = (_tool(conn, organization_id, name) for name in ("first", "second"))
        theirs = _tool(conn, other.id, "theirs")
        everything = sorted([first, second], key=lambda tool: (tool.created_at, tool.id))
        assert tools.of_agent(conn, organization_id, None) == everything
        assert tools.of_agent(conn, organization_id, [second.id, theirs.id, second.id]) == [second]
        assert tools.of_agent(conn, organization_id, []) == []
        assert tools.of_agent(conn, organization_id, None, limit=1) == everything[:1]

    await database.write(check)


async def test_an_update_keeps_fields_that_it_does_not_name(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        tool, untouched = (_tool(conn, organization_id, name) for name in ("first", "second"))
        changed = tools.update(conn, tool, {"name": "new", "config": {"timeout": 100, "headers": []}})
        assert changed.config == {**CONFIG, "timeout": 100, "headers": []}
        assert (changed.id, changed.name, changed.created_at) == (tool.id, "new", tool.created_at)
        assert tools.get(conn, organization_id, tool.id) == changed
        assert tools.get(conn, organization_id, untouched.id) == untouched

    await database.write(check)


async def test_deleting_a_tool_removes_it_from_agents(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        deleted, kept = (_tool(conn, organization_id, name) for name in ("gone", "kept"))

        def agent(*tool_ids: str) -> Agent:
            return agents.create(conn, organization_id, AgentFields(name="Anna", tool_ids=list(tool_ids)))

        both, only, another = agent(deleted.id, kept.id, deleted.id), agent(deleted.id), agent(kept.id)
        all_tools = agents.create(conn, organization_id, AgentFields(name="Bea"))
        assert tools.delete(conn, organization_id, deleted.id)
        for changed, left in ((both, [kept.id]), (only, [])):
            assert _again(conn, changed).tool_ids == left
            assert _again(conn, changed).updated_at > changed.updated_at
        assert [_again(conn, each) for each in (another, all_tools)] == [another, all_tools]
        assert not tools.delete(conn, organization_id, deleted.id)

    await database.write(check)


async def test_another_organization_cannot_delete_a_tool(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        tool = _tool(conn, organization_id, "first")
        agent = agents.create(conn, organization_id, AgentFields(name="Anna", tool_ids=[tool.id]))
        other = organizations.create(conn, "other")
        assert not tools.delete(conn, other.id, tool.id)
        assert tools.get(conn, other.id, tool.id) is None
        assert tools.get(conn, organization_id, tool.id) == tool
        assert _again(conn, agent) == agent

    await database.write(check)


def test_repr_of_a_tool_hides_its_headers() -> None:
    assert "token" not in repr(ToolFields(name="first", config=CONFIG))
