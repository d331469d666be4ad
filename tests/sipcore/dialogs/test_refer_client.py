"""Outbound REFER (RFC 3515): the peer of a call is referred to another target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
import pytest_asyncio

from sipcore.dialogs import refer_client
from sipcore.dialogs.leg import Leg, ReferTarget
from sipcore.dialogs.refer_client import ReferDomain, ReferResult
from sipcore.messages.masking import mask_message
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trace.sip_capture import DialogKey, DialogTrace
from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU", "PCMA"), max_calls=20)

DESK = ReferTarget("4930200")
DOMAIN = ReferDomain("pbx.example", Credentials("ann", "secret"))


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The peer that is referred."""
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def other(phone: Phone) -> AsyncIterator[RawPhone]:
    """The peer of another call."""
    async with RawPhone(phone.target) as other:
        yield other


class ReferredCall:
    """A call whose peer is sent a REFER."""

    def __init__(self, call: LiveCall) -> None:
        self.call = call
        self.leg = call.leg
        self.raw = call.raw
        self.request: Message

    @classmethod
    async def make(cls, phone: Phone, raw: RawPhone) -> ReferredCall:
        """Establish the call."""
        return cls(await LiveCall.make(phone, raw))

    async def send(self, target: ReferTarget = DESK, timeout_s: float = 5) -> asyncio.Task[ReferResult]:
        """Send REFER; returns its result. The request is `request`."""
        task = asyncio.create_task(self.leg.refer(target, timeout_s))
        self.request = await self.raw.next_request("REFER")
        return task

    async def accepted(self, target: ReferTarget = DESK, timeout_s: float = 5) -> asyncio.Task[ReferResult]:
        """Send REFER, which is accepted."""
        task = await self.send(target, timeout_s)
        self.respond("202 Accepted")
        return task

    def respond(self, status: str, *headers: str) -> None:
        """Respond to the REFER."""
        self.raw.reply(self.request, status, *headers)

    @property
    def cseq(self) -> str:
        """The CSeq number of the REFER."""
        return self.request.header("CSeq").split()[0]

    def send_notify(
        self,
        body: str | bytes,
        state: str = "active;expires=60",
        *,
        event: str = "refer",
        content_type: str = "message/sipfrag;version=2.0",
    ) -> None:
        """Send NOTIFY."""
        self.call.dialog.cseq += 1
        data = body.encode() if isinstance(body, str) else body
        headers = [f"Event: {event}", f"Subscription-State: {state}"]
        headers += [f"Content-Type: {content_type}"] if data else []
        head = self.raw.request("NOTIFY", self.call.dialog, headers=tuple(headers))
        self.raw.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(data)) + data)

    async def notify(self, body: str | bytes, state: str = "active;expires=60", **more: str) -> int:
        """Send NOTIFY; returns the status of its response."""
        self.send_notify(body, state, **more)
        return (await self.raw.final_response("NOTIFY")).status

    async def assert_unaffected(self) -> None:
        """The call goes on with audio in both directions, and the peer ends it."""
        await assert_audio_flows(self.call.phone, self.raw, self.call.media)
        assert not self.leg.ended.done()
        await self.call.end()


def trace_of(phone: Phone, leg: Leg) -> DialogTrace:
    """The messages of an inbound leg so far."""
    phone.endpoint.update_sip_capture()
    trace = phone.endpoint.sip_capture.dialog_trace(DialogKey(leg.sip_call_id, "callee", leg.facts.from_tag))
    assert trace is not None
    return trace


def methods(phone: Phone, leg: Leg) -> list[str]:
    """The methods of these messages."""
    return [each.message.method for each in trace_of(phone, leg)]


async def result_of(task: asyncio.Task[ReferResult]) -> ReferResult:
    """The result, at most 5 s later."""
    return await asyncio.wait_for(task, 5)


async def test_transfer_is_completed_by_the_final_notify_and_not_by_202(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    refer.leg.refer_domain = DOMAIN
    headers = (("User-to-User", "56a390f3d2b7310023a2;encoding=hex"),)
    task = await refer.accepted(ReferTarget("+49 30/200", referred_by="+4930100", headers=headers))
    for status in ("100 Trying", "180 Ringing"):
        assert await refer.notify(f"SIP/2.0 {status}\r\n") == 200
        assert not task.done()
    assert await refer.notify("SIP/2.0 200 OK\r\n", "terminated;reason=noresource") == 200
    assert await result_of(task) == ReferResult("completed", 200)
    request = refer.request
    assert request.header("Refer-To") == "<sip:+49%2030/200@pbx.example>"
    assert request.header("Referred-By") == "<sip:+4930100@127.0.0.1>"
    assert request.header("User-to-User").startswith("56a390")
    assert request.header("Contact").startswith("<sip:")
    assert request.header("To").endswith(f"tag={refer.call.dialog.tag}")
    await refer.assert_unaffected()


async def test_target_is_dialled_at_the_peers_own_host_without_a_trunk(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    assert refer.request.header("Refer-To") == "<sip:4930200@127.0.0.1>"
    refer.respond("603 Decline")
    await result_of(task)
    await refer.call.end()


@pytest.mark.parametrize("state", ["terminated;reason=noresource", "active;expires=30"])
@pytest.mark.parametrize("status", [302, 408, 480, 486, 603])
async def test_failure_of_the_target_is_its_status(phone: Phone, raw: RawPhone, status: int, state: str) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    await refer.notify("SIP/2.0 100 Trying\r\n")
    assert await refer.notify(f"SIP/2.0 {status} Why\r\n", state) == 200
    assert await result_of(task) == ReferResult("target_failed", status)
    assert await refer.notify("SIP/2.0 200 OK\r\n", "terminated;reason=noresource") == 200
    await refer.assert_unaffected()


@pytest.mark.parametrize("status", [301, 403, 408, 420, 481, 500, 501, 603])
async def test_refused_refer_leaves_the_call_as_it_was(phone: Phone, raw: RawPhone, status: int) -> None:
    """PJSIP itself would end the call after 408 and 481."""
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    refer.respond(f"{status} No")
    assert await result_of(task) == ReferResult("refused", status)
    await refer.assert_unaffected()


async def test_subscription_that_ends_without_a_final_status_is_a_refusal(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    await refer.notify("SIP/2.0 180 Ringing\r\n", "terminated;reason=rejected")
    assert await result_of(task) == ReferResult("refused", 180)
    await refer.assert_unaffected()


async def test_notifies_may_overtake_the_202(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    assert await refer.notify("SIP/2.0 100 Trying\r\n") == 200
    refer.respond("202 Accepted")
    assert await refer.notify("SIP/2.0 200 OK\r\n") == 200
    assert await result_of(task) == ReferResult("completed", 200)
    task = await refer.send()
    assert await refer.notify("SIP/2.0 486 Busy Here\r\n", "terminated", event=f"refer;id={refer.cseq}") == 200
    assert await result_of(task) == ReferResult("target_failed", 486)
    refer.respond("202 Accepted")
    await refer.assert_unaffected()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", ""),
        (b"\0" * 100, "message/sipfrag"),
        (b"SIP/2.0 2000 OK\r\n", "message/sipfrag"),
        (b"SIP/2.0 200\0 OK\r\n", "message/sipfrag"),
        (b"SIP/2.0 700 What\r\n", "message/sipfrag"),
        (b"SIP/2.0 200 " + b"K" * 300 + b"\r\n", "message/sipfrag"),
        (b"HTTP/1.1 200 OK\r\n", "message/sipfrag"),
        (b"\r\nSIP/2.0 200 OK\r\n", "message/sipfrag"),
        (b"INVITE sip:200@h SIP/2.0\r\n", "message/sipfrag"),
        (b"\xff\xfe" * 3000, "message/sipfrag"),
        (b"SIP/2.0 200 OK\r\n", "text/plain"),
        (b"SIP/2.0 200 OK\r\n", "message/sip"),
    ],
)  # fmt: skip
async def test_body_without_a_status_is_answered_and_ignored(
    phone: Phone, raw: RawPhone, body: bytes, content_type: str
) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    assert await refer.notify(body, content_type=content_type) == 200
    assert not task.done()
    assert await refer.notify(b"SIP/2.0 200 OK\r\nVia: x\r\n" + b"y" * 4000) == 200
    assert await result_of(task) == ReferResult("completed", 200)
    await refer.call.end()


async def test_notify_of_another_event_or_out_of_order_does_not_count(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    assert await refer.notify("SIP/2.0 200 OK\r\n", event=f"refer;id={int(refer.cseq) + 1}") == 200
    assert await refer.notify("SIP/2.0 200 OK\r\n", event="dialog") >= 400
    refer.call.dialog.cseq -= 2
    assert await refer.notify("SIP/2.0 200 OK\r\n") == 500
    assert not task.done()
    refer.call.dialog.cseq += 10
    assert await refer.notify("SIP/2.0 486 Busy Here\r\n", event=f"refer;id={refer.cseq}") == 200
    assert await result_of(task) == ReferResult("target_failed", 486)
    await refer.call.end()


async def test_repeated_notify_gets_the_same_response(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    refer.call.dialog.cseq += 1
    headers = ("Event: refer", "Subscription-State: terminated;reason=noresource")
    request = raw.request("NOTIFY", refer.call.dialog, headers=headers)
    for _ in range(2):
        raw.send(request)
        assert (await raw.final_response("NOTIFY")).status == 200
    assert await result_of(task) == ReferResult("refused", 202)
    await refer.call.end()


async def test_silence_after_202_ends_in_time_and_late_notifies_do_not_count(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted(timeout_s=0.3)
    await refer.notify("SIP/2.0 180 Ringing\r\n")
    first = refer.cseq
    assert await result_of(task) == ReferResult("no_response", 180)
    task = await refer.accepted()
    assert await refer.notify("SIP/2.0 200 OK\r\n") == 200
    assert await refer.notify("SIP/2.0 200 OK\r\n", event=f"refer;id={first}") == 200
    assert not task.done()
    assert await refer.notify("SIP/2.0 486 Busy\r\n", "terminated", event=f"refer;id={refer.cseq}") == 200
    assert await result_of(task) == ReferResult("target_failed", 486)
    await refer.assert_unaffected()


async def test_refer_without_a_response_ends_in_time_and_a_late_202_does_not_count(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send(timeout_s=0.2)
    assert await result_of(task) == ReferResult("no_response", 0)
    refer.respond("202 Accepted")
    assert await refer.notify("SIP/2.0 200 OK\r\n") == 200
    await refer.assert_unaffected()


@pytest.mark.parametrize("notifies", [(), ("100 Trying",), ("180 Ringing",)])
async def test_bye_in_place_of_the_final_notify_completes_the_transfer(
    phone: Phone, raw: RawPhone, notifies: tuple[str, ...]
) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    for status in notifies:
        await refer.notify(f"SIP/2.0 {status}\r\n")
    assert (await refer.call.end()).by_peer
    assert await result_of(task) == ReferResult("completed", 202)


async def test_bye_just_before_the_time_is_up_completes_the_transfer(
    phone: Phone, raw: RawPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refer_client, "BYE_GRACE_S", 60.0)
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted(timeout_s=1)
    await refer.call.end()
    assert await result_of(task) == ReferResult("completed", 202)


async def test_notify_shows_that_the_refer_is_accepted(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    await refer.notify("SIP/2.0 100 Trying\r\n")
    await refer.call.end()
    assert await result_of(task) == ReferResult("completed", 202)


async def test_final_notify_right_after_the_bye_counts(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    await raw.bye(refer.call.dialog)
    assert await refer.notify("SIP/2.0 487 Request Terminated\r\n", "terminated") == 200
    assert await result_of(task) == ReferResult("target_failed", 487)
    await wait_ended(refer.leg)


async def test_bye_before_the_response_ends_the_leg_unless_the_refer_is_accepted(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    await raw.bye(refer.call.dialog)
    refer.respond("481 Call/Transaction Does Not Exist")
    with pytest.raises(ConnectionError):
        await result_of(task)
    refer.leg.release()
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    await raw.bye(refer.call.dialog)
    refer.respond("202 Accepted")
    assert await result_of(task) == ReferResult("completed", 202)
    refer.leg.release()


async def test_leg_without_an_answered_call_cannot_be_referred(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    await refer.leg.hangup()
    with pytest.raises(ConnectionError):
        await result_of(task)
    raw.reply(await raw.next_request("BYE"), "200 OK")
    await wait_ended(refer.leg)
    with pytest.raises(ConnectionError):
        await refer.leg.refer(DESK, 1)
    early, callee = await place_call(phone, raw)
    callee.ring()
    await asyncio.wait_for(early.ringing, 5)
    with pytest.raises(ConnectionError):
        await early.refer(DESK, 1)
    await early.hangup()
    await callee.expect_cancel()
    await wait_ended(early)


async def test_refer_waits_for_the_ack_of_the_answer(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.final_response("INVITE")
    await asyncio.wait_for(answering, 5)
    assert await leg.refer(DESK, 0.1) == ReferResult("no_response", 0)
    task = asyncio.create_task(leg.refer(DESK, 5))
    await raw.options()
    assert "REFER" not in methods(phone, leg)
    dialog.update_target(answer)
    raw.send(raw.request("ACK", dialog))
    raw.reply(await raw.next_request("REFER"), "603 Decline")
    assert await result_of(task) == ReferResult("refused", 603)
    await raw.bye(dialog)
    await wait_ended(leg)


async def test_one_refer_at_a_time(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    with pytest.raises(RuntimeError):
        await refer.leg.refer(DESK, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = await refer.accepted()
    assert await refer.notify("SIP/2.0 200 OK\r\n", event=f"refer;id={refer.cseq}") == 200
    assert await result_of(task) == ReferResult("completed", 200)
    await refer.assert_unaffected()


@pytest.mark.parametrize(
    "target",
    [ReferTarget(""), ReferTarget("200", headers=(("X-A", "b\r\nRefer-To: <sip:9@evil>"),))],
    ids=["no user", "line end"],
)
async def test_invalid_target_is_not_sent(phone: Phone, raw: RawPhone, target: ReferTarget) -> None:
    refer = await ReferredCall.make(phone, raw)
    with pytest.raises(ValueError, match="REFER"):
        await refer.leg.refer(target, 1)
    await raw.options()
    assert "REFER" not in methods(phone, refer.leg)
    await refer.assert_unaffected()


async def test_user_of_the_target_is_escaped(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send(ReferTarget("2@evil>,<sip:9"))
    assert refer.request.header("Refer-To") == "<sip:2%40evil%3E,%3Csip%3A9@127.0.0.1>"
    refer.respond("404 Not Found")
    await result_of(task)
    await refer.call.end()


async def test_refer_that_crosses_a_request_of_the_peer_is_sent_again(
    phone: Phone, raw: RawPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    first = refer.cseq
    refer.respond("491 Request Pending")
    refer.request = await raw.next_request("REFER")
    assert int(refer.cseq) == int(first) + 1
    refer.respond("202 Accepted")
    await refer.notify("SIP/2.0 200 OK\r\n", "terminated;reason=noresource")
    assert await result_of(task) == ReferResult("completed", 200)
    monkeypatch.setattr(refer_client, "_glare_delay_s", lambda inbound: 60.0)
    task = await refer.send(timeout_s=1)
    refer.respond("491 Request Pending")
    assert await result_of(task) == ReferResult("refused", 491)
    await refer.assert_unaffected()


async def test_refer_goes_out_while_our_offer_is_pending(phone: Phone, raw: RawPhone) -> None:
    """The answer left two codecs, so that a re-INVITE of ours chooses one."""
    leg, callee = await place_call(phone, raw)
    callee.answer(raw.offer("0 8 101"))
    await asyncio.wait_for(leg.wait_connected(), 5)
    offer = await callee.next_request("INVITE")
    task = asyncio.create_task(leg.refer(DESK, 5))
    request = await callee.next_request("REFER")
    callee.accept(offer, raw.offer("0"))
    await callee.next_request("ACK")
    raw.reply(request, "202 Accepted")
    headers = ("Event: refer", "Subscription-State: terminated")
    sent = callee.request("NOTIFY", "SIP/2.0 200 OK\r\n", headers)
    raw.send(sent.replace(b"application/sdp", b"message/sipfrag"))
    assert await result_of(task) == ReferResult("completed", 200)
    await callee.hang_up()
    await wait_ended(leg)


@pytest.mark.parametrize(
    ("status", "challenge", "response"),
    [
        ("401 Unauthorized", "WWW-Authenticate", "Authorization"),
        ("407 Proxy Authentication Required", "Proxy-Authenticate", "Proxy-Authorization"),
    ],
)
async def test_challenge_is_answered_with_the_credentials_of_the_trunk(
    phone: Phone, raw: RawPhone, status: str, challenge: str, response: str
) -> None:
    refer = await ReferredCall.make(phone, raw)
    refer.leg.refer_domain = DOMAIN
    task = await refer.send()
    first, digest = refer.cseq, f'{challenge}: Digest realm="pbx", nonce="n1", algorithm=MD5, qop="auth"'
    refer.respond(status, digest)
    refer.request = await raw.next_request("REFER")
    assert 'username="ann"' in refer.request.header(response)
    assert int(refer.cseq) == int(first) + 1
    refer.respond("202 Accepted")
    await refer.notify("SIP/2.0 200 OK\r\n", event=f"refer;id={first}")
    assert not task.done()
    await refer.notify("SIP/2.0 200 OK\r\n", event=f"refer;id={refer.cseq}")
    assert await result_of(task) == ReferResult("completed", 200)
    messages = trace_of(phone, refer.leg)
    shown = [mask_message(each.message.raw) for each in messages if each.message.method == "REFER"]
    assert len(shown) == 4
    assert f"{response}: Digest username=" in shown[2]
    assert "response=*" in shown[2]
    await refer.assert_unaffected()


@pytest.mark.parametrize(("nonces", "sent"), [("aa", 2), ("abcd", 4)], ids=["same nonce", "new nonces"])
async def test_challenge_that_repeats_refuses_the_refer(phone: Phone, raw: RawPhone, nonces: str, sent: int) -> None:
    """PJSIP takes a new nonce for a stale one, a bounded number of times."""
    refer = await ReferredCall.make(phone, raw)
    refer.leg.refer_domain = DOMAIN
    task = await refer.send()
    for nonce in nonces[: sent - 1]:
        refer.respond("401 Unauthorized", f'WWW-Authenticate: Digest realm="pbx", nonce="{nonce}"')
        refer.request = await raw.next_request("REFER")
    refer.respond("401 Unauthorized", f'WWW-Authenticate: Digest realm="pbx", nonce="{nonces[sent - 1]}"')
    assert await result_of(task) == ReferResult("refused", 401)
    await refer.assert_unaffected()


async def test_challenge_without_credentials_refuses_the_refer(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.send()
    refer.respond("407 Proxy Authentication Required", 'Proxy-Authenticate: Digest realm="pbx", nonce="n1"')
    assert await result_of(task) == ReferResult("refused", 407)
    await refer.assert_unaffected()


async def replaces_in_refer(refer: ReferredCall, leg: Leg) -> str:
    """Send a REFER with Replaces, which is declined; returns the value of Replaces."""
    task = await refer.send(ReferTarget("200", replaces=leg))
    uri, _, replaces = refer.request.header("Refer-To").strip("<>").partition("?Replaces=")
    assert uri == "sip:200@127.0.0.1"
    refer.respond("603 Decline")
    await result_of(task)
    return unquote(replaces)


async def test_replaces_names_the_dialog_as_its_peer_knows_it(phone: Phone, raw: RawPhone, other: RawPhone) -> None:
    """RFC 3891, 3: to-tag is the tag of the recipient, which is the peer of the other leg."""
    refer = await ReferredCall.make(phone, raw)
    outbound, callee = await place_call(phone, other)
    callee.answer()
    await asyncio.wait_for(outbound.wait_connected(), 5)
    ours = callee.invite.header("From").split("tag=")[1]
    call_id = callee.invite.header("Call-ID")
    assert await replaces_in_refer(refer, outbound) == f"{call_id};to-tag=callee;from-tag={ours}"
    await callee.hang_up()
    await wait_ended(outbound)
    with pytest.raises(ConnectionError):
        await refer.leg.refer(ReferTarget("200", replaces=outbound), 1)
    inbound = await LiveCall.make(phone, other)
    ours = inbound.dialog.to.split("tag=")[1]
    expected = f"{inbound.dialog.call_id};to-tag={inbound.dialog.tag};from-tag={ours}"
    assert await replaces_in_refer(refer, inbound.leg) == expected
    await inbound.end()
    await refer.call.end()


async def test_refer_follows_the_route_set_and_the_remote_target(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    here = f"127.0.0.1:{raw.sip.port}"
    callee.answer(None, f"Record-Route: <sip:{here};lr;hop=2>, <sip:{here};lr;hop=1>")
    await asyncio.wait_for(leg.wait_connected(), 5)
    task = asyncio.create_task(leg.refer(DESK, 5))
    request = await callee.next_request("REFER")
    assert request.first_line == f"REFER sip:raw@{here} SIP/2.0"
    assert [route.partition(": ")[2] for route in request.headers("Route")] == [
        f"<sip:{here};lr;hop=1>",
        f"<sip:{here};lr;hop=2>",
    ]
    raw.reply(request, "603 Decline")
    assert await result_of(task) == ReferResult("refused", 603)
    await callee.hang_up()
    await wait_ended(leg)


async def test_peer_that_held_us_during_a_failed_transfer_resumes(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    task = await refer.accepted()
    assert (await refer.call.send_offer(raw.offer("0", "sendonly"))).status == 200
    await refer.notify("SIP/2.0 180 Ringing\r\n")
    await refer.notify("SIP/2.0 486 Busy Here\r\n", "terminated;reason=noresource")
    assert await result_of(task) == ReferResult("target_failed", 486)
    assert refer.leg.on_hold
    assert (await refer.call.send_offer(raw.offer("0", "sendrecv"))).status == 200
    await refer.assert_unaffected()


async def test_silence_of_the_peer_is_normal_while_it_is_referred(phone: Phone, raw: RawPhone) -> None:
    refer = await ReferredCall.make(phone, raw)
    raw.send_rtp_bytes(bytes.fromhex("8000000100000001000051500000"))
    task = await refer.accepted()
    assert refer.leg.rtp_silence_s() == 0
    await refer.notify("SIP/2.0 603 Decline\r\n", "terminated")
    await result_of(task)
    assert refer.leg.rtp_silence_s() > 0
    await refer.call.end()
