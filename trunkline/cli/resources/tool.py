"""`trunkline tool`: the tools of an organization."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.owner import file_argument, org_option, owner_of, read_body
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.secrets import Secrets
    from config.settings import Settings
    from storage.agents.tools import StoredTool

_COLUMNS: Final = {"id": "ID", "name": "NAME", "method": "METHOD", "url": "URL", "description": "DESCRIPTION"}
_HIDDEN: Final = "***"
_TOOL = click.argument("tool_name", metavar="TOOL", help="the tool's name or id, as `tool list` shows them")


@click.group(cls=Group, examples=("trunkline tool list", "trunkline tool create berths.json --org acme"))
def tool() -> None:
    """Manage the tools that agents use."""


@tool.command("list", examples=("trunkline tool list", "trunkline tool list --org acme --json"))
@org_option
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List the tools of an organization, oldest first."""
    from storage.agents import tools
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        secrets = await _secrets(settings, database)
        stored = await database.read(lambda conn: tools.of_agent(conn, owner_of(conn, org).id, None))
    if as_json:
        print_json(_fields(each, secrets) for each in stored)
    else:
        print_table(_COLUMNS, list(map(_row, stored)))
    return 0


@tool.command("show", examples=("trunkline tool show free_berths",))
@_TOOL
@org_option
async def show(settings: Settings, tool_name: str, org: str | None) -> int:
    """Print a tool as JSON, as the API returns it; the values of headers are hidden."""
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        secrets = await _secrets(settings, database)
        stored = await database.read(lambda conn: _find(conn, org, tool_name))
    print(json.dumps(_fields(stored, secrets), indent=2, ensure_ascii=False))
    return 0


@tool.command("create", examples=("trunkline tool create berths.json --org acme",))
@file_argument
@org_option
async def create(settings: Settings, file: str, org: str | None) -> int:
    """Create a tool and print its id."""
    from api.resources.tools import create_tool
    from api.schemas.tools import Tool, ToolCreate
    from storage.accounts import quotas
    from trunkline.organization_admin import open_database

    body = read_body(ToolCreate, file, settings)
    async with open_database(settings) as database:
        secrets = await _secrets(settings, database)

        def store(conn: sa.Connection) -> Tool:
            owner = owner_of(conn, org)
            usage = quotas.usage(conn, owner.id, settings.quotas.model_dump())
            quotas.require_available(usage, ["tools"])
            return create_tool(conn, owner.id, body, secrets)

        print((await database.write(store)).id)
    return 0


@tool.command(
    "edit",
    examples=("trunkline tool edit free_berths changes.json", "trunkline tool edit free_berths - < changes.json"),
)
@_TOOL
@file_argument
@org_option
async def edit(settings: Settings, tool_name: str, file: str, org: str | None) -> int:
    """Change a tool; fields that the file does not have stay as they are."""
    from api.resources.tools import change_tool
    from api.schemas.tools import Tool, ToolUpdate
    from trunkline.organization_admin import open_database

    body = read_body(ToolUpdate, file, settings)
    async with open_database(settings) as database:
        secrets = await _secrets(settings, database)

        def change(conn: sa.Connection) -> Tool:
            return change_tool(conn, _find(conn, org, tool_name), body, secrets)

        changed = await database.write(change)
    print(f"changed {changed.name}")
    return 0


@tool.command("delete", examples=("trunkline tool delete free_berths --org acme --yes",))
@_TOOL
@org_option
@yes_option
async def delete(settings: Settings, tool_name: str, org: str | None, yes: bool) -> int:
    """Delete a tool; asks first."""
    from storage.agents import tools
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        stored = await database.read(lambda conn: _find(conn, org, tool_name))
        confirm_deletion(f"the tool {stored.name}", ["it is removed from every agent that names it"], yes=yes)
        await database.write(lambda conn: tools.delete(conn, stored.organization_id, stored.id))
    print(f"deleted {stored.name}")
    return 0


async def _secrets(settings: Settings, database: Any) -> Secrets:
    from storage.database import secret_key

    return await secret_key.load(database, settings.secret_key_path)


def _find(conn: sa.Connection, org: str | None, name: str) -> StoredTool:
    """The tool with this name or id. Raises `NotFound`, and `Conflict` if several have the name."""
    from config.did_you_mean import did_you_mean
    from config.errors import Conflict, NotFound
    from storage.agents import tools

    owner = owner_of(conn, org)
    stored = tools.of_agent(conn, owner.id, None)
    found = [each for each in stored if name in (each.id, each.name)]
    if not found:
        similar = did_you_mean(name, [each.name for each in stored])
        raise NotFound(f"{owner.name} has no tool {name!r}: see `trunkline tool list`{similar}")
    if len(found) > 1:
        raise Conflict(f"{owner.name} has {len(found)} tools called {name!r}: take the id of `trunkline tool list`")
    return found[0]


def _row(stored: StoredTool) -> dict[str, str]:
    return {
        "id": stored.id,
        "name": stored.name,
        "method": stored.config["method"],
        "url": stored.config["url"],
        "description": stored.description or "-",
    }


def _fields(stored: StoredTool, secrets: Secrets) -> dict[str, Any]:
    """The tool as the API returns it, without the values of its headers."""
    from api.schemas.tools import Tool

    fields: dict[str, Any] = Tool.of(stored, secrets).model_dump(mode="json", by_alias=True)
    for header in fields["config"]["headers"]:
        header["value"] = _HIDDEN
    return fields
