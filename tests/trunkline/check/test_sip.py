"""`trunkline check`: advertised addresses, RTP ports and trunks."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from config.settings import Settings
from storage.accounts import organizations
from storage.database import server_lock
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from tests.peers.dnsmasq import NameServer
from trunkline.check import sip as check_sip
from trunkline.server.control_socket import ControlConnection, ControlServer


@pytest.fixture
def used_ports() -> Iterator[list[int]]:
    """A range of four ports that another program uses."""
    with ExitStack() as stack:
        first = 0
        while not first:
            with ExitStack() as tries:
                start = tries.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                start.bind(("127.0.0.1", 0))
                base = start.getsockname()[1]
                ports = [start]
                for port in range(base + 1, base + 4):
                    other = tries.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    try:
                        other.bind(("127.0.0.1", port))
                    except OSError:
                        break
                    ports.append(other)
                if len(ports) == 4:
                    first = base
                    stack.push(tries.pop_all())
        yield list(range(first, first + 4))


def settings_of(data_dir: Path, **sip: Any) -> Settings:
    return Settings(data_dir=data_dir).with_changes({"sip": sip})


async def create_numbers(settings: Settings, *trunks: Mapping[str, Any]) -> None:
    """Create a number for each trunk, given by its fields."""

    def create(conn: sa.Connection) -> None:
        organization = organizations.create(conn, "office")
        for number, trunk in enumerate(trunks):
            fields = PhoneNumberFields(number=str(100 + number), provider="sip", sip_mode="ip_allowlist", **trunk)
            phone_numbers.create(conn, organization.id, fields)

    database = Database(settings.database_url)
    await database.open()
    await database.write(create)
    await database.close()


@pytest.mark.parametrize(
    ("sip", "line"),
    [
        ({"host": "127.0.0.1"}, "peers get 127.0.0.1"),
        ({"public_address": "203.0.113.9"}, "peers get 203.0.113.9, peers in local_networks the local address"),
        ({"host": "0.0.0.0"}, "peers get the local address of the route to them, by default "),
        ({"host": "::"}, "peers get the local address of the route to them, by default "),
    ],
)
async def test_the_advertised_addresses_are_shown(tmp_path: Path, sip: dict[str, Any], line: str) -> None:
    assert (await check_sip.addresses(settings_of(tmp_path, **sip))).startswith(line)


async def test_a_private_address_names_the_setting_for_nat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_sip, "default_local_address", lambda host, version: "10.0.0.5")
    assert "set [sip] public_address" in await check_sip.addresses(settings_of(tmp_path))
    monkeypatch.setattr(check_sip, "default_local_address", lambda host, version: "203.0.113.5")
    assert "public_address" not in await check_sip.addresses(settings_of(tmp_path))


async def test_rtp_ports_that_other_programs_use_fail_the_check(
    tmp_path: Path, used_ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = f"{used_ports[0]}-{used_ports[-1]}"
    settings = settings_of(tmp_path, host="127.0.0.1", rtp_ports="10000-19999")
    narrow = settings.with_changes({"limits": {"max_calls": 1}, "sip": {"rtp_ports": ports}})
    with pytest.raises(OSError, match=r"other programs use 4 of the ports: set \[sip\] rtp_ports"):
        await check_sip.rtp_ports(narrow)
    monkeypatch.setattr(server_lock, "is_locked", lambda data_dir: True)
    assert "in use by the running server" in await check_sip.rtp_ports(narrow)


async def test_the_rtp_port_range_and_its_capacity_are_shown(tmp_path: Path) -> None:
    line = await check_sip.rtp_ports(settings_of(tmp_path, host="127.0.0.1"))
    assert line.startswith("10000-19999 suffice for 5000 calls, max_calls is 250")


async def test_a_server_without_trunks_passes_the_check(tmp_path: Path) -> None:
    assert await check_sip.trunks(settings_of(tmp_path)) == "no phone number has one yet"


async def test_trunk_hosts_that_cannot_be_resolved_are_listed(tmp_path: Path) -> None:
    async with NameServer("host-record=pbx.test,192.0.2.1") as server:
        settings = settings_of(tmp_path, nameservers=["{}:{}".format(*server.address)])
        known = [{"sip_ip": "127.0.0.1"}, {"sip_ip": "pbx.test"}]
        unknown = [{"sip_ip": "gone.test"}, {"sip_ip": "gone.test"}, {"sip_ip": "lost.test"}]
        await create_numbers(settings, *known, *unknown)
        with pytest.raises(OSError) as error:
            await check_sip.trunks(settings)
    assert [each.split(" ")[1] for each in str(error.value).split("; ")] == ["gone.test", "lost.test"]


async def test_trunk_hosts_that_are_resolved_are_counted(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    await create_numbers(settings, {"sip_ip": "127.0.0.1"}, {"sip_ip": "localhost"})
    assert await check_sip.trunks(settings) == "2, all their hosts are resolved"


async def test_the_states_of_trunks_are_those_of_the_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)
    await create_numbers(settings, {"sip_ip": "127.0.0.1"})
    states: list[dict[str, Any]] = [{"number": str(at), "state": "listening", "detail": None} for at in (100, 101)]

    async def status(request: Mapping[str, Any], connection: ControlConnection) -> None:
        for state in states:
            connection.send(state)

    monkeypatch.setattr(server_lock, "is_locked", lambda data_dir: True)
    async with ControlServer(tmp_path, {"sip.status": status}).listening():
        assert await check_sip.trunks(settings) == "2 listening"
        states.append({"number": "102", "state": "failed", "detail": "403 Forbidden"})
        with pytest.raises(OSError, match=r"^102: 403 Forbidden; see `trunkline sip status`"):
            await check_sip.trunks(settings)
