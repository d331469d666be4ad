"""`trunkline sip` with a running server: SIP messages, trunks and calls."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.conftest import Office
from tests.trunkline.server_process import TRUNKLINE, JsonLines, command, environment
from tests.trunkline.sip_phone import PhoneCall, dialled, refusal

pytestmark = pytest.mark.asyncio(loop_scope="package")


class Trace(JsonLines):
    """`trunkline sip trace --json`, running."""

    process: asyncio.subprocess.Process

    async def messages(self, count: int, **fields: Any) -> Sequence[dict[str, Any]]:
        """Wait for `count` messages with these fields."""
        async with asyncio.timeout(10):
            while len(found := [each for each in self.events if fields.items() <= each.items()]) < count:
                self._news.clear()
                await self._news.wait()
        return found


@asynccontextmanager
async def trace(office: Office, *arguments: str) -> AsyncIterator[Trace]:
    """Run `trunkline sip trace --json` during the block."""
    trace_lines = Trace("the trace")
    trace_lines.begin()
    trace_lines.process = await asyncio.create_subprocess_exec(
        TRUNKLINE, "sip", "trace", "--json", *arguments, env=office.server.environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert trace_lines.process.stdout is not None
    reading = asyncio.create_task(trace_lines.follow(trace_lines.process.stdout))
    try:
        yield trace_lines
    finally:
        if trace_lines.process.returncode is None:
            trace_lines.process.kill()
        await trace_lines.process.wait()
        await reading


async def wait_listening(office: Office, trace_lines: Trace, host: str = "127.0.0.1") -> None:
    """Send OPTIONS from an address until one of them is in the trace, and clear the trace."""
    async with RawPhone(office.server.target, host) as phone:
        ours = f"{host}:{phone.sip.port}"
        async with asyncio.timeout(20):
            while not any(each.get("from") == ours for each in trace_lines.events):
                phone.send(phone.request("OPTIONS", phone.dialog()))
                await asyncio.sleep(0.1)  # another process begins to listen
    trace_lines.events.clear()


def summaries(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [each["summary"].split(" sip:")[0].split(" (")[0] for each in messages]


async def test_a_live_call_is_traced_from_its_beginning_to_its_end(office: Office) -> None:
    since = office.server.log.mark()
    async with RawPhone(office.server.target) as phone, PhoneCall(phone, "100") as call:
        answered = await office.server.event("call.answered", since=since)
        async with trace(office, "--call", answered["call_id"]) as trace_lines:
            await trace_lines.messages(5)
            await call.hang_up()
            async with asyncio.timeout(10):
                assert await trace_lines.process.wait() == 0
    assert summaries(trace_lines.events) == ["INVITE", "100 Trying", "180 Ringing", "200 OK", "ACK", "BYE", "200 OK"]
    assert {each["callId"] for each in trace_lines.events} == {answered["call_id"]}
    assert {each["sipCallId"] for each in trace_lines.events} == {call.sip_call_id}
    status, out, _ = await command(
        "sip",
        "trace",
        "--call",
        answered["call_id"],
        folder=office.server.data_dir,
        environment=office.server.environment,
    )
    assert status == 0
    blocks = out.split("\n-- ")
    assert len(blocks) == 7 and f"received udp 127.0.0.1:{phone.sip.port} -> {office.server.target}" in blocks[0]
    assert "\nINVITE sip:100@127.0.0.1 SIP/2.0\nVia: " in blocks[0]


async def test_a_trunk_trace_has_its_calls_and_other_messages_of_its_addresses(office: Office) -> None:
    await office.client.number("177", None, sipIp="127.0.0.77")
    async with trace(office, "--trunk", "177") as trace_lines, trace(office, "--all") as everything:
        await wait_listening(office, everything)
        await wait_listening(office, trace_lines, "127.0.0.77")
        async with RawPhone(office.server.target, "127.0.0.77") as phone:
            await phone.options()
            phone.invite(dialog := dialled(phone, "999"), phone.offer())
            assert (await phone.final_response()).status == 404
        await refusal(office.server.target, "999")
        await everything.messages(2, summary="404 Not Found (INVITE)")
        seen = await trace_lines.messages(1, summary="404 Not Found (INVITE)")
    assert [each["sipCallId"] for each in seen] == [dialog.call_id]
    assert "OPTIONS" in summaries(trace_lines.events)
    assert {each["to" if each["direction"] == "sent" else "from"].split(":")[0] for each in trace_lines.events} == {
        "127.0.0.77"
    }


async def test_trunks_and_calls_are_listed(office: Office) -> None:
    since = office.server.log.mark()
    folder, settings = office.server.data_dir, office.server.environment
    async with RawPhone(office.server.target) as phone, PhoneCall(phone, "100") as call:
        answered = await office.server.event("call.answered", since=since)
        await call.hears(50)
        (_, trunks, _), (_, calls, _), (_, as_json, _) = await asyncio.gather(
            command("sip", "status", folder=folder, environment=settings),
            command("sip", "calls", folder=folder, environment=settings),
            command("sip", "calls", "--json", folder=folder, environment=settings),
        )
        await call.hang_up()
    lines = [line.split() for line in trunks.splitlines()]
    assert lines[0][:6] == ["NUMBER", "ORGANIZATION", "MODE", "TRUNK", "STATE", "CALLS"]
    assert ["100", "office", "ip_allowlist", "127.0.0.1", "listening", "1"] in [line[:6] for line in lines]
    trace_lines = next(json.loads(line) for line in as_json.splitlines() if answered["call_id"] in line)
    assert (trace_lines["number"], trace_lines["customer"], trace_lines["status"], trace_lines["codec"]) == (
        "100",
        "raw",
        "in_progress",
        "PCMU",
    )
    line = next(line.split() for line in calls.splitlines() if answered["call_id"] in line)
    assert line[1:5] == ["inbound", "in_progress", "100", "raw"] and "PCMU" in line
    assert trace_lines["mediaQuality"]["received"]["packets"] > 0
    assert calls.splitlines()[0].split()[-4:] == ["CODEC", "LOSS", "JITTER", "MOS"]
    assert line[-5:-3] == ["0.0", "%"] and 1 <= float(line[-1]) <= 4.5, line


async def test_errors_are_reported_in_one_line(office: Office) -> None:
    folder, settings = office.server.data_dir, office.server.environment
    nowhere = environment(office.server.data_dir / "elsewhere", {})
    cases = [
        (settings, ("trace", "--call", "nothing"), "trunkline: there is no call nothing: see `trunkline sip calls`"),
        (settings, ("trace", "--trunk", "+1"), "trunkline: there is no trunk with the number +1: see `trunkline sip"),
        (nowhere, ("status",), "trunkline: no server runs on "),
        (nowhere, ("trace", "--all"), "trunkline: no server runs on "),
    ]  # fmt: skip
    results = await asyncio.gather(
        *(command("sip", *words, folder=folder, environment=settings) for settings, words, _ in cases)
    )
    for (_, _, complaint), (status, out, err) in zip(cases, results, strict=True):
        assert (status, out) == (1, "") and err.startswith(complaint) and err.count("\n") == 1, err


async def test_the_socket_is_accessible_to_the_servers_user_only(office: Office) -> None:
    facts = (office.server.data_dir / "control.sock").stat()
    assert stat.S_ISSOCK(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o600
