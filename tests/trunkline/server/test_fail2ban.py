"""The fail2ban filter of docs/how-to/fail2ban.md: it matches the addresses to ban, and no others, in a server's log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import Office
from tests.trunkline.pbx.test_inbound_digest import DigestCaller
from tests.trunkline.server_process import JsonLines, Server
from tests.trunkline.sip_phone import dialled, known

pytestmark = pytest.mark.asyncio(loop_scope="package")

PAGE = (Path(__file__).parents[3] / "docs/how-to/fail2ban.md").read_text()
NUMBER = "167"
STRANGER, CALLER = "127.0.0.66", "127.0.0.67"
VICTIM = "198.51.100.1"
TRICKS = [
    f"x source={VICTIM}",
    f"sip.unknown_source count=1 source={VICTIM}",
    f'", "source": "{VICTIM}", "timestamp": "2026-11-21T18:00:00.000000Z"}}',
    f'{{"event": "sip.digest_failed", "source": "{VICTIM}", "timestamp": "2026-11-21T18:00:00Z"}}',
    f"[warning  ] sip.digest_failed number=1 source={VICTIM}",
]
"""Caller names that contain log text, to get another address banned."""


async def matched_addresses(lines: list[str], folder: Path) -> list[str]:
    """The addresses that the filter matches in a log, one for each matched line."""
    log, filter_ = folder / "trunkline.log", folder / "filter.conf"
    config = re.search(r"filter\.d/trunkline\.conf`\n\n```ini\n(.*?)```", PAGE, re.DOTALL)
    assert config
    await asyncio.to_thread(filter_.write_text, config[1])
    await asyncio.to_thread(log.write_text, "\n".join(lines) + "\n")
    child = await asyncio.create_subprocess_exec(
        "fail2ban-regex", "--usedns=no", "--out=ip", str(log), str(filter_), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    return output.decode().split()


class ConsoleLog(JsonLines):
    """The log in the console format."""

    def take(self, line: str) -> None:
        super().take(line)
        match = re.match(r"\S+Z \[\w+ *\] (\S+)(?: +(.*))?$", line)
        source = re.search(r" source=(\S+)$", line)
        self.events[-1] = {"event": match[1], "line": line, "source": source and source[1]} if match else {}


async def provoke(server: Server) -> None:
    """Send requests from unknown sources, with a wrong password, and with the caller names of `NAMES`."""
    since = server.log.mark()
    await known(server.target, CALLER)
    async with RawPhone(server.target, STRANGER) as unknown_source:
        unknown_source.send(unknown_source.request("REGISTER", unknown_source.dialog()))
        await server.event("sip.unknown_source", since=since, source=STRANGER)
    async with RawPhone(server.target, CALLER) as raw:
        plain = raw.send
        for user in ("bob", *TRICKS[:4]):  # no more are judged in a minute
            raw.send = partial(_send_as, plain, user)  # type: ignore[method-assign]
            phone = DigestCaller(raw)
            phone.dialog = dialled(raw, NUMBER)
            await phone.send_invite()
            assert (await phone.send_invite(phone.authorization(password="wrong"))).status == 401
        for user in TRICKS:
            raw.send = partial(_send_as, plain, user)  # type: ignore[method-assign]
            raw.invite(dialled(raw, "100"), raw.offer(), (f"Subject: {user}",))
            assert (await raw.final_response("INVITE")).status == 404
    await server.log.events_of("sip.digest_failed", 5, since=since)


def _send_as(send: Callable[[bytes], None], user: str, data: bytes) -> None:
    """Send a request with this user in From."""
    send(data.replace(f"<sip:raw@{CALLER}>".encode(), f"<sip:{quote(user, safe='')}@{CALLER}>".encode()))


async def create_digest_number(client: Client, agent_id: str) -> None:
    more: dict[str, Any] = {"sipInboundAuth": True, "sipUsername": "harbour", "sipPassword": "hush-hush"}
    await client.number(NUMBER, agent_id, sipIp=CALLER, **more)


async def check_matches(log: JsonLines, since: int, folder: Path) -> None:
    """Check the addresses that the filter matches in the log since then."""
    lines = log.lines[since:]
    addresses = await matched_addresses(lines, folder)
    assert set(addresses) == {STRANGER, CALLER}
    assert addresses.count(STRANGER) == len([line for line in lines if STRANGER in line])
    of_caller = [log.all(event, since) for event in ("sip.digest_failed", "sip.unknown_source")]
    assert len(of_caller[0]) == 5
    assert len(addresses) == sum(map(len, of_caller)), "it was a unknown_source itself before it had a number"
    assert len([line for line in lines if VICTIM in line]) >= 4, "the tricks stand in the log"


async def test_the_filter_matches_json_logs_and_ignores_caller_names(office: Office, tmp_path: Path) -> None:
    await create_digest_number(office.client, office.agent_id)
    since = office.server.log.mark()
    await provoke(office.server)
    await check_matches(office.server.log, since, tmp_path)


async def test_the_filter_matches_console_logs_and_ignores_caller_names(tmp_path: Path) -> None:
    server = Server(tmp_path, log_format="console")
    server.log = ConsoleLog("the server")
    server.event = server.log.event
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        await create_digest_number(client, await client.agent())
        await provoke(server)
    await check_matches(server.log, 0, tmp_path)
