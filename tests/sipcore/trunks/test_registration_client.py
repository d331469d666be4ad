"""Registering with registrars that respond oddly, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security import source_guard
from sipcore.security.digest import Credentials, DigestVerifier, digest_parameters
from sipcore.settings import EndpointSettings
from sipcore.trunks import registration, registration_client
from sipcore.trunks.trunk import Trunk, TrunkStatus
from tests.log_capture import capture_events
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message
from tests.sipcore.raw.raw_registrar import (
    RawRegistrar,
    accept_contacts,
    challenge,
    challenge_with,
    credentials,
    is_authenticated,
    respond_with,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)
NUMBER = "+49401234"


def trunk_at(registrar: RawRegistrar, **changes: Any) -> Trunk:
    """A trunk that registers at this port as ann, with a password."""
    trunk = Trunk(
        key="first", host=registrar.host, port=registrar.port, transport="udp", outbound_proxy=None, user="ann",
        credentials=Credentials("ann", "s3cret"), registers=True, follow_redirects=False, accept_refer=False,
        qualify_s=0, number=NUMBER,
    )  # fmt: skip
    return replace(trunk, **changes)


class TrunkWatcher:
    """An endpoint's trunks; `until` waits for a status."""

    def __init__(self, phone: Phone) -> None:
        self.endpoint = phone.endpoint
        self.seen: list[tuple[str, TrunkStatus]] = []
        self._news = asyncio.Event()
        phone.endpoint.on_trunk_status = self._take

    def _take(self, key: str, status: TrunkStatus) -> None:
        self.seen.append((key, status))
        self._news.set()

    async def until(self, state: str, key: str = "first") -> TrunkStatus:
        """Wait until the trunk is in that state."""
        async with asyncio.timeout(8):
            while self.endpoint.trunk_status(key).state != state:
                self._news.clear()
                await self._news.wait()
        return self.endpoint.trunk_status(key)


@pytest_asyncio.fixture(loop_scope="module")
async def watch(phone: Phone) -> AsyncIterator[TrunkWatcher]:
    """The module's endpoint, without trunks before and after."""
    watch = TrunkWatcher(phone)
    yield watch
    await phone.endpoint.set_trunks([])


async def test_a_trunk_registers_its_number_as_its_user(watch: TrunkWatcher, phone: Phone) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        request = await registrar.next_request()
        assert request.first_line == f"REGISTER sip:127.0.0.1:{registrar.port} SIP/2.0"
        assert request.header("To") == "<sip:ann@127.0.0.1>"
        assert request.header("From").startswith("<sip:ann@127.0.0.1>;tag=")
        assert request.header("Contact") == f"<sip:{NUMBER}@127.0.0.1:{phone.settings.port}>"
        assert request.header("Expires") == str(registration.EXPIRES_S)
        status = await watch.until("registered")
        assert str(status.detail).startswith("registered until ") and str(status.detail).endswith("Z at 127.0.0.1")


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
@pytest.mark.parametrize("status", ["401 Unauthorized", "407 Proxy Authentication Required"])
async def test_a_challenge_is_answered(watch: TrunkWatcher, algorithm: str, status: str) -> None:
    async with RawRegistrar(challenge_with("n1", algorithm=algorithm, status=status), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        first, second = await registrar.next_request(), await registrar.next_request()
        assert not credentials(first)
        assert is_authenticated(second, "ann", "s3cret")
        assert credentials(second)["algorithm"] == algorithm
        assert _cseq(second) == _cseq(first) + 1
        await watch.until("registered")


async def test_authentication_user_may_differ_from_the_registered_user(watch: TrunkWatcher) -> None:
    async with RawRegistrar(challenge_with("n1"), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar, credentials=Credentials("line7@example.net", "s3cret"))])
        await registrar.next_request()
        request = await registrar.next_request()
        assert is_authenticated(request, "line7@example.net", "s3cret")
        assert request.header("To") == "<sip:ann@127.0.0.1>"


async def test_first_supported_challenge_is_answered(watch: TrunkWatcher) -> None:
    asked = (challenge("a", algorithm="SHA-512-256-sess"), challenge("b", algorithm="SHA-256"), challenge("c"))
    async with RawRegistrar(respond_with("401 Unauthorized", *asked), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await registrar.next_request()
        request = await registrar.next_request()
        assert (credentials(request)["nonce"], credentials(request)["algorithm"]) == ("b", "SHA-256")
        assert is_authenticated(request, "ann", "s3cret")
        assert len(request.headers("Authorization")) == 1


@pytest.mark.parametrize("status", ["401 Unauthorized", "407 Proxy Authentication Required"])
async def test_reflected_challenge_is_not_answered(watch: TrunkWatcher, status: str) -> None:
    [(_, ours)] = DigestVerifier(["MD5"]).challenge("127.0.0.1", 0)
    nonce = digest_parameters(ours)["nonce"]  # type: ignore[index]
    before = source_guard.drop_counts()["own_challenge"]
    async with RawRegistrar(challenge_with(nonce, status=status), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("failed")
        assert not credentials(await registrar.next_request())
        assert registrar.got.empty()
        assert source_guard.drop_counts()["own_challenge"] == before + 1
        both = respond_with(f"401 Unauthorized\n{challenge(nonce)}\n{challenge('theirs')}")
        registrar.set_answers(both, accept_contacts())
        await watch.endpoint.set_trunks([])
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("registered")
        await registrar.next_request()
        assert credentials(await registrar.next_request())["nonce"] == "theirs"


async def test_a_stale_nonce_is_replaced_at_once(watch: TrunkWatcher) -> None:
    async with RawRegistrar(challenge_with("n1"), challenge_with("n2", stale=True), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        nonces = [credentials(await registrar.next_request()).get("nonce") for _ in range(3)]
        assert nonces == [None, "n1", "n2"]
        await watch.until("registered")


async def test_always_stale_nonce_is_retried_a_bounded_number_of_times(watch: TrunkWatcher) -> None:
    async with RawRegistrar(challenge_with("n1", stale=True)) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("failed")
        assert registrar.got.qsize() <= 4


async def test_wrong_password_is_sent_once(watch: TrunkWatcher) -> None:
    async with RawRegistrar(
        challenge_with("n1"), challenge_with("n2"), challenge_with("n3"), accept_contacts()
    ) as registrar:
        with capture_logs() as logs:
            await watch.endpoint.set_trunks([trunk_at(registrar)])
            status = await watch.until("failed")
        assert status.detail == "401 Unauthorized from 127.0.0.1: the user name or the password is wrong"
        assert registrar.got.qsize() == 2
        [logged] = [each for each in logs if each["event"] == "trunk.failed"]
        assert logged["log_level"] == "warning" and logged["why"] == status.detail
        assert "s3cret" not in str(logs)


async def test_challenge_of_an_unknown_scheme_is_reported(watch: TrunkWatcher) -> None:
    async with RawRegistrar(challenge_with("n1", algorithm="AKAv1-MD5")) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        status = await watch.until("failed")
        assert str(status.detail).endswith("it asks for a kind of authentication that is not supported")


async def test_423_raises_the_requested_expiry(watch: TrunkWatcher) -> None:
    async with RawRegistrar(respond_with("423 Interval Too Brief", "Min-Expires: 600"), accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        first, second = await registrar.next_request(), await registrar.next_request()
        assert (first.header("Expires"), second.header("Expires")) == (str(registration.EXPIRES_S), "600")
        assert first.header("Call-ID") == second.header("Call-ID")
        assert _cseq(second) > _cseq(first)
        await watch.until("registered")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (respond_with("403 Forbidden"), "403 Forbidden from 127.0.0.1"),
        (respond_with("503 Service Unavailable", "Retry-After: 60"), "503 Service Unavailable from 127.0.0.1"),
        (respond_with("500 Oh\x07no"), "500 Ohno from 127.0.0.1"),
        (respond_with("302 Moved", "Contact: <sip:elsewhere.example.net>"), "302 Moved from 127.0.0.1"),
        (accept_contacts(0), "200 OK from 127.0.0.1, but it has not kept the registration"),
    ],
)
async def test_refusal_is_reported_with_status_and_reason(watch: TrunkWatcher, answer: Any, detail: str) -> None:
    async with RawRegistrar(answer) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        assert (await watch.until("failed")).detail == detail
        assert registrar.got.qsize() == 1


async def test_expiry_of_our_own_contact_counts(watch: TrunkWatcher) -> None:
    def answer(request: Message) -> str:
        others = "Contact: <sip:desk@192.0.2.9>;expires=7"
        return "\n".join(("200 OK", others, f"{request.headers('Contact')[0]};expires=2", "Expires: 3600"))

    async with RawRegistrar(answer) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        first = await registrar.next_request()
        again = await registrar.next_request()
        assert first.header("Call-ID") == again.header("Call-ID")
        assert again.header("Contact") == first.header("Contact")
        await watch.until("registered")


async def test_200_without_our_contact_is_a_failure(watch: TrunkWatcher) -> None:
    async with RawRegistrar(
        respond_with("200 OK", "Contact: <sip:a@192.0.2.8>;expires=60", "Contact: <sip:b@192.0.2.9>;expires=60")
    ) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        assert "has not kept" in str((await watch.until("failed")).detail)


async def test_expires_header_applies_to_a_contact_without_expires(watch: TrunkWatcher) -> None:
    def answer(request: Message) -> str:
        return "\n".join(("200 OK", request.headers("Contact")[0], "Expires: 2"))

    async with RawRegistrar(answer) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await registrar.next_request()
        await registrar.next_request()


async def test_removed_trunk_unregisters_with_its_password(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("registered")
        bound = await registrar.next_request()
        registrar.set_answers(challenge_with("n9"), accept_contacts())
        await watch.endpoint.set_trunks([])
        first, second = await registrar.next_request(), await registrar.next_request()
        assert {first.header("Expires"), second.header("Expires")} == {"0"}
        assert is_authenticated(second, "ann", "s3cret")
        assert {each.header("Contact") for each in (bound, first, second)} == {bound.header("Contact")}
        assert _cseq(bound) < _cseq(first) < _cseq(second)


@pytest.mark.parametrize(
    ("answer", "logged"),
    [
        (accept_contacts(), ("info", "trunk.unregistered", None)),
        (respond_with("500 Oops"), ("warning", "trunk.not_unregistered", "500 Oops from 127.0.0.1")),
    ],
)
async def test_result_of_unregistering_is_logged(
    watch: TrunkWatcher, answer: Any, logged: tuple[str, str, str | None]
) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("registered")
        registrar.set_answers(answer)
        with capture_events("trunk.") as logged_events:
            await watch.endpoint.set_trunks([])
            events = [await asyncio.wait_for(logged_events.get(), 8) for _ in range(2)]
        assert [each["event"] for each in events] == ["trunk.removed", logged[1]]
        assert (events[1]["level"], events[1].get("why"), events[1]["number"]) == (logged[0], logged[2], NUMBER)


async def test_changed_password_registers_again_in_the_same_cseq_series(watch: TrunkWatcher) -> None:
    """The same contact with the same registrar: it orders requests by CSeq, so they are one series."""
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("registered")
        before = await registrar.next_request()
        await watch.endpoint.set_trunks([trunk_at(registrar, credentials=Credentials("ann", "other"))])
        left, new = sorted([await registrar.next_request(), await registrar.next_request()], key=_cseq)
        assert (left.header("Expires"), new.header("Expires")) == ("0", str(registration.EXPIRES_S))
        assert {each.header("Call-ID") for each in (before, left, new)} == {before.header("Call-ID")}
        await watch.until("registered")


async def test_the_same_trunks_again_change_nothing(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await watch.until("registered")
        await registrar.next_request()
        other = trunk_at(registrar, key="second", user="bob")
        await watch.endpoint.set_trunks([trunk_at(registrar), other])
        assert (await registrar.next_request()).header("To") == "<sip:bob@127.0.0.1>"
        await watch.endpoint.set_trunks([other, trunk_at(registrar)])
        await watch.until("registered", "second")
        assert registrar.got.empty()


async def test_registrar_without_a_response_is_reported_and_the_next_target_tried(
    watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RESPONSE_TIMEOUT_S", 0.3)
    async with (
        RawRegistrar(respond_with("")) as deaf,
        RawRegistrar(accept_contacts(), host="127.0.0.2", port=deaf.port) as other,
    ):
        place = SipHostPort("Registrar.example.net", deaf.port, "udp")
        targets = [SipTarget(each.host, each.port, "udp") for each in (deaf, other)]
        watch.endpoint.set_host_table({place: targets[:1]})
        await watch.endpoint.set_trunks([trunk_at(deaf, host="registrar.example.net")])
        assert (await watch.until("failed")).detail == "no answer from 127.0.0.1"
        await watch.endpoint.set_trunks([])
        watch.endpoint.set_host_table({place: targets})
        await watch.endpoint.set_trunks([trunk_at(deaf, host="registrar.example.net")])
        status = await watch.until("registered")
        assert str(status.detail).endswith(" at 127.0.0.2")
        request = await other.next_request()
        assert request.first_line == f"REGISTER sip:registrar.example.net:{deaf.port} SIP/2.0"
        assert request.header("To") == "<sip:ann@registrar.example.net>"
        assert not request.header("Route")
        assert "failed" not in [status.state for _, status in watch.seen[-1:]]


async def test_host_that_resolves_is_registered_with_at_once(
    watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "LOOKUP_TIMEOUT_S", 0)
    async with RawRegistrar(accept_contacts()) as registrar:
        watch.endpoint.set_host_table({})
        await watch.endpoint.set_trunks([trunk_at(registrar, host="registrar.example.net", port=None)])
        assert (await watch.until("failed")).detail == "the host name is unknown"
        place = SipHostPort("registrar.example.net", None, "udp")
        watch.endpoint.set_host_table({place: [SipTarget("127.0.0.1", registrar.port, "udp")]})
        await watch.until("registered")
        assert (await registrar.next_request()).first_line == "REGISTER sip:registrar.example.net SIP/2.0"


async def test_register_is_sent_to_the_outbound_proxy(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts()) as proxy:
        trunk = trunk_at(proxy, host="192.0.2.1", port=5060, outbound_proxy=SipHostPort(proxy.host, proxy.port, "udp"))
        await watch.endpoint.set_trunks([trunk])
        request = await proxy.next_request()
        assert request.first_line == "REGISTER sip:192.0.2.1:5060 SIP/2.0"
        assert request.header("Route") == f"<sip:127.0.0.1:{proxy.port};lr>"
        await watch.until("registered")


async def test_outbound_proxy_name_is_resolved_by_the_host_table(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts()) as proxy:
        place = SipHostPort("edge.example.net", None, "udp")
        watch.endpoint.set_host_table({place: [SipTarget(proxy.host, proxy.port, "udp")]})
        await watch.endpoint.set_trunks([trunk_at(proxy, host="pbx.example.net", port=None, outbound_proxy=place)])
        request = await proxy.next_request()
        assert request.first_line == "REGISTER sip:pbx.example.net SIP/2.0"
        assert request.headers("Route") == ["Route: <sip:edge.example.net;lr>"]


async def test_registration_over_tcp_has_the_listening_port_and_recovers_a_lost_connection(
    watch: TrunkWatcher, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_S", 0.2)
    contact = f"Contact: <sip:{NUMBER}@127.0.0.1:{phone.settings.port};transport=TCP>"
    async with RawRegistrar(accept_contacts(), tcp=True) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar, transport="tcp")])
        request = await registrar.next_request()
        assert request.first_line == f"REGISTER sip:127.0.0.1:{registrar.port};transport=tcp SIP/2.0"
        assert request.headers("Contact") == [contact]
        await watch.until("registered")
        registrar.hang_up()
        again = await registrar.next_request()
        assert again.header("Call-ID") == request.header("Call-ID")
        assert again.headers("Contact") == [contact]


async def test_refused_connection_is_reported(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts(), tcp=True) as registrar:
        pass
    await watch.endpoint.set_trunks([trunk_at(registrar, transport="tcp")])
    detail = "no connection to 127.0.0.1"
    assert (await watch.until("failed")).detail in (detail, f"{detail}: nothing listens there")


async def test_registered_trunks_send_nat_keep_alives(watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_client, "KEEP_ALIVE_S", 0.1)
    async with RawRegistrar(accept_contacts()) as registrar:
        await watch.endpoint.set_trunks([trunk_at(registrar)])
        await registrar.next_request()
        assert (await registrar.next_request()).text == ""


async def test_registers_of_many_trunks_are_rate_limited(watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_client, "REGISTERS_PER_SECOND", 100)
    loop = asyncio.get_running_loop()
    async with RawRegistrar(accept_contacts()) as registrar:
        began_s = loop.time()
        trunks = [trunk_at(registrar, key=str(each), user=f"u{each}", number=str(1000 + each)) for each in range(60)]
        await watch.endpoint.set_trunks(trunks)
        for _ in trunks:
            await registrar.next_request()
        assert loop.time() - began_s > 0.55
        assert len({watch.endpoint.trunk_status(trunk.key).state for trunk in trunks} - {"registering"}) <= 1


async def _taken_over(watch: TrunkWatcher, registrar: RawRegistrar, count: int) -> list[Trunk]:
    """Trunks that another node has registered so far."""
    trunks = [trunk_at(registrar, key=str(each), user=f"u{each}", number=str(1000 + each)) for each in range(count)]
    await watch.endpoint.set_trunks([replace(each, registers_here=False) for each in trunks])
    await watch.endpoint.set_trunks(trunks)
    return trunks


async def test_trunks_of_another_node_are_taken_over_faster(
    watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_client, "REGISTERS_PER_SECOND", 1)
    loop = asyncio.get_running_loop()
    async with RawRegistrar(accept_contacts()) as registrar:
        began_s = loop.time()
        for _ in await _taken_over(watch, registrar, 40):
            await registrar.next_request()
        assert 40 / registration_client.TAKEN_OVER_PER_SECOND - 0.05 < loop.time() - began_s < 5


async def test_a_registrar_that_does_not_keep_up_gets_fewer_registers(
    watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_client, "REGISTERS_PER_SECOND", 10)
    monkeypatch.setattr(registration_client, "MAX_UNANSWERED", 9)
    async with RawRegistrar(lambda _: "") as registrar:
        await _taken_over(watch, registrar, 20)
        callers = set[str]()
        async with asyncio.timeout(10):
            while len(callers) < 10:
                callers.add((await registrar.got.get()).header("Call-ID"))
        await asyncio.sleep(0.4)
        while not registrar.got.empty():
            callers.add(registrar.got.get_nowait().header("Call-ID"))
        assert 11 <= len(callers) <= 16, "without the limit 80 would have been sent in 0.4 s"


@pytest.mark.parametrize("for_all", [True, False])
async def test_a_registrar_out_of_reach_is_reported_after_three_tries(
    watch: TrunkWatcher, monkeypatch: pytest.MonkeyPatch, for_all: bool
) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_S", 0.2)
    monkeypatch.setattr(registration, "RESPONSE_TIMEOUT_S", 0.2)
    reports: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    watch.endpoint.on_registrar_unreached = lambda key, each: reports.put_nowait((key, each))
    accepted = accept_contacts()
    async with RawRegistrar(lambda request: "" if "ann" in request.header("To") else accepted(request)) as registrar:
        first, other = trunk_at(registrar), trunk_at(registrar, key="second", user="bob", number="+49401235")
        await watch.endpoint.set_trunks([first])
        await watch.until("failed")
        await watch.endpoint.set_trunks([first] if for_all else [first, other])
        key, found = await asyncio.wait_for(reports.get(), 5)
    assert key == "first" and found is for_all
    watch.endpoint.on_registrar_unreached = None


def _cseq(message: Message) -> int:
    return int(message.header("CSeq").split()[0])
