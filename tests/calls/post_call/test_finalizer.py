"""Finalization of calls: the webhook in one transaction with the end, and recovery after a dead process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.turn.scripted_models import HANG_UP
from config.clock import utc_now
from models.protocols import TextDelta
from storage import tables
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls, pending_finalization, transfers
from storage.calls.transfers import Transfer
from storage.database.errors import StorageUnavailable
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.webhooks import deliveries as webhook_deliveries
from tests.calls.call_service_harness import CallServiceHarness, call_service, every_call, until
from tests.storage.calls.transfer_makers import transfer_of

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}


async def deliveries(harness: CallServiceHarness) -> list[webhook_deliveries.Delivery]:
    due = await harness.database.read(lambda conn: webhook_deliveries.due_attempts(conn, utc_now()))
    return [each.delivery for each in due]


async def test_the_webhook_has_the_stored_call(tmp_path: Path) -> None:
    async with call_service(tmp_path, [TextDelta("Bye."), HANG_UP]) as harness:
        number, agent = await harness.create_number(
            first_speaker="agent", post_call_webhook_secret_encrypted="token", **WEBHOOK
        )
        call = await harness.ended_call(harness.invite(number="+4917012"))
        (delivery,) = await deliveries(harness)
        assert harness.woken == [None]
    assert (delivery.call_id, delivery.url, delivery.secret_encrypted) == (
        call.id,
        WEBHOOK["post_call_webhook_url"],
        "token",
    )
    payload = json.loads(delivery.body)
    recording_url, transcript_url = payload.pop("recordingUrl"), payload.pop("transcriptUrl")
    assert payload.pop("startedAt")[-5] == "." and payload.pop("endedAt")[-1] == "Z"
    assert payload == {
        "event": "call.completed",
        "callId": call.id,
        "organizationId": number.organization_id,
        "agentId": agent.id,
        "agentVersion": call.agent_version,
        "phoneNumberId": number.id,
        "direction": "inbound",
        "status": "completed",
        "customerNumber": "+4917012",
        "durationSeconds": call.duration_seconds,
        "summary": None,
        "extractedData": {},
        "contextVariables": {},
        "metadata": {},
        "parentCallId": None,
        "transferType": None,
        "transferStatus": None,
        "transferCalls": [],
        "calledNumber": number.number,
    }
    assert recording_url.startswith(f"https://here.test/v1/calls/{call.id}/recording?")
    assert transcript_url.startswith(f"https://here.test/v1/calls/{call.id}/transcript?")


async def test_an_agent_without_a_webhook_sends_none(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        await harness.ended_call(phone)
        assert await deliveries(harness) == []


async def test_a_call_ends_with_its_webhook_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(**WEBHOOK)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        await until(lambda: harness.service.active_call_count == 1)
        real, tries, broken = webhook_deliveries.add_all, 0, True

        def fails_while_broken(*arguments: Any, **named: Any) -> list[webhook_deliveries.Delivery]:
            nonlocal tries
            tries += 1
            added = real(*arguments, **named)
            if broken:
                raise StorageUnavailable("the disk cannot be read or written")
            return added

        monkeypatch.setattr(webhook_deliveries, "add_all", fails_while_broken)
        monkeypatch.setattr("calls.post_call.finalizer.STORE_RETRIES_S", (0.02,) * 1000)
        phone.hangs_up()
        await until(lambda: tries >= 1)
        assert (await harness.stored_call(phone)).ended_at is None
        assert await deliveries(harness) == []
        broken = False
        call = await harness.ended_call(phone)
        assert call.ended_reason == "customer_ended"
        assert len(await deliveries(harness)) == 1


async def test_the_time_of_the_answer_is_stored_at_the_end_if_it_could_not_be_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        real, tries = calls.mark_answered, []

        def fails_once(*arguments: Any) -> bool:
            tries.append(arguments)
            if len(tries) == 1:
                raise StorageUnavailable("the disk is full")
            return real(*arguments)

        monkeypatch.setattr(calls, "mark_answered", fails_once)
        phone = harness.invite()
        await until(lambda: len(tries) == 1)
        assert not phone.leg.ended.done()
        phone.hangs_up()
        call = await harness.ended_call(phone)
    assert (call.status, call.ended_reason) == ("completed", "customer_ended")
    assert call.started_at is not None


def interrupted_call(conn: sa.Connection, number: PhoneNumber, agent: Agent, call_sid: str) -> calls.Call:
    """Store an inbound call, as a dead process leaves it."""
    return calls.create_inbound(
        conn,
        organization_id=number.organization_id,
        agent_id=agent.id,
        phone_number_id=number.id,
        provider="sip",
        call_sid=call_sid,
        customer_number="+1",
    )


async def test_an_open_call_of_a_dead_process_is_closed_at_the_next_start_with_one_webhook(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number(**WEBHOOK)

        def leave(conn: sa.Connection) -> list[calls.Call]:
            made = [interrupted_call(conn, number, agent, f"left-{each}") for each in range(2)]
            calls.mark_answered(conn, made[0].id, utc_now())
            return made

        made = await harness.database.write(leave)
        assert await harness.service.recover() == 2
        assert await harness.service.recover() == 0
        stored = {call.id: call for call in await harness.all_calls()}
        webhooks = {json.loads(each.body)["callId"] for each in await deliveries(harness)}
    assert [stored[each.id].status for each in made] == ["completed", "failed"]
    assert {stored[each.id].ended_reason for each in made} == {"server_restart"}
    assert webhooks == {each.id for each in made}


async def test_a_webhook_has_the_transfers_and_that_of_the_child_call_has_its_parent(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number(**WEBHOOK)

        def leave(conn: sa.Connection) -> tuple[Transfer, Transfer]:
            parents = [interrupted_call(conn, number, agent, f"left-{each}") for each in range(2)]
            connected, ringing = (transfer_of(parent, status="ringing") for parent in parents)
            for transfer, parent in ((connected, parents[0]), (ringing, parents[1])):
                calls.mark_answered(conn, parent.id, utc_now())
                transfers.insert(conn, transfer)
                dialled = {"phone_number_id": number.id, "provider": "sip", "customer_number": transfer.number}
                calls.create_child(conn, call_id=transfer.id, parent=parent, **dialled)
            calls.mark_answered(conn, connected.id, utc_now())
            transfers.update(conn, connected.id, status="connected", connected_at=utc_now())
            return connected, ringing

        connected, ringing = await harness.database.write(leave)
        assert await harness.service.recover() == 4
        bodies = {each["callId"]: each for each in (json.loads(each.body) for each in await deliveries(harness))}
    for transfer, status, call_status in ((connected, "completed", "completed"), (ringing, "failed", "failed")):
        parent, child = bodies[transfer.parent_call_id], bodies[transfer.id]
        assert (parent["status"], parent["transferStatus"], parent["parentCallId"]) == ("completed", status, None)
        (shown,) = parent["transferCalls"]
        assert (shown["id"], shown["transferStatus"], shown["targetName"]) == (transfer.id, status, "Sales")
        assert (child["parentCallId"], child["status"]) == (transfer.parent_call_id, call_status)
        assert (child["transferType"], child["transferStatus"]) == ("warm_briefing", status)
        assert child["transferCalls"] == []


async def test_a_call_whose_agent_was_deleted_has_its_webhook(tmp_path: Path) -> None:
    field = {"name": "sum", "description": "", "type": "number"}
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number(
            post_call_webhook_secret_encrypted="token", post_call_extraction_schema=[field], **WEBHOOK
        )

        def leave(conn: sa.Connection) -> list[calls.Call]:
            made = [interrupted_call(conn, number, agent, f"left-{each}") for each in range(3)]
            calls.finish(conn, made[0].id, status="no_answer", ended_reason="no_answer", ended_at=utc_now())
            ended = pending_finalization.PendingFinalization("completed", "customer_ended", utc_now())
            pending_finalization.store(conn, made[1].id, ended, answered_at=utc_now())
            assert agents.delete(conn, number.organization_id, agent.id)
            return made

        made = await harness.database.write(leave)
        assert await harness.service.recover() == 2
        await harness.database.until(every_call, lambda all_of_them: all(call.ended_at for call in all_of_them))
        stored = {call.id: call for call in await harness.all_calls()}
        webhooks = {each.call_id: each for each in await deliveries(harness)}
        snapshots = await harness.database.read(
            lambda conn: set(conn.execute(sa.select(tables.calls.c.kept_agent)).scalars())
        )
    assert [stored[each.id].ended_reason for each in made] == ["no_answer", "customer_ended", "server_restart"]
    assert set(webhooks) == {made[1].id, made[2].id}
    assert {each.url for each in webhooks.values()} == set(WEBHOOK.values())
    assert {each.secret_encrypted for each in webhooks.values()} == {"token"}
    assert {str(json.loads(each.body)["extractedData"]) for each in webhooks.values()} == {"{'sum': None}"}
    assert snapshots == {None}
