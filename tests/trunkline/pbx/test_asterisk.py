"""Asterisk with the configuration of docs/how-to/pbx/asterisk.md, and a complete server."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from sipcore.settings import TlsFiles
from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.transcripts import without_times
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import until

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]

PAGE = Path(__file__).parents[3] / "docs/how-to/pbx/asterisk.md"
TESTS = """
[tests]
exten => talk,1,Answer()
same => n,Milliwatt()
exten => keys,1,Answer()
same => n,SendDTMF(4711#,100,100)
same => n,Wait(20)

[from-trunkline]
exten => 41000011,1,Goto(tests,talk,1)
exten => 100,1,Goto(tests,talk,1)
exten => 41000012,1,Answer()
same => n,Wait(0.3)
same => n,Hangup()
exten => 41000021,1,Hangup(17)
exten => 41000022,1,Ringing()
same => n,Wait(20)
exten => 41000023,1,Hangup(21)
exten => 41000024,1,Hangup(1)
"""


def block(title: str) -> str:
    """The configuration block with this title on the page."""
    found = re.search(rf"```ini\n(; {re.escape(title)}\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"the page has no block {title}"
    return found[1]


def configuration(file: str, *kinds: str) -> str:
    """What the page puts into this file for trunks of these kinds."""
    return "\n".join(block(f"{file}, {kind}") for kind in ("both kinds", *kinds))


def pjsip_of(sip_address: str, tls_port: int, *kinds: str) -> str:
    """The page's pjsip.conf for trunks of these kinds, with the addresses and keys of this test."""
    pjsip = re.sub("bind=0.0.0.0:506[01]", "bind=127.0.0.1:{port}", configuration("pjsip.conf", *kinds))
    pjsip = pjsip.replace("198.51.100.5:5060", sip_address).replace("198.51.100.5", "127.0.0.1")
    return pjsip.replace("127.0.0.1:5061", f"127.0.0.1:{tls_port}").replace("/etc/asterisk/keys/", "{folder}/")


def pbx(
    local_server: LocalServer,
    how: str,
    extensions: str = "",
    changes: Mapping[str, str] = {},
    files: Mapping[str, str] = {},
) -> Asterisk:
    """Asterisk with the page's configuration, the addresses and keys of this test, and `changes`. `files` are appended
    to it."""
    pjsip = pjsip_of(local_server.target, local_server.server.settings.sip.tls_port, how)
    for old, new in changes.items():
        assert old in pjsip
        pjsip = pjsip.replace(old, new)
    extensions = configuration("extensions.conf", extensions or how) + TESTS
    own = {"pjsip.conf": pjsip, "extensions.conf": extensions}
    return Asterisk({name: own.get(name, "") + files.get(name, "") for name in {**own, **files}})


def copy_certificate(files: TlsFiles, asterisk: Asterisk) -> None:
    """Copy the certificate, its key and the authority into the folder of Asterisk."""
    for source, name in (
        (files.certificate, "asterisk.crt"),
        (files.key, "asterisk.key"),
        (files.authorities, "ca.crt"),
    ):
        assert source is not None
        shutil.copy(source, asterisk.spool / name)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that both sides trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    folder = tmp_path_factory.mktemp("server")
    files = authority.files("127.0.0.1")
    sip = {
        "ring_timeout_s": 2, "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(files.authorities), "srtp": "optional",
    }  # fmt: skip
    async with open_local_server(folder, sip=sip, limits={"max_outbound_per_second": 50}) as local_server:
        yield local_server


async def place_call(local_server: LocalServer, number_id: str, to: str) -> str:
    """Create an outbound call; returns its id."""
    agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
    body = {"agentId": agent_id, "phoneNumberId": number_id, "to": to}
    return str((await local_server.client.v1("POST", "calls", body))["id"])


def recorded_bytes(local_server: LocalServer, call_id: str) -> int:
    """The current size of a call's recording."""
    return sum(path.stat().st_size for path in local_server.server.settings.data_dir.rglob(f"*{call_id}*.wav"))


async def call_outcome(local_server: LocalServer, number_id: str, to: str) -> tuple[str, str]:
    """Call an extension; returns status and ended reason."""
    call = await local_server.ended(await place_call(local_server, number_id, to))
    return call["status"], call["endedReason"]


async def test_extensions_dial_an_agent_through_the_trunk_by_address(local_server: LocalServer) -> None:
    async with pbx(local_server, "by address") as asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you.", firstSpeaker="user")
        await local_server.client.number("700", agent_id, sipPort=asterisk.port)
        since = local_server.log.mark()
        await asterisk.cli("channel originate Local/700@phones extension talk@tests")
        call_id = await local_server.answered(since)
        await until(lambda: recorded_bytes(local_server, call_id) > 1.2 * 16000 * 4)
        await asterisk.cli("channel request hangup all")
        call = await local_server.ended(call_id)
        assert (call["status"], call["endedReason"], call["direction"]) == ("completed", "customer_ended", "inbound")
        rate, sides = read_wav(await local_server.client.recording(call_id))
        assert rate == 16000, "G.722 is what both prefer"
        assert audible(sides[:, 0], rate).mean() > 0.7
        spectrum = np.abs(np.fft.rfft(sides[rate // 2 : rate, 0].astype(float)))
        assert np.argmax(spectrum) * 2 == pytest.approx(1004, abs=6), "the tone of Milliwatt()"


async def test_dtmf_from_asterisk_is_a_turn(local_server: LocalServer) -> None:
    async with pbx(local_server, "by address") as asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you. END", allowEndCall=True)
        await local_server.client.number("701", agent_id, sipPort=asterisk.port)
        since = local_server.log.mark()
        await asterisk.cli("channel originate Local/701@phones extension keys@tests")
        call = await local_server.ended(await local_server.answered(since))
        assert without_times(call["transcript"])[0] == {"role": "user", "content": "4711"}


async def test_outbound_calls_end_with_the_reason_of_asterisks_response(local_server: LocalServer) -> None:
    async with pbx(local_server, "by address") as asterisk:
        number_id = await local_server.client.number("702", None, sipPort=asterisk.port)
        ends = await asyncio.gather(
            *(call_outcome(local_server, number_id, f"+410000{to}") for to in ("11", "21", "22", "23", "24"))
        )
        assert ends == [
            ("completed", "agent_ended"),
            ("failed", "busy"),
            ("no_answer", "no_answer"),
            ("failed", "rejected"),
            ("failed", "invalid_number"),
        ]


@pytest.mark.parametrize("to", ["100", "+41000011"])
async def test_an_extension_is_called_like_an_external_number(local_server: LocalServer, to: str) -> None:
    async with pbx(local_server, "by address") as asterisk:
        number_id = await local_server.client.number(f"7{len(to)}", None, sipPort=asterisk.port)
        call = await local_server.ended(await place_call(local_server, number_id, to))
        assert (call["status"], call["endedReason"], call["customerNumber"]) == ("completed", "agent_ended", to)


async def test_trunkline_registers_at_asterisk_for_calls_in_both_directions(local_server: LocalServer) -> None:
    async with pbx(local_server, "by registration") as asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
        since = local_server.log.mark()
        number_id = await local_server.client.number(
            "703", agent_id, sipMode="registration", sipUsername="trunkline-reg", sipPassword="a-long-password",
            sipProxy=f"127.0.0.1:{asterisk.port}",
        )  # fmt: skip
        await local_server.log.event("trunk.registered", since=since)
        assert (await local_server.client.v1("GET", f"phone-numbers/{number_id}"))["sipStatus"] == "registered"
        assert "trunkline-reg/sip:" in await asterisk.cli("pjsip show contacts")
        await asterisk.cli("channel originate Local/700@phones extension talk@tests")
        call = await local_server.ended(await local_server.answered(since))
        assert (call["phoneNumberId"], call["endedReason"]) == (number_id, "agent_ended")
        assert await call_outcome(local_server, number_id, "+41000011") == ("completed", "agent_ended"), "after a 401"
        await local_server.client.v1("DELETE", f"phone-numbers/{number_id}")
        await local_server.log.event("trunk.unregistered", since=since)
        assert "trunkline-reg/sip" not in await asterisk.cli("pjsip show contacts")


async def test_calls_over_tls_are_encrypted_in_both_directions(local_server: LocalServer, authority: Authority) -> None:
    asterisk = pbx(local_server, "encrypted", "by address")
    copy_certificate(authority.files("127.0.0.1", file="asterisk"), asterisk)
    async with asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you.", firstSpeaker="user")
        trunk = {"sipPort": asterisk.port, "sipProtocol": "tls"}
        number_id = await local_server.client.number("704", agent_id, **trunk)
        since = local_server.log.mark()
        await asterisk.cli("channel originate Local/704@phones extension talk@tests")
        call_id = await local_server.answered(since)
        await until(lambda: recorded_bytes(local_server, call_id) > 1.2 * 16000 * 4)
        assert "SAVP" in await sdp_of(local_server, call_id)
        await asterisk.cli("channel request hangup all")
        await local_server.ended(call_id)
        rate, sides = read_wav(await local_server.client.recording(call_id))
        heard = audible(sides[:, 0], rate)
        assert heard.any() and heard[heard.argmax() :].mean() > 0.7, "what Asterisk plays, from where it begins"
        assert await call_outcome(local_server, number_id, "+41000011") == ("completed", "agent_ended")


async def sdp_of(local_server: LocalServer, call_id: str) -> str:
    """The SDP of both sides of a call."""
    return "\n".join(each["text"] for each in (await local_server.client.v1("GET", f"calls/{call_id}/sip"))["messages"])
