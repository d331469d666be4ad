"""`trunkline webhook`: the webhook endpoints of an organization."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.operations import Operations, Resource, by_name, open_operations
from trunkline.cli.resources.owner import file_argument, org_option, read_fields
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings

_COLUMNS: Final = {"id": "ID", "url": "URL", "events": "EVENTS", "enabled": "ENABLED", "description": "DESCRIPTION"}
_ENDPOINT = click.argument(
    "endpoint_url", metavar="ENDPOINT", help="the endpoint's URL or id, as `webhook list` shows them"
)


@click.group(cls=Group, examples=("trunkline webhook list", "trunkline webhook create crm.json --org acme"))
def webhook() -> None:
    """Manage the addresses that get the events of all calls of an organization."""


@webhook.command("list", examples=("trunkline webhook list", "trunkline webhook list --org acme --json"))
@org_option
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List the webhook endpoints of an organization, newest first."""
    async with open_operations(settings, org) as api:
        found = await api.all_of("listWebhookEndpoints")
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, list(map(_row, found)))
    return 0


@webhook.command("show", examples=("trunkline webhook show https://crm.example/calls",))
@_ENDPOINT
@org_option
async def show(settings: Settings, endpoint_url: str, org: str | None) -> int:
    """Print a webhook endpoint as JSON, as the API returns it, without its secret."""
    async with open_operations(settings, org) as api:
        found = await _find(api, endpoint_url)
    print(json.dumps(found, indent=2, ensure_ascii=False))
    return 0


@webhook.command("create", examples=("trunkline webhook create crm.json --org acme",))
@file_argument
@org_option
async def create(settings: Settings, file: str, org: str | None) -> int:
    """Create a webhook endpoint and print its id."""
    fields = read_fields(file)
    async with open_operations(settings, org) as api:
        created = await api.run("createWebhookEndpoint", fields=fields)
    print(created["id"])
    return 0


@webhook.command("edit", examples=("trunkline webhook edit https://crm.example/calls changes.json",))
@_ENDPOINT
@file_argument
@org_option
async def edit(settings: Settings, endpoint_url: str, file: str, org: str | None) -> int:
    """Change a webhook endpoint; fields that the file does not have stay as they are."""
    fields = read_fields(file)
    async with open_operations(settings, org) as api:
        item = (await _find(api, endpoint_url))["id"]
        changed = await api.run("updateWebhookEndpoint", item=item, fields=fields)
    print(f"changed {changed['url']}")
    return 0


@webhook.command("delete", examples=("trunkline webhook delete https://crm.example/calls --org acme --yes",))
@_ENDPOINT
@org_option
@yes_option
async def delete(settings: Settings, endpoint_url: str, org: str | None, yes: bool) -> int:
    """Delete a webhook endpoint; asks first."""
    async with open_operations(settings, org) as api:
        found = await _find(api, endpoint_url)
        confirm_deletion(
            f"the webhook endpoint {found['url']}", ["its events that are not delivered yet are not sent"], yes=yes
        )
        await api.run("deleteWebhookEndpoint", item=found["id"])
    print(f"deleted {found['url']}")
    return 0


async def _find(api: Operations, url: str) -> Resource:
    endpoints = await api.all_of("listWebhookEndpoints")
    return by_name("webhook endpoint", api.organization.name, url, endpoints, "url", command="webhook list")


def _row(found: Resource) -> dict[str, str]:
    return {
        "id": found["id"],
        "url": found["url"],
        "events": " ".join(found["events"]) or "-",
        "enabled": "yes" if found["enabled"] else "no",
        "description": found["description"] or "-",
    }
