"""`trunkline number`: the phone numbers of an organization, and the PBX's side of each."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from api.pbx.server import SipServer
from api.pbx.sides import PBXS, pbx_side, require_possible
from config.errors import NotGranted, StartupError
from storage.phone_numbers.sip_sources import normal_host
from trunkline.cli.framework.argument_types import POSITIVE_INT
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.resources.operations import Operations, Resource, by_name, open_operations
from trunkline.cli.resources.owner import STDIN, from_option, org_option, read_fields
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings

_COLUMNS: Final = {
    "id": "ID", "number": "NUMBER", "name": "NAME", "agent": "AGENT", "trunk": "TRUNK", "state": "STATE",
    "detail": "DETAIL",
}  # fmt: skip
_MAX_PASSWORD: Final = 1024
_MODES: Final = ("ip", "registrar")
_ASTERISK: Final = "asterisk"
_PBX: Final = click.Choice(tuple(PBXS))
_NUMBER = click.argument("number_name", metavar="NUMBER", help="the number or its id, as `number list` shows them")


@click.group(cls=Group, examples=("trunkline number list", "trunkline number create 700 --ip 192.0.2.10"))
def number() -> None:
    """Manage phone numbers and their trunks."""


def _trunk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `create` and `edit`, by the fields of the API."""
    for option in reversed(
        (
            click.option("--agent", metavar="NAME", help="agent that answers its calls: name or id"),
            click.option("--name", "display_name", metavar="TEXT", help="display name"),
            click.option("--ip", metavar="HOST", help="IP trunk: address or host name of the PBX (sipIp)"),
            click.option("--registrar", metavar="HOST", help="registration: host of the registrar (sipProxy)"),
            click.option("--user", metavar="NAME", help="SIP user (sipUsername)"),
            click.option("--auth-user", metavar="NAME", help="user of the digest, if another (sipAuthUser)"),
            click.option("--password-stdin", is_flag=True, help="read the SIP password from a line of stdin"),
            click.option("--port", type=POSITIVE_INT, help="port of the PBX of an IP trunk (sipPort)"),
            click.option("--transport", type=click.Choice(["udp", "tcp", "tls"]), help="transport of the trunk"),
            from_option,
            org_option,
        )
    ):
        command = option(command)
    return command


@number.command("list", examples=("trunkline number list", "trunkline number list --org acme --json"))
@org_option
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List the phone numbers of an organization, newest first, with the state of their trunks."""
    async with open_operations(settings, org) as api:
        numbers = await api.all_of("listPhoneNumbers")
        agents = {} if as_json else {each["id"]: each["name"] for each in await api.all_of("listAgents")}
    if as_json:
        print_json(numbers)
    else:
        print_table(_COLUMNS, [_row(each, agents) for each in numbers])
    return 0


@number.command("show", examples=("trunkline number show 700", "trunkline number show 700 --pbx freepbx"))
@_NUMBER
@click.option(
    "--pbx", type=_PBX, is_flag=False, flag_value=_ASTERISK,
    help="print what this PBX (default: asterisk) needs instead, without the password",
)  # fmt: skip
@org_option
async def show(settings: Settings, number_name: str, pbx: str | None, org: str | None) -> int:
    """Print a phone number as JSON, as the API returns it; never its password."""
    async with open_operations(settings, org) as api:
        found = await find_number(api, number_name)
    if pbx is None:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    needed = _pbx_side(pbx, found, settings)
    if needed is None:
        raise StartupError(f"{found['number']} has no trunk: `trunkline number edit` with --ip or --registrar sets one")
    print(needed, end="")
    return 0


@number.command(
    "create",
    examples=(
        "trunkline number create 700 --ip 192.0.2.10 --agent Reception --pbx freepbx",
        "trunkline number create +4930123456 --registrar pbx.example.com --user trunkline --password-stdin < password",
        "trunkline number create --from number.json --org acme",
    ),
    exclusive=(_MODES,),
)
@click.argument("dialled", metavar="NUMBER", required=False, help="E.164, or an extension; default: the file's")
@_trunk_options
@click.option("--pbx", type=_PBX, help="what to print for the other side; default: asterisk")
async def create(settings: Settings, dialled: str | None, org: str | None, pbx: str | None, **options: Any) -> int:
    """Create a phone number and print its id.

    What the PBX needs for it is printed on stderr, with the addresses of this server: sections for Asterisk, or with
    `--pbx` the files or the fields of another one.
    """
    fields, password = _fields(options)
    fields |= {} if dialled is None else {"number": dialled}
    if pbx is not None:
        require_possible(pbx, fields)
    async with _with_remedy(settings, org, fields) as api:
        await _set_agent(api, fields, options["agent"])
        created = await api.run("createPhoneNumber", fields={"provider": "sip", **fields})
    print(created["id"])
    _print_notes(pbx or _ASTERISK, created, settings, password)
    return 0


@number.command(
    "edit",
    examples=("trunkline number edit 700 --agent Reception", "trunkline number edit 700 --from changes.json"),
    exclusive=(_MODES, ("agent", "no_agent")),
)
@_NUMBER
@_trunk_options
@click.option("--no-agent", is_flag=True, help="no agent answers its calls")
async def edit(settings: Settings, number_name: str, org: str | None, no_agent: bool, **options: Any) -> int:
    """Change a phone number; what is not given stays as it is."""
    fields, _ = _fields(options)
    fields |= {"agentId": None} if no_agent else {}
    async with _with_remedy(settings, org, fields) as api:
        found = await find_number(api, number_name)
        if "sipMode" not in fields and options["transport"] is not None:
            fields |= _transport(found["sipMode"], options["transport"])
        await _set_agent(api, fields, options["agent"])
        changed = await api.run("updatePhoneNumber", item=found["id"], fields=fields)
    print(f"changed {changed['number']}")
    return 0


@number.command("delete", examples=("trunkline number delete 700 --org acme --yes",))
@_NUMBER
@org_option
@yes_option
async def delete(settings: Settings, number_name: str, org: str | None, yes: bool) -> int:
    """Delete a phone number; asks first."""
    async with open_operations(settings, org) as api:
        found = await find_number(api, number_name)
        confirm_deletion(f"the phone number {found['number']}", ["calls to it are rejected; its calls stay"], yes=yes)
        await api.run("deletePhoneNumber", item=found["id"])
    print(f"deleted {found['number']}")
    return 0


async def find_number(api: Operations, name: str) -> Resource:
    """The phone number with this number or id. Raises `NotFound`."""
    numbers = await api.all_of("listPhoneNumbers")
    return by_name("phone number", api.organization.name, name, numbers, "number", command="number list")


@asynccontextmanager
async def _with_remedy(settings: Settings, org: str | None, fields: Mapping[str, Any]) -> AsyncIterator[Operations]:
    """The operations; for a trunk that is not allowed, the error has the command that allows it."""
    async with open_operations(settings, org) as api:
        try:
            yield api
        except NotGranted as error:
            trunk = fields.get("sipIp") or fields.get("sipProxy") or "HOST-OR-NETWORK"
            allow = f"`trunkline trunk allow {api.organization.name} {trunk}` allows it"
            lines = [f"{each.field}: {each.message}: {allow}" for each in error.problems]
            raise StartupError("\n".join(lines)) from error


async def _set_agent(api: Operations, fields: dict[str, Any], name: str | None) -> None:
    if name is not None:
        agents = await api.all_of("listAgents")
        fields["agentId"] = by_name("agent", api.organization.name, name, agents, command="agent list")["id"]


def _fields(options: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The fields of the file and of the options, and the password that the operator gave on stdin."""
    if options["password_stdin"] and options["file"] == STDIN:
        raise StartupError("--password-stdin and --from - both read stdin")
    fields = read_fields(options["file"])
    given = {
        "name": options["display_name"],
        "sipUsername": options["user"],
        "sipAuthUser": options["auth_user"],
        "sipPort": options["port"],
        "sipIp": options["ip"],
        "sipProxy": options["registrar"],
        "sipPassword": _read_password() if options["password_stdin"] else None,
    }
    fields |= {name: value for name, value in given.items() if value is not None}
    if options["ip"] is not None or options["registrar"] is not None:
        fields["sipMode"] = "ip_allowlist" if options["registrar"] is None else "registration"
    if options["transport"] is not None and "sipMode" in fields:
        fields |= _transport(fields["sipMode"], options["transport"])
    password = fields.get("sipPassword")
    return fields, password if isinstance(password, str) else None


def _transport(mode: object, transport: str) -> dict[str, str]:
    return {"sipRegisterTransport" if mode == "registration" else "sipProtocol": transport}


def _read_password() -> str:
    password = sys.stdin.readline(_MAX_PASSWORD).rstrip("\r\n")
    if not password:
        raise StartupError("--password-stdin takes a line with the password")
    return password


def _print_notes(pbx: str, created: Resource, settings: Settings, password: str | None) -> None:
    if created["agentId"] is None:
        print(
            f"note: calls get 480 until an agent answers: `trunkline number edit {created['number']} --agent NAME`",
            file=sys.stderr,
        )
    try:
        needed = _pbx_side(pbx, created, settings, password)
    except StartupError as error:  # nobody has asked for this PBX
        needed = None
        print(f"note: {error.message}", file=sys.stderr)
    if needed is not None:
        print(f"note: {PBXS[pbx].introduction}:\n\n{needed}", file=sys.stderr)


def _pbx_side(pbx: str, found: Resource, settings: Settings, password: str | None = None) -> str | None:
    peer = found["sipProxy"] if found["sipMode"] == "registration" else found["sipIp"]
    return pbx_side(pbx, found, SipServer.of(settings, normal_host(peer or "")), password)


def _row(found: Resource, agents: Mapping[str, str]) -> dict[str, str]:
    trunk = found["sipProxy"] if found["sipMode"] == "registration" else found["sipIp"]
    if found["sipMode"] is None and found["provider"] != "sip":
        trunk = found["provider"]
    return {
        "id": found["id"],
        "number": found["number"],
        "name": found["name"] or "-",
        "agent": agents.get(found["agentId"], "-"),
        "trunk": trunk or "-",
        "state": found["sipStatus"],
        "detail": found["sipStatusDetail"] or "-",
    }
