"""`trunkline tool`: the tools of an organization."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.operations import Operations, Resource, by_name, open_operations
from trunkline.cli.resources.owner import file_argument, org_option, read_fields
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings

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
    """List the tools of an organization, newest first."""
    async with open_operations(settings, org) as api:
        tools = await api.all_of("listTools")
    if as_json:
        print_json(map(_without_secrets, tools))
    else:
        print_table(_COLUMNS, list(map(_row, tools)))
    return 0


@tool.command("show", examples=("trunkline tool show free_berths",))
@_TOOL
@org_option
async def show(settings: Settings, tool_name: str, org: str | None) -> int:
    """Print a tool as JSON, as the API returns it; the values of headers are hidden."""
    async with open_operations(settings, org) as api:
        found = await _find(api, tool_name)
    print(json.dumps(_without_secrets(found), indent=2, ensure_ascii=False))
    return 0


@tool.command("create", examples=("trunkline tool create berths.json --org acme",))
@file_argument
@org_option
async def create(settings: Settings, file: str, org: str | None) -> int:
    """Create a tool and print its id."""
    fields = read_fields(file)
    async with open_operations(settings, org) as api:
        created = await api.run("createTool", fields=fields)
    print(created["id"])
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
    fields = read_fields(file)
    async with open_operations(settings, org) as api:
        changed = await api.run("updateTool", item=(await _find(api, tool_name))["id"], fields=fields)
    print(f"changed {changed['name']}")
    return 0


@tool.command("delete", examples=("trunkline tool delete free_berths --org acme --yes",))
@_TOOL
@org_option
@yes_option
async def delete(settings: Settings, tool_name: str, org: str | None, yes: bool) -> int:
    """Delete a tool; asks first."""
    async with open_operations(settings, org) as api:
        found = await _find(api, tool_name)
        confirm_deletion(f"the tool {found['name']}", ["it is removed from every agent that names it"], yes=yes)
        await api.run("deleteTool", item=found["id"])
    print(f"deleted {found['name']}")
    return 0


async def _find(api: Operations, name: str) -> Resource:
    return by_name("tool", api.organization.name, name, await api.all_of("listTools"), command="tool list")


def _row(found: Resource) -> dict[str, str]:
    return {
        "id": found["id"],
        "name": found["name"],
        "method": found["config"]["method"],
        "url": found["config"]["url"],
        "description": found["description"] or "-",
    }


def _without_secrets(found: Resource) -> dict[str, Any]:
    """The tool without the values of its headers."""
    headers = [{"key": each["key"], "value": _HIDDEN} for each in found["config"]["headers"]]
    return {**found, "config": {**found["config"], "headers": headers}}
