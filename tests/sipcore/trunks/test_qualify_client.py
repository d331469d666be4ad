"""OPTIONS to trunks without a registration, and the trunks' status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from config.clock import utc_now
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks import qualify
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, Trunk
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"MAX_FIRST_DELAY_S": 0.05, "RESPONSE_TIMEOUT_S": 0.3, "RETRY_S": 0.05}.items():
        monkeypatch.setattr(qualify, name, seconds)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw
    await phone.endpoint.set_trunks([])
    phone.endpoint.set_host_table({})


def trunk(key: str, host: str, port: int | None, **more: object) -> Trunk:
    made = Trunk(
        key=key, host=host, port=port, transport="udp", outbound_proxy=None, user="100", credentials=None,
        registers=False, follow_redirects=False, accept_refer=False, qualify_s=1,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def accept(raw: RawPhone, request: Message, status: str = "200 OK") -> None:
    lines = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in request.headers(name)]
    to = f"To: {request.header('To')};tag=x"
    raw.send("\r\n".join([f"SIP/2.0 {status}", *lines, to, "Content-Length: 0", "", ""]).encode())


async def next_options(raw: RawPhone) -> Message:
    while not (message := await raw.next_message()).first_line.startswith("OPTIONS"):
        pass
    return message


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - only a change of state is reported, not one of the detail
            await asyncio.sleep(0.005)


async def test_peer_that_responds_is_reachable(phone: Phone, raw: RawPhone) -> None:
    await phone.endpoint.set_trunks([trunk("a", raw.host, raw.sip.port)])
    assert phone.endpoint.trunk_status("a").state == "listening"
    assert phone.endpoint.trunk_status("a").since is None
    request = await next_options(raw)
    assert request.first_line == f"OPTIONS sip:{raw.host}:{raw.sip.port} SIP/2.0"
    assert request.header("Contact").startswith("<sip:trunkline@127.0.0.1:")
    accept(raw, request, "404 Not Found")
    await until(lambda: (phone.endpoint.trunk_status("a").detail or "").startswith("answers OPTIONS in "))
    accept(raw, await next_options(raw))


async def test_peer_that_does_not_respond_fails_and_recovers(phone: Phone, raw: RawPhone) -> None:
    statuses: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    phone.endpoint.on_trunk_status = lambda key, status: statuses.put_nowait((key, status.state))
    with capture_logs() as logs:
        await phone.endpoint.set_trunks([trunk("a", raw.host, raw.sip.port), trunk("b", raw.host, raw.sip.port)])
        changes = {await asyncio.wait_for(statuses.get(), 10) for _ in range(2)}
    assert changes == {("a", "failed"), ("b", "failed")}
    assert [(line["event"], line["trunks"]) for line in logs] == [("trunk.unreachable", 2)]
    status = phone.endpoint.trunk_status("a")
    assert status.state == "failed"
    assert status.since is not None and abs((utc_now() - status.since).total_seconds()) < 10
    assert (status.detail or "").startswith("no answer to OPTIONS since ")
    assert (status.detail or "").endswith(" set sipQualifySeconds to 0")
    questions = set()
    while statuses.empty():
        request = await next_options(raw)
        questions.add(request.header("Call-ID"))
        accept(raw, request)
    assert {await statuses.get(), await asyncio.wait_for(statuses.get(), 5)} == {("a", "listening"), ("b", "listening")}
    phone.endpoint.on_trunk_status = None


async def test_trunks_with_one_host_share_one_options_series(phone: Phone, raw: RawPhone) -> None:
    await phone.endpoint.set_trunks([trunk(f"t{number}", raw.host, raw.sip.port) for number in range(20)])
    accept(raw, await next_options(raw))
    await until(lambda: phone.endpoint.trunk_status("t19").detail != NO_ANSWER_YET)
    assert raw.sip.received.empty()
    assert len({phone.endpoint.trunk_status(f"t{number}") for number in range(20)}) == 1


async def test_trunk_that_registers_or_has_qualify_off_gets_no_options(phone: Phone, raw: RawPhone) -> None:
    await phone.endpoint.set_trunks([trunk("quiet", raw.host, raw.sip.port, qualify_s=0)])
    async with RawPhone(phone.target) as other:
        await phone.endpoint.set_trunks(
            [trunk("quiet", raw.host, raw.sip.port, qualify_s=0), trunk("b", other.host, other.sip.port)]
        )
        accept(other, await next_options(other))
        await until(lambda: phone.endpoint.trunk_status("b").detail != NO_ANSWER_YET)
        accept(other, await next_options(other))
    assert raw.sip.received.empty()
    assert phone.endpoint.trunk_status("quiet").detail == NEVER_QUALIFIED


async def test_removed_trunk_gets_no_options_and_others_continue(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target) as other:
        both = [trunk("a", raw.host, raw.sip.port), trunk("b", other.host, other.sip.port)]
        await phone.endpoint.set_trunks(both)
        accept(raw, await next_options(raw))
        accept(other, await next_options(other))
        await until(lambda: phone.endpoint.trunk_status("b").detail != NO_ANSWER_YET)
        kept = phone.endpoint.trunk_status("b")
        await phone.endpoint.set_trunks(both[1:])
        assert phone.endpoint.trunk_status("b") == kept
        assert phone.endpoint.trunk_status("a").state == "unregistered"
        for _ in range(2):
            accept(other, await next_options(other))
    assert raw.sip.received.empty()


async def test_host_that_resolves_late_gets_options_at_once(
    phone: Phone, raw: RawPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qualify, "RETRY_S", 3600)
    await phone.endpoint.set_trunks([trunk("a", "pbx.example", None, qualify_s=3600)])
    asked_for = phone.endpoint._qualify_client
    assert asked_for is not None
    await until(lambda: any(each.unresolved for each in asked_for._hosts.values()))
    phone.endpoint.set_host_table({SipHostPort("pbx.example", None, "udp"): [SipTarget(raw.host, raw.sip.port, "udp")]})
    accept(raw, await next_options(raw))
    await until(lambda: (phone.endpoint.trunk_status("a").detail or "").startswith("answers OPTIONS in "))


async def test_next_address_is_used_when_one_does_not_respond(phone: Phone, raw: RawPhone) -> None:
    place = SipHostPort("pbx.example", None, "udp")
    dead, alive = SipTarget("127.0.0.1", free_port(), "udp"), SipTarget(raw.host, raw.sip.port, "udp")
    phone.endpoint.set_host_table({place: [dead, alive]})
    silent: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def demote(host: str, address: str) -> None:
        silent.put_nowait((host, address))
        phone.endpoint.set_host_table({place: [alive, dead]})

    phone.endpoint.on_unresponsive = demote
    await phone.endpoint.set_trunks([trunk("a", "pbx.example", None)])
    request = await next_options(raw)
    assert request.first_line == "OPTIONS sip:pbx.example SIP/2.0"
    accept(raw, request)
    await until(lambda: phone.endpoint.trunk_status("a").detail != NO_ANSWER_YET)
    assert silent.get_nowait() == ("pbx.example", "127.0.0.1")
    phone.endpoint.on_unresponsive = None


async def test_unresolved_host_and_closed_port_fail(phone: Phone, raw: RawPhone) -> None:
    closed = free_port()
    await phone.endpoint.set_trunks(
        [trunk("name", "nowhere.example", None), trunk("port", "127.0.0.1", closed, transport="tcp")]
    )
    await until(lambda: {phone.endpoint.trunk_status(key).state for key in ("name", "port")} == {"failed"})
    assert (phone.endpoint.trunk_status("name").detail or "").startswith("the host name is unknown since ")
    assert (phone.endpoint.trunk_status("port").detail or "").startswith("no connection to 127.0.0.1 since ")
