"""Events of calls, from what happens to the receiver: the parts of a server are real, legs and models are scripted."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
import sqlalchemy as sa

from bench.turn.scripted_models import HANG_UP
from calls.webhooks.event_request import DeliveryPolicy
from models.protocols import LlmOutput, TextDelta
from sipcore.dialogs.invite_error import InviteError
from storage import tables
from storage.agents import agents
from storage.calls import calls
from storage.calls.calls import Call
from storage.calls.transfers import TransferOrder
from storage.database.errors import StorageUnavailable
from storage.tables.agent_fields import WebhookEvent
from storage.tables.webhooks import WebhookEndpointFields
from storage.webhooks import deliveries, endpoints
from storage.webhooks.deliveries import Delivery
from storage.webhooks.endpoints import WebhookEndpoint
from tests import database_template
from tests.calls.call_service_harness import GREETS, CallServiceHarness, WatchedDatabase, call_service, until
from tests.calls.outbound_calls import callee, ended, queue
from tests.calls.session.transfer.transfer_calls import SALES, caller, tool_call
from tests.calls.webhooks.outbox_harness import Receiver, listening, running_sender
from tests.fakes.fake_leg import Phone

ALL = list(get_args(WebhookEvent))
STORED = [event for event in ALL if event != "call.turn"]
URL = "https://receiver.test/hook"
T = TypeVar("T")
TO_HERE = DeliveryPolicy(allow_http=True)
COMMON = [
    *("event", "timestamp", "callId", "organizationId", "agentId", "agentVersion", "phoneNumberId", "direction"),
    *("customerNumber", "calledNumber", "parentCallId"),
]
GIVEN = ["contextVariables", "metadata"]


async def of_call(harness: CallServiceHarness, call: Call) -> list[Delivery]:
    return await harness.database.read(lambda conn: deliveries.of_call(conn, call.id))


async def bodies(harness: CallServiceHarness, call: Call) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in await of_call(harness, call)]


def names(told: list[dict[str, Any]]) -> list[str]:
    return [each["event"] for each in told]


async def events_until(harness: CallServiceHarness, call: Call, event: str) -> list[dict[str, Any]]:
    """The events of a call so far, once this one is among them."""
    found = await harness.database.until(
        lambda conn: deliveries.of_call(conn, call.id), lambda all_: any(each.event == event for each in all_)
    )
    return [json.loads(each.body) for each in found]


# ---- stored events ----


async def test_an_agent_gets_call_completed_alone_by_default(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(post_call_webhook_url=URL)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        call = await harness.ended_call(phone)
        (told,) = await bodies(harness, call)
    assert told["event"] == "call.completed"
    assert "timestamp" not in told


async def test_an_inbound_call_is_started_answered_and_completed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)
        phone = Phone(harness.pump, number="+4917012")
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        ringing = await harness.stored_call(phone)
        (started,) = await bodies(harness, ringing)
        assert list(started) == [*COMMON, "status", *GIVEN]
        assert (started["event"], started["status"]) == ("call.started", "ringing")
        assert (started["callId"], started["customerNumber"]) == (ringing.id, "+4917012")
        phone.hangs_up(487)
        call = await harness.ended_call(phone)
        told = await bodies(harness, call)
        assert names(told) == ["call.started", "call.failed", "call.completed"]
        assert list(told[1]) == [*COMMON, "status", "endedReason", "endedAt", "sipStatus", *GIVEN]
        assert (told[1]["status"], told[1]["endedReason"], told[1]["sipStatus"]) == ("no_answer", "customer_ended", 487)

        second = harness.invite()
        await until(lambda: second.leg.on_digit is not None)
        second.hangs_up()
        call = await harness.ended_call(second)
        told = await bodies(harness, call)
    assert names(told) == ["call.started", "call.answered", "call.completed"]
    assert list(told[1]) == [*COMMON, "status", "startedAt", *GIVEN]
    assert told[1]["timestamp"] == told[1]["startedAt"] == told[2]["startedAt"]
    times = [datetime.fromisoformat(each) for each in (told[0]["timestamp"], told[1]["timestamp"], told[2]["endedAt"])]
    assert times == sorted(times)


async def test_an_agent_without_call_completed_gets_none(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=["call.answered"])
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        call = await harness.ended_call(phone)
        assert names(await bodies(harness, call)) == ["call.answered"]


async def test_an_outbound_call_is_started_when_it_is_dialled(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)
        harness.pacer.gate.clear()
        call = await queue(harness, line, metadata={"order": 7})
        await until(lambda: harness.service.active_calls())
        assert await of_call(harness, call) == []
        harness.pacer.gate.set()
        there = await callee(harness)
        (started,) = await bodies(harness, call)
        assert (started["event"], started["direction"], started["metadata"]) == (
            *("call.started", "outbound"),
            {"order": 7},
        )
        there.ends(486)
        end = await ended(harness, call)
        told = await bodies(harness, end)
    assert names(told) == ["call.started", "call.failed", "call.completed"]
    assert (told[1]["status"], told[1]["endedReason"]) == ("failed", "busy")


@database_template.sqlite_only("a call waits until it is stored that no other node dials it")
@pytest.mark.parametrize("end", [486, 200])
async def test_a_start_that_could_not_be_stored_is_told_before_what_follows(
    tmp_path: Path, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)

        def fail(*_: object) -> None:
            raise StorageUnavailable("the disk cannot be read or written")

        with monkeypatch.context() as broken:
            broken.setattr(calls, "mark_dialling", fail)
            call = await queue(harness, line)
            there = await callee(harness)
        assert await of_call(harness, call) == []
        if end == 200:
            there.answers()
            await events_until(harness, call, "call.answered")
        there.ends(end)
        done = await ended(harness, call)
        told = await bodies(harness, done)
    assert names(told) == [
        *("call.started", "call.failed" if end == 486 else "call.answered", "call.completed"),
    ]
    assert (told[0]["status"], done.call_sid) == ("ringing", there.leg.sip_call_id)


async def test_a_call_that_cannot_be_dialled_has_failed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)
        harness.callees.error = InviteError("unreachable", "no such host")
        end = await ended(harness, await queue(harness, line))
        assert names(await bodies(harness, end)) == ["call.started", "call.failed", "call.completed"]


async def test_a_call_without_a_trunk_is_not_started(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)
        harness.callees.address = None
        end = await ended(harness, await queue(harness, line))
        assert names(await bodies(harness, end)) == ["call.failed", "call.completed"]


async def test_a_queued_call_is_started_at_the_address_of_the_moment_it_is_dialled(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(post_call_webhook_url="https://former.test/")
        agent = line[1]
        harness.pacer.gate.clear()
        call = await queue(harness, line)
        await until(lambda: harness.service.active_calls())
        changes = {"post_call_webhook_url": URL, "post_call_webhook_events": STORED}
        await harness.database.write(lambda conn: agents.update(conn, agent.organization_id, agent.id, changes))
        harness.pacer.gate.set()
        there = await callee(harness)
        assert [(each.event, each.url) for each in await of_call(harness, call)] == [("call.started", URL)]
        (started,) = await bodies(harness, call)
        there.ends(486)
        end = await ended(harness, call)
    assert (started["agentVersion"], end.agent_version) == (2, 2)


async def test_a_connected_transfer_is_told_once(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, post_call_webhook_url=URL, post_call_webhook_events=STORED)
        target = await callee(harness)
        parent = await harness.stored_call(phone)
        assert "call.transferred" not in names(await bodies(harness, parent))
        target.answers()
        *_, told = await events_until(harness, parent, "call.transferred")
        transfer = told["transfer"]
        assert {name: transfer[name] for name in ("targetName", "customerNumber", "mode", "status", "requestedBy")} == {
            "targetName": SALES["name"],
            "customerNumber": SALES["number"],
            "mode": "cold",
            "status": "connected",
            "requestedBy": "agent",
        }
        assert told["timestamp"] == transfer["connectedAt"]
        target.ends()
        parent = await harness.ended_call(phone)
        child = next(each for each in await harness.all_calls() if each.id == transfer["id"])
        assert names(await bodies(harness, parent)) == [
            *("call.started", "call.answered", "call.transferred", "call.completed"),
        ]
        child_told = await events_until(harness, child, "call.completed")
    assert names(child_told) == ["call.started", "call.answered", "call.completed"]
    assert {each["parentCallId"] for each in child_told} == {parent.id}


async def test_a_refer_that_the_pbx_takes_is_a_transfer(tmp_path: Path) -> None:
    async with call_service(tmp_path, refer_timeout_s=5) as harness:
        events: dict[str, Any] = {"post_call_webhook_url": URL, "post_call_webhook_events": ["call.transferred"]}
        phone = await caller(harness, "refer", **{**events, "first_speaker": "user"})
        await until(lambda: phone.leg.on_digit is not None)
        parent = await harness.stored_call(phone)
        await harness.service.transfer(parent.id, TransferOrder(target="Sales", requested_by="api"))
        await until(lambda: phone.dialog.refers)
        sent = phone.dialog.refers[-1][1]
        sent.on_response(202)
        sent.on_notify(True, "message/sipfrag", b"SIP/2.0 200 OK\r\n")
        await harness.ended_call(phone)
        (told,) = await bodies(harness, parent)
    assert (told["transfer"]["status"], told["transfer"]["requestedBy"]) == ("completed", "api")


async def test_a_declined_transfer_is_none(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), [TextDelta("Busy."), HANG_UP]) as harness:
        phone = await caller(harness, post_call_webhook_url=URL, post_call_webhook_events=["call.transferred"])
        (await callee(harness)).ends(486)
        parent = await harness.ended_call(phone)
        assert await bodies(harness, parent) == []


async def test_the_events_before_the_end_go_to_the_address_at_the_beginning(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        _, agent = await harness.create_number(post_call_webhook_url=URL, post_call_webhook_events=STORED)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        call = await harness.stored_call(phone)
        await events_until(harness, call, "call.answered")
        changes = {"post_call_webhook_url": "https://other.test/", "post_call_webhook_events": ["call.completed"]}
        await harness.database.write(lambda conn: agents.update(conn, agent.organization_id, agent.id, changes))
        phone.hangs_up()
        await harness.ended_call(phone)
        told = [(each.event, each.url) for each in await of_call(harness, call)]
        versions = [each["agentVersion"] for each in await bodies(harness, call)]
    assert versions == [1, 1, 1]
    assert told == [("call.started", URL), ("call.answered", URL), ("call.completed", "https://other.test/")]


# ---- at the receiver ----


def turns_told_by(receiver: Receiver) -> list[str]:
    return [each["turn"]["text"] for each in told_by(receiver, "call.turn")]


def told_by(receiver: Receiver, event: str) -> list[dict[str, Any]]:
    found = [json.loads(body) for _, body in receiver.got]
    return [each for each in found if each["event"] == event]


async def test_a_receiver_gets_the_events_in_order_signed_with_the_bytes_that_are_stored(
    tmp_path: Path, receiver: Receiver
) -> None:
    answer: list[LlmOutput] = [TextDelta("We open at nine. Good bye."), HANG_UP]
    async with call_service(tmp_path, answer, hears=(), webhooks=TO_HERE) as harness:
        secret = harness.secrets.encrypt("hush")
        webhook: dict[str, Any] = {
            "post_call_webhook_url": f"{receiver.origin}/hook",
            "post_call_webhook_secret_encrypted": secret,
        }
        await harness.create_number(**GREETS, **webhook, post_call_webhook_events=ALL)
        phone = harness.invite()
        await until(lambda: told_by(receiver, "call.turn"))
        for digit in "4#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        call = await harness.ended_call(phone)
        await until(lambda: told_by(receiver, "call.completed") and len(told_by(receiver, "call.turn")) == 3)
        stored = {each.id: each.body for each in await of_call(harness, call)}
    order = [json.loads(body)["event"] for _, body in receiver.got]
    assert [each for each in order if each != "call.turn"] == ["call.started", "call.answered", "call.completed"]
    for headers, body in receiver.got:
        assert headers["X-Service-Signature"] == hmac.new(b"hush", body, hashlib.sha256).hexdigest()
        assert headers["X-Service-Event"] == json.loads(body)["event"]
        assert headers["X-Service-Attempt"] == "1"
        assert headers["X-Service-Delivery"] == headers["webhook-id"]
        assert stored.get(headers["X-Service-Delivery"], body) == body
    turns = told_by(receiver, "call.turn")
    assert [list(each) for each in turns] == [[*COMMON, "turn", "metadata"]] * 3
    said = [(each["turn"]["sequence"], each["turn"]["role"], each["turn"]["text"]) for each in turns]
    assert said == [
        (1, "assistant", "Welcome caller."),
        (2, "user", "4"),
        (3, "assistant", "We open at nine. Good bye."),
    ]
    for each in (turns[0]["turn"], turns[2]["turn"]):
        assert 0 <= each["startMs"] < each["endMs"]
        assert not each["interrupted"]
    assert turns[1]["turn"]["startMs"] is None


async def test_turns_are_redacted(tmp_path: Path, receiver: Receiver) -> None:
    async with call_service(tmp_path, [TextDelta("Thank you."), HANG_UP], webhooks=TO_HERE) as harness:
        _, agent = await harness.create_number(
            post_call_webhook_url=f"{receiver.origin}/hook", post_call_webhook_events=["call.turn"]
        )
        organization = sa.update(tables.organizations).where(tables.organizations.c.id == agent.organization_id)
        await harness.database.write(lambda conn: conn.execute(organization.values(redact=True, redact_dialled=True)))
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "4111#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        call = await harness.ended_call(phone)
        await until(lambda: len(receiver.got) == 2)
        assert await of_call(harness, call) == []
    assert [each["turn"]["text"] for each in told_by(receiver, "call.turn")] == ["[number]", "Thank you."]


class DeferringDatabase(WatchedDatabase):
    """A database whose deferrable writes wait for an event."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.has_time = asyncio.Event()

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        owner: str | None = None,
        lock: str | None = None,
        deferrable: bool = False,
    ) -> T:
        if deferrable:
            await self.has_time.wait()
        return await super().write(work, owner=owner, lock=lock, deferrable=deferrable)


async def test_turns_of_a_call_that_ends_before_its_answer_is_stored_are_sent(
    tmp_path: Path, receiver: Receiver
) -> None:
    database = DeferringDatabase(await database_template.copy_to(tmp_path))
    reply: list[LlmOutput] = [TextDelta("Good bye."), HANG_UP]
    async with call_service(tmp_path, reply, webhooks=TO_HERE, database=database) as harness:
        await harness.create_number(post_call_webhook_url=f"{receiver.origin}/hook", post_call_webhook_events=ALL)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "4#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        call = await harness.ended_call(phone)
        assert turns_told_by(receiver) == []
        assert names(await bodies(harness, call)) == ["call.started", "call.answered", "call.completed"]
        database.has_time.set()
        await until(lambda: len(turns_told_by(receiver)) == 2)
        assert turns_told_by(receiver) == ["4", "Good bye."]
        assert len(await bodies(harness, call)) == 3


async def test_a_receiver_of_turns_that_hangs_delays_neither_a_call_nor_its_stored_events(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.hangs_for = "call.turn"
    async with call_service(tmp_path, [TextDelta("Good bye."), HANG_UP], webhooks=TO_HERE) as harness:
        await harness.create_number(post_call_webhook_url=f"{receiver.origin}/hook", post_call_webhook_events=ALL)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "4#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        await harness.ended_call(phone)
        await until(lambda: told_by(receiver, "call.completed"))
        assert len(told_by(receiver, "call.turn")) == 1


async def test_events_survive_a_restart_and_are_sent_with_the_same_bytes(tmp_path: Path, receiver: Receiver) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(post_call_webhook_url=f"{receiver.origin}/hook", post_call_webhook_events=STORED)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        stored = await of_call(harness, await harness.ended_call(phone))
        secrets = harness.secrets
    database = await database_template.open_copy(tmp_path)
    try:
        async with running_sender(database, secrets) as sender:
            await sender.wait_idle()
    finally:
        await database.close()
    assert [body for _, body in receiver.got] == [each.body for each in stored]
    assert names([json.loads(body) for _, body in receiver.got]) == ["call.started", "call.answered", "call.completed"]


# ---- endpoints of the organization ----


async def endpoint(harness: CallServiceHarness, organization_id: str, url: str, **fields: Any) -> WebhookEndpoint:
    """A webhook endpoint of an organization."""
    made = WebhookEndpointFields(url=url, **fields)
    return await harness.database.write(lambda conn: endpoints.create(conn, organization_id, made))


async def test_endpoints_get_the_events_of_all_calls_beside_the_agents_url(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        _, agent = await harness.create_number(post_call_webhook_url=URL)
        _, other = await harness.create_number("+4930200")
        owner = agent.organization_id
        crm = await endpoint(harness, owner, "https://crm.test/", events=["call.answered", "call.completed"])
        await endpoint(harness, owner, "https://off.test/", enabled=False)
        await endpoint(harness, owner, "https://none.test/", events=[])
        await endpoint(harness, other.organization_id, "https://other.test/", events=["call.started"])
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        stored = await of_call(harness, await harness.ended_call(phone))
    assert [(each.event, each.url, each.endpoint_id) for each in stored] == [
        ("call.answered", "https://crm.test/", crm.id),
        ("call.completed", URL, None),
        ("call.completed", "https://crm.test/", crm.id),
    ]
    assert stored[1].body == stored[2].body


async def test_an_endpoint_gets_the_events_of_agents_without_a_url_and_of_transfers(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        parent = await harness.stored_call(phone)
        await harness.database.until(
            lambda conn: calls.get_by_id(conn, parent.id), lambda call: call is not None and call.started_at is not None
        )
        await endpoint(harness, parent.organization_id, URL, events=STORED)
        target.answers()
        await events_until(harness, parent, "call.transferred")
        target.ends()
        await harness.ended_call(phone)
        told = await bodies(harness, parent)
    assert names(told) == ["call.transferred", "call.completed"]


async def test_an_endpoint_gets_live_turns_and_signed_events(tmp_path: Path, receiver: Receiver) -> None:
    async with call_service(tmp_path, [TextDelta("Good bye."), HANG_UP], webhooks=TO_HERE) as harness:
        _, agent = await harness.create_number()
        secret = harness.secrets.encrypt("hush")
        url = f"{receiver.origin}/hook"
        await endpoint(harness, agent.organization_id, url, events=ALL, secret_encrypted=secret)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "4#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        await harness.ended_call(phone)
        await until(lambda: told_by(receiver, "call.completed") and len(told_by(receiver, "call.turn")) == 2)
    assert [each["turn"]["text"] for each in told_by(receiver, "call.turn")] == ["4", "Good bye."]
    for headers, body in receiver.got:
        assert headers["X-Service-Signature"] == hmac.new(b"hush", body, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("change", ["deleted", "disabled", "moved"])
async def test_an_endpoint_that_is_changed_in_mid_call_gets_no_further_turns(
    tmp_path: Path, receiver: Receiver, change: str
) -> None:
    replies = [TextDelta("One.")], [TextDelta("Two.")]
    async with listening(Receiver()) as other, call_service(tmp_path, *replies, webhooks=TO_HERE) as harness:
        _, agent = await harness.create_number()
        for each in (other, receiver):
            stored = await endpoint(harness, agent.organization_id, f"{each.origin}/hook", events=["call.turn"])
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "4#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        await until(lambda: turns_told_by(receiver) == turns_told_by(other) == ["4", "One."])
        owner = agent.organization_id
        if change == "deleted":
            await harness.database.write(lambda conn: endpoints.delete(conn, owner, stored.id))
        else:
            new = {"enabled": False} if change == "disabled" else {"url": f"{other.origin}/moved"}
            await harness.database.write(lambda conn: endpoints.update(conn, owner, stored.id, new))
        for digit in "5#":
            phone.leg.on_digit(digit, "rfc4733")  # type: ignore[misc]
        await until(lambda: turns_told_by(other) == ["4", "One.", "5", "Two."])
        phone.hangs_up()
        await harness.ended_call(phone)
    assert turns_told_by(receiver) == ["4", "One."]


async def test_an_endpoint_that_hangs_holds_up_no_other_receiver(tmp_path: Path, receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    async with listening(Receiver()) as other, call_service(tmp_path, webhooks=TO_HERE) as harness:
        _, agent = await harness.create_number(post_call_webhook_url=f"{other.origin}/hook")
        await endpoint(harness, agent.organization_id, f"{receiver.origin}/hook", events=STORED)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        await harness.ended_call(phone)
        await until(lambda: told_by(other, "call.completed"))
        assert names([json.loads(body) for _, body in receiver.got]) == ["call.started"]
