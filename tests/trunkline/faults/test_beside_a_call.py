"""A live call is not affected by a second server, garbage on the SIP port, commands, and health requests."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.peers.ports import free_port
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import Office
from tests.trunkline.server_process import command, environment, merged
from tests.trunkline.sip_phone import calling

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize(
    ("shared", "complaint"),
    [
        ("data_dir", r"another server \(process \d+\) uses data_dir .*: stop it, or set another data_dir"),
        ("database", r"another server \(process \d+\) uses the database .*: stop it, or set another \[database\] url"),
        ("sip", r"SIP port \d+/udp on 127\.0\.0\.1 cannot be opened .*: stop the program that uses it, or set \[sip\]"),
        ("api", r"API port \d+ on 127\.0\.0\.1 cannot be opened \(Address already in use\): .*\[api\] port"),
    ],
    ids=["data_dir", "database", "sip port", "api port"],
)  # fmt: skip
async def test_a_second_server_on_the_same_data_or_port_ends_with_one_line(
    office: Office, tmp_path: Path, shared: str, complaint: str
) -> None:
    ports: dict[str, Any] = {"sip": {"port": free_port()}, "api": {"port": free_port()}}
    if shared in ports:
        ports[shared] = {"port": office.server.settings[shared]["port"]}
    if shared == "database":
        ports[shared] = {"url": f"sqlite+aiosqlite:///{office.server.data_dir / 'trunkline.db'}"}
    data_dir = office.server.data_dir if shared == "data_dir" else tmp_path / "data"
    async with calling(office.server.target) as call:
        status, out, err = await command(
            "serve", folder=tmp_path, environment=environment(data_dir, merged(office.server.settings, ports))
        )
        await call.hears(20)
        await call.hang_up()
    assert (status, out) == (1, "")
    *log, last = err.splitlines()
    assert re.fullmatch(f"trunkline: {complaint}.*", last), last
    assert all(line.startswith("{") and '"level": "info"' in line for line in log), log
    assert (await office.client.get("/readyz"))[0] == 200
    ended = await office.server.event("call.ended", call_id=await call_id_of(office, call.sip_call_id))
    assert ended["reason"] == "customer_ended"


async def call_id_of(office: Office, sip_call_id: str) -> str:
    """The API's id of a call, by its SIP Call-ID."""
    calls = await office.client.v1("GET", "calls?limit=20")
    return next(str(call["id"]) for call in calls if call["callSid"] == sip_call_id)


def garbage(count: int) -> list[bytes]:
    """Datagrams that are not SIP: random bytes of any length, the largest possible one, truncated messages."""
    dice = random.Random(7)
    invite = b"INVITE sip:100@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5;branch=z9hG4bK1\r\nFrom: <sip:a@b>;ta"
    made = [b"x" * 65507, invite, invite[:60], b"SIP/2.0 200", b"INVITE\r\n\r\n", b"\0" * 1000]
    return made + [dice.randbytes(dice.randrange(1, 3000)) for _ in range(count - len(made))]


async def test_garbage_on_the_sip_port_is_counted_and_does_not_affect_a_live_call(office: Office) -> None:
    since = office.server.log.mark()
    async with calling(office.server.target) as call:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            for number, packet in enumerate(garbage(300)):
                udp.sendto(packet, ("127.0.0.1", office.server.sip_port))
                if number % 5 == 0:  # the socket's buffer holds only so much
                    await call.hears(1)
        for packet in garbage(40):
            with socket.create_connection(("127.0.0.1", office.server.sip_port)) as tcp:
                tcp.setblocking(False)
                try:
                    tcp.send(packet)
                except OSError:  # it may hang up on us in the middle
                    continue
        first = await office.server.event("sip.garbage", since=since)
        assert first["source"] == "127.0.0.1"
        await call.hears(120)
        lines = office.server.log.all("sip.garbage", since)
        await call.hang_up()
    assert 300 <= sum(line["count"] for line in lines) <= 340
    assert len(lines) <= 5, "one line for each source and each look at the guard"
    sequence = [packet.sequence for packet in call.packets]
    assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
    ended = await office.server.event("call.ended", call_id=await call_id_of(office, call.sip_call_id))
    assert ended["reason"] == "customer_ended"


async def test_commands_work_while_the_server_runs(office: Office, tmp_path: Path) -> None:
    async def run(*arguments: str, status: int = 0) -> str:
        code, out, err = await command(*arguments, folder=tmp_path, environment=office.server.environment)
        assert code == status, err
        if status:
            assert out == ""
            assert err.count("\n") == 1
        return (out if status == 0 else err).strip()

    organization = await run("org", "create", "Lighthouse", "--plan", "paid", "--balance", "12.5", "--max-calls", "3")
    assert re.fullmatch(r"[0-9a-f-]{36}", organization)
    assert "Lighthouse" in await run("org", "create", "Lighthouse", status=1)
    assert "trunkline org list" in await run("key", "create", "--org", "Nobody", status=1)
    key = await run("key", "create", "--org", "Lighthouse", "--name", "till")
    assert re.fullmatch(r"tk_[0-9a-f]{8}_\S{40,}", key)
    office.server.secrets.add(key)
    async with Client(office.server.origin, key, set()) as client:
        assert await client.v1("GET", "calls") == [], "it works at once, and for its own organization"
        limited = await run("org", "set", "Lighthouse", "--prefixes", "+49,1", "--calls-per-minute", "30")
        assert limited.endswith("max calls    3  a minute   30  to +49,1  Lighthouse")
        wide = await run("org", "set", "Lighthouse", "--any-prefix", "--no-cap", "--max-calls", "4")
        assert wide.endswith("max calls    4  a minute    -  anywhere  Lighthouse")
        assert "to nowhere" in await run("org", "set", "Lighthouse", "--prefixes", "")
        assert "trunkline org list" in await run("org", "set", "Nobody", "--no-cap", status=1)
        days = ("--keep-recordings-days", "30", "--keep-transcripts-days", "0", "--keep-calls-days", "400")
        assert "keeps recordings 30 d, transcripts 0 d, calls 400 d  redacts numbers and dialled digits" in await run(
            "org", "set", "Lighthouse", *days, "--redact", "on", "--redact-dialled", "on"
        )
        forever = await run("org", "set", "Lighthouse", "--keep-calls-days", "forever", "--redact", "off")
        assert "keeps recordings 30 d, transcripts 0 d, calls forever  redacts dialled digits" in forever
        shown = await run("org", "list") + "\n" + await run("key", "list")
        assert "Lighthouse" in shown
        assert key[:11] in shown
        assert not any(secret in shown for secret in office.server.secrets)
        assert await run("key", "revoke", key[:11]) == f"revoked {key[:11]}"
        status, body = await client.get("/v1/calls")
        assert (status, b"Invalid API key" in body) == (401, True), "it ends at once"
    assert "trunkline key list" in await run("key", "revoke", key[:11], status=1)


async def test_check_prints_a_line_for_each_check(office: Office, tmp_path: Path) -> None:
    """With the settings of the running server, and with a port that another program uses."""
    with socket.socket() as other_program:
        other_program.bind(("127.0.0.1", 0))
        other_program.listen()
        taken = {"api": {"port": other_program.getsockname()[1]}, "sip": {"port": free_port()}}
        good, bad = await asyncio.gather(
            command("check", folder=tmp_path, environment=office.server.environment),
            command(
                "check",
                folder=tmp_path,
                environment=environment(tmp_path / "data", merged(office.server.settings, taken)),
            ),
        )
    names = [
        "settings", "data", "database", "models", "languages", "load checks", "capacity", "voice activity", "workers",
        "API port", "SIP ports", "SIP over TLS", "SIP addresses", "RTP ports", "trunks", "audio path",
    ]  # fmt: skip
    lines = good[1].splitlines()
    named = [line for line in lines if line[6:22].strip()]
    assert [line[6:22].strip() for line in named] == names
    assert all(line.startswith("ok ") for line in lines), lines
    assert (good[0], good[2]) == (0, "")
    assert "in use by a running server" in lines[1]
    assert any("documents and sounds are read with limits, seccomp yes, Landlock " in line for line in lines)
    assert sum("times as fast" in line for line in lines) == 2, "the recognizer and the voice"
    assert sum(" calls at once get answers within " in line for line in lines) == 3
    assert "in use by the running server" in named[names.index("API port")]
    assert "a test call carries audio" in lines[-1]
    failures = [line for line in bad[1].splitlines() if line.startswith("FAIL")]
    assert bad[0] == 1
    assert len(failures) == 1
    assert "TRUNKLINE_API__PORT" in failures[0]


async def test_health_and_metrics_report_a_live_call(office: Office) -> None:
    assert await office.client.get("/healthz") == (200, b'{"status":"ok"}')
    async with calling(office.server.target) as call:
        await call.hears(20)
        status, body = await office.client.get("/readyz")
        assert status == 200
        assert b'"liveCalls":1' in body
        during = await read_metrics(office)
        await call.hears(20)
        later = await read_metrics(office)
        await call.hang_up()
    await office.server.event("call.ended", call_id=await call_id_of(office, call.sip_call_id))
    async with asyncio.timeout(5):
        while (after := await read_metrics(office))["trunkline_pump_slots"]:  # the pump lets go at its next tick
            pass
    assert during["trunkline_live_calls"] == during["trunkline_pump_slots"] == 1
    assert after["trunkline_live_calls"] == 0
    for growing in ("pump_ticks", "pump_cpu_seconds", "engine_ticks", "engine_seconds"):
        assert during[f"trunkline_{growing}_total"] < later[f"trunkline_{growing}_total"], growing
    assert later['trunkline_packet_deviation_ms{quantile="0.99"}'] >= 0
    reason = 'trunkline_ended_calls_total{direction="inbound",reason="customer_ended"}'
    assert after[reason] == during.get(reason, 0) + 1


async def read_metrics(office: Office) -> dict[str, float]:
    """The values of `/metrics` by name and labels."""
    status, body = await office.client.get("/metrics")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
