"""`trunkline sip`: prints SIP messages, trunks and calls of the running server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.streams import discard_stdout
from trunkline.cli.terminal.table import print_table
from trunkline.server.control_socket import query

if TYPE_CHECKING:
    from config.settings import Settings

_TRUNKS = {
    "number": "NUMBER", "organization": "ORGANIZATION", "mode": "MODE", "trunk": "TRUNK", "state": "STATE",
    "calls": "CALLS", "detail": "DETAIL",
}  # fmt: skip
_CALLS = {
    "id": "CALL", "direction": "DIRECTION", "status": "STATUS", "number": "NUMBER", "customer": "CUSTOMER",
    "time": "TIME", "codec": "CODEC", "loss": "LOSS", "jitter": "JITTER", "mos": "MOS",
}  # fmt: skip


@click.group(cls=Group, examples=("trunkline sip status", "trunkline sip trace --all"))
def sip() -> None:
    """Show SIP messages, trunks and calls of the running server."""


@sip.command(
    "trace",
    examples=(
        "trunkline sip trace --all",
        "trunkline sip trace --trunk +4930123456",
        "trunkline sip trace --call 3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11 --json",
    ),
    exactly_one=("call", "trunk", "all"),
)
@click.option("--call", metavar="CALL_ID", help="messages of one call (its id or its SIP Call-ID), from its beginning")
@click.option("--trunk", metavar="NUMBER", help="messages of the trunk of this phone number")
@click.option("--all", is_flag=True, help="messages of all known sources")
@json_option
async def trace(settings: Settings, call: str | None, trunk: str | None, all: bool, as_json: bool) -> int:
    """Print SIP messages as they are received and sent, with secrets masked.

    Ends with the call (--call), or when it is interrupted.
    """
    fields = {"command": "sip.trace", "call": call, "trunk": trunk, "all": all}
    request = {name: value for name, value in fields.items() if value}
    return await _print(settings, request, json.dumps if as_json else _message_text)


@sip.command("status", examples=("trunkline sip status", "trunkline sip status --json"))
@json_option
async def status(settings: Settings, as_json: bool) -> int:
    """List trunks and their state."""
    return await _print_table(settings, "sip.status", _TRUNKS, as_json=as_json)


@sip.command("calls", examples=("trunkline sip calls", "trunkline sip calls --json"))
@json_option
async def calls(settings: Settings, as_json: bool) -> int:
    """List live calls."""
    return await _print_table(settings, "sip.calls", _CALLS, as_json=as_json)


async def _print(settings: Settings, request: Mapping[str, Any], to_text: Callable[[Mapping[str, Any]], str]) -> int:
    try:
        async for fact in query(settings.data_dir, request):
            print(to_text(fact), flush=True)
    except BrokenPipeError:  # from `| head`
        discard_stdout()
    return 0


async def _print_table(settings: Settings, command: str, columns: Mapping[str, str], *, as_json: bool) -> int:
    if as_json:
        return await _print(settings, {"command": command}, json.dumps)
    rows = [_cells(fact) async for fact in query(settings.data_dir, {"command": command})]
    print_table(columns, rows)
    return 0


def _message_text(fact: Mapping[str, Any]) -> str:
    if "lost" in fact:
        return f"-- {fact['lost']} messages are missing: they were logged faster than this output was read --\n"
    notes = [f"call {fact['callId']}"] if fact["callId"] else []
    notes += ["retransmission"] if fact["retransmission"] else []
    path = f"{fact['direction']} {fact['transport']} {fact['from']} -> {fact['to']}"
    return f"-- {' '.join([fact['at'], path, *notes])}\n{fact['text'].rstrip()}\n"


def _cells(fact: Mapping[str, Any]) -> dict[str, str]:
    """A trunk's or a call's values for the table. `time` is in minutes and seconds; the media quality is that of the
    received stream."""
    cells = {name: "-" if value is None else str(value) for name, value in fact.items()}
    if "seconds" in fact:
        cells["time"] = f"{fact['seconds'] // 60}:{fact['seconds'] % 60:02d}"
    received = (fact.get("mediaQuality") or {}).get("received")
    if received is not None and received["mos"] is not None:
        quality = {"loss": f"{received['lossPercent']} %", "jitter": f"{received['jitterMs']} ms"}
        cells |= {**quality, "mos": str(received["mos"])}
    return cells
