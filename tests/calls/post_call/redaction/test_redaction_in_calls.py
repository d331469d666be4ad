"""Redaction in calls: redacted numbers are never in the database, neither during a call nor after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import sqlalchemy as sa

from calls.post_call.redaction.redactor import REDACT_EVERYTHING, RedactionRules, redaction_rules
from config.clock import utc_now
from storage import tables
from storage.accounts import organizations
from storage.calls import calls
from storage.webhooks import deliveries
from tests import database_template
from tests.calls.call_service_harness import CallServiceHarness, call_service, every_call, until
from tests.transcripts import without_times

CARD = "4111111111111111"
AGAIN = "Is it four one one one, 1111 1111 1111?"


async def redacts(harness: CallServiceHarness, organization_id: str) -> None:
    def change(conn: sa.Connection) -> None:
        stored = organizations.get(conn, organization_id)
        assert stored is not None
        organizations.change(conn, stored, {"redact": True})

    await harness.database.write(change)


async def test_a_card_entered_by_dtmf_is_redacted_during_the_call_and_after_it(tmp_path: Path) -> None:
    async with call_service(tmp_path, AGAIN) as harness:
        number, _ = await harness.create_number(
            post_call_webhook_url="https://receiver.test/", post_call_summary_enabled=True, customer_silence_ms=0
        )
        await redacts(harness, number.organization_id)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for key in f"{CARD}#":
            phone.driver.on_digit(key, "rfc4733")
        (live,) = await harness.database.until(every_call, lambda found: len(found[0].transcript) == 2)
        assert live.ended_at is None
        phone.hangs_up()
        await harness.ended_call(phone)
        (due,) = await harness.database.until(lambda conn: deliveries.due_attempts(conn, utc_now()), bool)
        ended = await harness.stored_call(phone)
    assert without_times(ended.transcript)[0] == {"role": "user", "content": "[card]"}
    assert all("1111" not in item["content"] for item in ended.transcript)
    assert all("1111" not in item["content"] for item in live.transcript)
    assert ended.analysis is not None and ended.analysis["summary"]
    assert "1111" not in str(ended.analysis)
    assert "1111" not in due.delivery.body.decode()
    assert not await asyncio.to_thread(database_template.contains, harness.database, CARD)


async def test_the_rules_are_those_of_the_calls_organization(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        await redacts(harness, number.organization_id)

        def look(conn: sa.Connection) -> tuple[RedactionRules, RedactionRules]:
            call = calls.create_inbound(
                conn,
                organization_id=number.organization_id,
                agent_id=agent.id,
                phone_number_id=number.id,
                provider="sip",
                call_sid="1",
                customer_number="1",
            )
            one = redaction_rules(conn, call.id)
            conn.execute(sa.update(tables.organizations).values(redact_dialled=True))
            both = redaction_rules(conn, call.id)
            conn.execute(sa.delete(tables.calls))
            return one, both

        assert await harness.database.write(look) == (RedactionRules(numbers=True), REDACT_EVERYTHING)
        assert await harness.database.read(lambda conn: redaction_rules(conn, "none")) == RedactionRules()
