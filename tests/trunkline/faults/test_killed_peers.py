"""A connected transfer whose server or peer is killed: Asterisk, baresip and phones. The other leg ends within 5 s, or,
if the peer only goes silent, within the RTP timeout and 5 s; nothing is left of either."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sipcore.settings import TlsFiles
from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.baresip import Baresip
from tests.peers.certificate_authority import Authority
from tests.peers.ports import RTP_PORTS, free_port
from tests.peers.process import Process
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_rtcp_phone import RtcpPhone
from tests.sipcore.raw.raw_stream_phone import StreamPhone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.faults.dialog_recovery import bye, entries, restart
from tests.trunkline.server_process import Server, until
from tests.trunkline.sip_phone import PhoneCall, calling, known

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
RTP_TIMEOUT_S = 3
MARGIN_S = 5
PJSIP_CONF = """
[transport]
type=transport
protocol=udp
bind=127.0.0.1:{port}

[trunkline]
type=endpoint
context=from-trunkline
disallow=all
allow=ulaw
aors=trunkline

[trunkline]
type=aor
contact=sip:{server}

[trunkline]
type=identify
endpoint=trunkline
match=127.0.0.1
"""
EXTENSIONS_CONF = """
[phones]
exten => 700,1,Dial(PJSIP/700@trunkline,45)

[tests]
exten => talk,1,Answer()
same => n,Milliwatt()

[from-trunkline]
exten => 555,1,Goto(tests,talk,1)
"""


class Office:
    """A server with a client of its API."""

    def __init__(self, server: Server, client: Client, peer_files: TlsFiles | None = None) -> None:
        """`peer_files`: certificates that the server trusts."""
        self.server = server
        self.client = client
        self.peer_files = peer_files

    async def number(self, number: str, target_port: int, method: str = "bridge", protocol: str = "udp") -> None:
        """Create a number whose agent has a target for transfers at that port."""
        target = {"name": "Support", "description": "Faults", "number": "555", "mode": "cold"}
        agent_id = await self.client.agent(customerSilenceMs=0, holdMessage="One moment.", transferTargets=[target])
        await self.client.number(number, agent_id, sipPort=target_port, sipTransferMethod=method, sipProtocol=protocol)
        await known(self.server.target)

    async def transfer(self, since: int) -> tuple[str, str]:
        """Transfer the call that was answered since that log position; returns its id and that of the second leg, which
        is being called."""
        call_id = (await self.server.event("call.answered", since=since))["call_id"]
        started = await self.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Support"})
        return call_id, started["id"]

    async def outcome(self, call_id: str) -> tuple[str, str]:
        """Status and ended reason of a call, once its end is stored."""
        await self.server.event("call.ended", call_id=call_id)
        call = await self.client.call(call_id)
        return call["status"], call["endedReason"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """The server of this module, which tests kill and start again."""
    server = Server(tmp_path_factory.mktemp("server"), sip={"rtp_timeout_s": RTP_TIMEOUT_S})
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        await client.number("100", None)
        await known(server.target)
        yield Office(server, client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient_office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """A server with the default RTP timeout, which no test waits for, and with TLS."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    files = authority.files("127.0.0.1")
    sip = {
        "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(authority.root), "srtp": "optional",
    }  # fmt: skip
    server = Server(tmp_path_factory.mktemp("patient"), sip=sip)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        await client.number("100", None)
        await known(server.target)
        yield Office(server, client, authority.files("127.0.0.1", file="peer"))


@pytest_asyncio.fixture(loop_scope="module")
async def office(running_office: Office) -> Office:
    """The server, started again if a test has left it killed."""
    if not running_office.server.serves:
        await running_office.server.start()
    return running_office


def asterisk(office: Office) -> Asterisk:
    """Asterisk with the server as its trunk."""
    return Asterisk({"pjsip.conf": PJSIP_CONF, "extensions.conf": EXTENSIONS_CONF}, server=office.server.target)


async def channels(peer: Asterisk) -> str:
    """The last line of `core show channels`, as `0 active calls`."""
    return next(line for line in (await peer.cli("core show channels")).splitlines() if "active call" in line)


async def no_channel(peer: Asterisk) -> None:
    """Wait until Asterisk has no channel, a moment after its 200 to BYE."""
    async with asyncio.timeout(MARGIN_S):
        while True:
            if await channels(peer) == "0 active calls":
                return
            await asyncio.sleep(0.05)


# ---- the server is killed ----


@needs_root
async def test_no_channel_of_asterisk_outlives_a_killed_server(office: Office) -> None:
    server, since = office.server, office.server.log.mark()
    async with asterisk(office) as peer:
        await office.number("700", peer.port)
        await peer.cli("channel originate Local/700@phones extension talk@tests")
        call_id, _ = await office.transfer(since)
        await server.event("transfer.connected", call_id=call_id)
        await until(lambda: len(entries(server)) == 2)
        assert await channels(peer) == "3 active calls"
        await server.kill()
        since = server.log.mark()
        await restart(server)
        await server.log.events_of("dialog.ended", 2, since=since, request="BYE", status=200)
        await no_channel(peer)
        call = await office.client.call(call_id)
        assert (call["endedReason"], call["transferStatus"]) == ("server_restart", "completed")


async def test_a_call_of_baresip_does_not_outlive_a_killed_server(office: Office) -> None:
    server, since = office.server, office.server.log.mark()
    async with Baresip("PCMU/8000/1", user="555") as target:
        await office.number("701", target.port)
        async with calling(server.target, "701") as caller:
            call_id, _ = await office.transfer(since)
            await server.event("transfer.connected", call_id=call_id)
            await until(lambda: len(entries(server)) == 2)
            await server.kill()
            await restart(server, bye(caller.phone))
            await target.event("CALL_CLOSED")


# ---- the peer is killed ----

Kill = Callable[[], Awaitable[None]]


@dataclass
class Target:
    """A target that answers. `kill`: it is killed, or goes silent."""

    port: int
    kill: Kill
    protocol: str = "udp"
    margin_s: float = MARGIN_S


@asynccontextmanager
async def killed_asterisk(office: Office) -> AsyncIterator[Target]:
    async with asterisk(office) as peer:
        yield Target(peer.port, partial(kill, peer))


@asynccontextmanager
async def killed_baresip(_office: Office) -> AsyncIterator[Target]:
    async with Baresip("PCMU/8000/1", user="555") as peer:
        yield Target(peer.port, partial(kill, peer))


async def kill(peer: Process) -> None:
    peer.child.kill()
    await peer.child.wait()


@asynccontextmanager
async def answering(phone: RawPhone) -> AsyncIterator[Callable[[], Awaitable[ReceivedCall]]]:
    """Let the phone answer a call, which is returned."""
    async with phone, AsyncExitStack() as stack:
        answering = asyncio.create_task(RawCallee.wait_for_invite(phone))

        async def answered() -> ReceivedCall:
            return await stack.enter_async_context(ReceivedCall(await answering))

        call = asyncio.create_task(answered())
        try:
            yield lambda: call
        finally:
            call.cancel()
            await asyncio.wait((call,))


async def close(phone: RawPhone) -> None:
    """Close the phone's sockets, as the system does for a killed process: ICMP messages say so."""
    await phone.__aexit__()


@asynccontextmanager
async def closed_phone(office: Office) -> AsyncIterator[Target]:
    phone = RawPhone(office.server.target)
    async with answering(phone) as answered:

        async def vanish() -> None:
            await answered()
            await close(phone)

        yield Target(phone.sip.port, vanish)


@asynccontextmanager
async def closed_tcp_phone(office: Office, tls: TlsFiles | None = None) -> AsyncIterator[Target]:
    phone = StreamPhone(office.server.target, tls)
    async with answering(phone) as answered:

        async def vanish() -> None:
            await answered()
            await close(phone)

        yield Target(phone.sip.port, vanish, phone.via.lower())


@asynccontextmanager
async def closed_tls_phone(office: Office) -> AsyncIterator[Target]:
    async with closed_tcp_phone(office, office.peer_files) as target:
        yield target


@asynccontextmanager
async def killed_baresip_over_tls(office: Office) -> AsyncIterator[Target]:
    async with Baresip("PCMU/8000/1", user="555", encryption="srtp", tls=office.peer_files) as peer:
        yield Target(peer.port + 1, partial(kill, peer), "tls")


@asynccontextmanager
async def phone_closed_on_hold(office: Office) -> AsyncIterator[Target]:
    phone = RtcpPhone(office.server.target)
    async with answering(phone) as answered:

        async def vanish() -> None:
            call = await answered()
            phone.send_report()
            assert (await call.reinvite(call.offer("0", "sendonly"))).status == 200
            await close(phone)
            phone.rtcp.transport.close()

        yield Target(phone.sip.port, vanish)


KILLED = [
    pytest.param(killed_asterisk, marks=needs_root), killed_baresip, killed_baresip_over_tls, closed_phone,
    closed_tcp_phone, closed_tls_phone, phone_closed_on_hold,
]  # fmt: skip


@pytest.mark.parametrize("target", KILLED)
async def test_the_caller_does_not_outlive_a_killed_target(patient_office: Office, target: Any) -> None:
    await the_caller_does_not_outlive(patient_office, target, "702")


@asynccontextmanager
async def silent_phone(office: Office) -> AsyncIterator[Target]:
    """Its sockets stay open."""
    phone = RawPhone(office.server.target)
    async with answering(phone) as answered:

        async def vanish() -> None:
            await (await answered()).__aexit__()

        yield Target(phone.sip.port, vanish, margin_s=RTP_TIMEOUT_S + MARGIN_S)


async def test_the_caller_does_not_outlive_a_target_that_goes_silent(office: Office) -> None:
    await the_caller_does_not_outlive(office, silent_phone, "702")


async def the_caller_does_not_outlive(office: Office, opened: Any, number: str) -> None:
    server, since = office.server, office.server.log.mark()
    async with opened(office) as target:
        await office.number(number, target.port, protocol=target.protocol)
        async with calling(server.target, number) as caller:
            call_id, child_id = await office.transfer(since)
            await server.event("transfer.connected", call_id=call_id)
            await caller.hears(5)
            await target.kill()
            await caller.hung_up(target.margin_s)
        assert await office.outcome(call_id) == ("completed", "transferred")
        assert await office.outcome(child_id) == ("completed", "media_timeout")
        await until(lambda: not entries(server))


@pytest.mark.parametrize("tls", [False, True])
async def test_the_target_does_not_outlive_a_killed_caller(patient_office: Office, tls: bool) -> None:
    server = patient_office.server
    if not tls:
        await the_target_does_not_outlive(patient_office, RawPhone(server.target), close, MARGIN_S)
        return
    phone = StreamPhone(server.target, patient_office.peer_files)
    await the_target_does_not_outlive(patient_office, phone, close, MARGIN_S)


async def go_silent(phone: RawPhone) -> None:
    phone.rtp.transport.close()


async def test_the_target_does_not_outlive_a_caller_that_goes_silent(office: Office) -> None:
    await the_target_does_not_outlive(office, RawPhone(office.server.target), go_silent, RTP_TIMEOUT_S + MARGIN_S)


async def the_target_does_not_outlive(
    office: Office, phone: RawPhone, vanish: Callable[[RawPhone], Awaitable[None]], margin_s: float
) -> None:
    server, since = office.server, office.server.log.mark()
    async with RawPhone(server.target) as far:
        await office.number("703", far.sip.port)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(phone)
            if isinstance(phone, StreamPhone):
                await phone.connect(server.settings["sip"]["tls_port"])
            await stack.enter_async_context(PhoneCall(phone, "703"))
            call_id, child_id = await office.transfer(since)
            async with ReceivedCall(await RawCallee.wait_for_invite(far)) as target:
                await server.event("transfer.connected", call_id=call_id)
                await target.hears(5)
                await vanish(phone)
                await target.hung_up(margin_s)
        assert await office.outcome(call_id) == ("completed", "media_timeout")
        assert await office.outcome(child_id) == ("completed", "transferred")
        await until(lambda: not entries(server))


# ---- nothing is left ----


async def caller_hangs_up_while_it_rings(call: Leaving) -> None:
    callee = await call.ringing()
    await call.caller.hang_up()
    await callee.expect_cancel()


async def caller_hangs_up(call: Leaving) -> None:
    async with ReceivedCall(await call.ringing()) as target:
        await call.connected()
        await call.caller.hang_up()
        await target.hung_up()


async def target_hangs_up(call: Leaving) -> None:
    async with ReceivedCall(await call.ringing()) as target:
        await call.connected()
        await target.hang_up()
        await call.caller.hung_up()


async def target_is_busy(call: Leaving) -> None:
    (await call.ringing()).reject("486 Busy Here")
    await call.office.server.event("transfer.ended", call_id=call.id, status="busy")
    await call.caller.hang_up()


async def target_goes_silent(call: Leaving) -> None:
    async with ReceivedCall(await call.ringing()):
        await call.connected()
    await call.caller.hung_up(RTP_TIMEOUT_S + MARGIN_S)


async def peer_takes_a_refer(call: Leaving) -> None:
    phone = call.caller.phone
    phone.reply(await phone.next_request("REFER"), "202 Accepted")
    await call.caller.hang_up()


WAYS = (
    caller_hangs_up_while_it_rings, caller_hangs_up, target_hangs_up, target_is_busy, target_goes_silent,
    peer_takes_a_refer,
)  # fmt: skip


@dataclass
class Leaving:
    """A caller whose transfer has begun, and the target's phone."""

    office: Office
    caller: PhoneCall
    far: RawPhone
    id: str

    async def ringing(self) -> RawCallee:
        """Wait for the INVITE, and let the target ring."""
        callee = await RawCallee.wait_for_invite(self.far)
        callee.ring()
        return callee

    async def connected(self) -> None:
        """Wait until the two are connected."""
        await self.office.server.event("transfer.connected", call_id=self.id)


async def end_in(way: Callable[[Leaving], Awaitable[None]], office: Office, number: str) -> None:
    """A transfer that ends in this way."""
    server, since = office.server, office.server.log.mark()
    async with RawPhone(server.target) as far:
        await office.number(number, far.sip.port, "refer" if way is peer_takes_a_refer else "bridge")
        async with calling(server.target, number) as caller:
            call_id = (await server.event("call.incoming", since=since, number=number))["call_id"]
            await server.event("call.answered", call_id=call_id)
            await office.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Support"})
            await way(Leaving(office, caller, far, call_id))
            await server.event("call.ended", call_id=call_id)


async def end_in_every_way(office: Office) -> None:
    """A transfer for each way, at the same time."""
    await asyncio.gather(*(end_in(way, office, str(710 + at)) for at, way in enumerate(WAYS)))


def resources(server: Server) -> Counter[str]:
    """The kinds of the server's file descriptors, its RTP sockets, its threads, and the entries of its dialog
    journal."""
    proc, rtp = Path(f"/proc/{server.process.pid}"), rtp_inodes()
    found = Counter({"threads": len(os.listdir(proc / "task")), "dialogs": len(entries(server))})
    for name in os.listdir(proc / "fd"):
        with suppress(OSError):  # closed meanwhile
            kind, _, inode = os.readlink(proc / "fd" / name).rstrip("]").partition("[")
            found[kind] += 1
            found["rtp"] += inode in rtp
    return found


def rtp_inodes() -> set[str]:
    """The inodes of the sockets at RTP ports, of all processes."""
    fields = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    first, last = RTP_PORTS
    return {each[9] for each in fields if first <= int(each[1].partition(":")[2], 16) <= last}


async def until_no_more_than(server: Server, before: Counter[str]) -> None:
    """Wait until the server has no more resources than that."""
    with suppress(AssertionError):
        await until(lambda: resources(server) <= before)
    assert resources(server) - before == Counter()


async def all_ended(server: Server) -> None:
    """Wait until no dialog and no RTP socket is left."""
    await until(lambda: not (resources(server)["dialogs"] or resources(server)["rtp"]))


async def test_transfers_leave_no_socket_file_thread_or_journal_entry(office: Office) -> None:
    server = office.server
    await end_in_every_way(office)  # threads and connections are opened with the first calls
    await all_ended(server)
    before = resources(server)
    before["threads"] += 5  # pools grow to their sizes; fewer than there are transfers
    for _ in range(2):
        await end_in_every_way(office)
    await until_no_more_than(server, before)
    async with calling(server.target, "710") as caller:
        await until(lambda: resources(server)["dialogs"] and resources(server)["rtp"])
        await server.kill()
        await restart(server, bye(caller.phone))
    await end_in_every_way(office)
    await until_no_more_than(server, before)
