"""`trunkline call`: the calls of an organization; places, watches and hangs up calls of the running server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from config.errors import NotFound, StartupError
from trunkline.cli.framework.argument_types import POSITIVE_INT, Value
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.agent import find_agent
from trunkline.cli.resources.call_watch import duration, watch_call
from trunkline.cli.resources.number import find_number
from trunkline.cli.resources.operations import Operations, Resource, open_operations
from trunkline.cli.resources.owner import org_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings

_COLUMNS: Final = {
    "id": "ID", "direction": "DIRECTION", "state": "STATE", "number": "NUMBER", "customer": "CUSTOMER",
    "agent": "AGENT", "created": "CREATED", "time": "TIME", "ended": "ENDED",
}  # fmt: skip
_STATUSES: Final = ("queued", "ringing", "in_progress", "completed", "failed", "no_answer")
_CALL = click.argument("call_id", metavar="ID", help="the call's id, as `call list` shows it")


@click.group(cls=Group, examples=("trunkline call list", "trunkline call dial +4930654321 --agent Reception"))
def call() -> None:
    """List, place, watch and hang up calls."""


@call.command(
    "list",
    examples=("trunkline call list", "trunkline call list --agent Reception --status failed --limit 100 --json"),
)
@click.option("--agent", metavar="NAME", help="only calls of this agent")
@click.option("--status", type=click.Choice(_STATUSES), help="only calls with this status")
@click.option("--direction", type=click.Choice(["inbound", "outbound"]), help="only calls of this direction")
@click.option("--limit", type=POSITIVE_INT, default=20, help="number of calls (default: 20)")
@org_option
@json_option
async def list_all(
    settings: Settings, agent: str | None, limit: int, org: str | None, as_json: bool, **filters: str | None
) -> int:
    """List calls, newest first."""
    async with open_operations(settings, org) as api:
        parameters = {name: value for name, value in filters.items() if value is not None}
        parameters |= {} if agent is None else {"agentId": (await find_agent(api, agent))["id"]}
        calls = await api.all_of("listCalls", most=limit, **parameters)
        agents = {} if as_json else {each["id"]: each["name"] for each in await api.all_of("listAgents")}
        numbers = {} if as_json else {each["id"]: each["number"] for each in await api.all_of("listPhoneNumbers")}
    if as_json:
        print_json(calls)
    else:
        print_table(_COLUMNS, [_row(each, agents, numbers) for each in calls])
    return 0


@call.command("show", examples=("trunkline call show 3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11",))
@_CALL
@click.option("--tools", is_flag=True, help="with the tool calls in the transcript")
@org_option
async def show(settings: Settings, call_id: str, tools: bool, org: str | None) -> int:
    """Print a call with its transcript and analysis as JSON, as the API returns it."""
    async with open_operations(settings, org) as api:
        shown = await _find(api, call_id)
        if tools:
            shown |= await api.run("getCallTranscript", item=call_id, include="tools")
            del shown["callId"]
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    return 0


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError("takes NAME=VALUE")
    return name, value


@call.command(
    "dial",
    examples=(
        "trunkline call dial +4930654321 --agent Reception",
        "trunkline call dial 100 --agent Reception --number 700 --variable caller=Ada --no-watch",
    ),
)
@click.argument("to", metavar="NUMBER", help="destination: E.164, or an extension of 2 to 7 digits")
@click.option("--agent", metavar="NAME", required=True, help="agent that holds the conversation: name or id")
@click.option("--number", metavar="NUMBER", help="phone number to call from (default: the agent's, or the only one)")
@click.option(
    "--variable", "variables", type=Value("variable", _variable), metavar="NAME=VALUE", multiple=True,
    help="value of a placeholder; may be repeated",
)  # fmt: skip
@click.option("--no-watch", is_flag=True, help="return as soon as the call is queued")
@org_option
@json_option
async def dial(
    settings: Settings,
    to: str,
    agent: str,
    number: str | None,
    variables: tuple[tuple[str, str], ...],
    no_watch: bool,
    org: str | None,
    as_json: bool,
) -> int:
    """Place a call by the running server, print its id, and watch it as `call watch` does.

    An interruption ends the watching, not the call.
    """
    async with open_operations(settings, org) as api:
        found = await find_agent(api, agent)
        source = await _number_of(api, found, number)
        fields = {
            "agentId": found["id"], "phoneNumberId": source["id"], "to": to, "contextVariables": dict(variables),
        }  # fmt: skip
        call_id: str = (await api.run_on_server("createCall", fields=fields))["id"]
        print(json.dumps({"id": call_id}) if as_json else call_id, flush=True)
        return 0 if no_watch else await _watch(api, call_id, as_json=as_json)


@call.command("watch", examples=("trunkline call watch 3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11",))
@_CALL
@org_option
@json_option
async def watch(settings: Settings, call_id: str, org: str | None, as_json: bool) -> int:
    """Print what is said in a call as it is said, until the call ends.

    The exit status is 0 if the call is completed, 3 if it was not answered and 4 if it failed.
    """
    async with open_operations(settings, org) as api:
        await _find(api, call_id)
        return await _watch(api, call_id, as_json=as_json)


@call.command("hangup", examples=("trunkline call hangup 3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11",))
@_CALL
@org_option
async def hangup(settings: Settings, call_id: str, org: str | None) -> int:
    """Hang up a call that is queued, ringing or in progress."""
    async with open_operations(settings, org) as api:
        await _find(api, call_id)
        ended = await api.run_on_server("hangUpCall", item=call_id)
    print(f"hung up {call_id}: {ended['status']}")
    return 0


async def _watch(api: Operations, call_id: str, *, as_json: bool) -> int:
    try:
        return await watch_call(api, call_id, as_json=as_json)
    except asyncio.CancelledError:
        print(f"note: the call goes on: `trunkline call hangup {call_id}` ends it", file=sys.stderr)
        raise


async def _find(api: Operations, call_id: str) -> Resource:
    try:
        return await api.run("getCall", item=call_id)
    except NotFound as error:
        raise NotFound(f"{api.organization.name} has no call {call_id!r}: see `trunkline call list`") from error


async def _number_of(api: Operations, agent: Resource, name: str | None) -> Resource:
    """The number to call from: the named one, else the agent's only one, else the only one. Raises `StartupError`."""
    if name is not None:
        return await find_number(api, name)
    usable = [each for each in await api.all_of("listPhoneNumbers") if each["sipMode"] is not None]
    of_agent = [each for each in usable if each["agentId"] == agent["id"]]
    for numbers in (of_agent, usable):
        if len(numbers) == 1:
            return numbers[0]
    if not usable:
        raise StartupError(f"{api.organization.name} has no phone number with a trunk: `trunkline number create`")
    several = ", ".join(each["number"] for each in of_agent or usable)
    raise StartupError(f"name the number to call from with --number: there are {several}")


def _row(found: Resource, agents: Mapping[str, str], numbers: Mapping[str, str]) -> dict[str, str]:
    deleted = found["calledNumber"] if found["direction"] == "inbound" else None
    return {
        "id": found["id"],
        "direction": found["direction"],
        "state": found["status"],
        "number": numbers.get(found["phoneNumberId"], deleted or "-"),
        "customer": found["customerNumber"],
        "agent": agents.get(found["agentId"], "-"),
        "created": found["createdAt"],
        "time": duration(found["durationSeconds"]),
        "ended": found["endedReason"] or "-",
    }
