"""Billing of paid plans: costs are exact by the rate card, and calls are debited exactly once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from bench.turn.scripted_models import HANG_UP
from calls import metrics
from calls.call_record.billing import RateCard, charge
from calls.call_record.metering import CallUsage
from calls.outbound import permissions
from calls.post_call.finalizer import CallFinalizer
from config.secrets import Secrets
from config.settings_tables import BillingSettings
from models.protocols import LlmOutput, TextDelta
from storage import tables
from storage.accounts import balances, organizations
from storage.accounts.balances import BalanceChange
from storage.agents import agents
from storage.calls import calls
from storage.calls.calls import Call
from storage.calls.outbound_audit import Verdict
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.tables.agent_fields import AgentFields
from storage.webhooks import deliveries
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, ended, queue

PRICES = BillingSettings(
    telephony_per_minute=0.012,
    inference_per_1000_tokens=0.0035,
    speech_to_text_per_minute=0.006,
    text_to_speech_per_1000_characters=0.015,
)
CARD = RateCard(text_to_speech=Decimal(1))
ONE_MS = timedelta(milliseconds=1)


def cost_by_hand(call: Call) -> Decimal:
    """Returns the cost of a stored call, computed as on the page on billing."""
    assert call.started_at is not None
    assert call.ended_at is not None
    usage = CallUsage.from_json(call.usage)
    connected_ms = (call.ended_at - call.started_at) // ONE_MS
    exact = (
        Decimal("0.012") * connected_ms / 60000
        + Decimal("0.0035") * (usage.prompt_tokens + usage.completion_tokens) / 1000
        + Decimal("0.006") * round(usage.heard_s * 1000) / 60000
        + Decimal("0.015") * usage.spoken_characters / 1000
    )
    return exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)


@pytest.mark.parametrize(
    ("card", "usage", "cost"),
    [
        ({}, CallUsage(60, 1000, 1000, 60, 1000), "0"),
        ({"telephony": "0.01"}, CallUsage(telephony_s=60), "0.01"),
        ({"telephony": "0.01"}, CallUsage(telephony_s=1), "0.000167"),
        ({"telephony": "0.01"}, CallUsage(telephony_s=0.003), "0.000001"),  # 0.0000005: halves go up
        ({"telephony": "0.01"}, CallUsage(telephony_s=0.002), "0"),
        ({"tokens": "0.1"}, CallUsage(prompt_tokens=700, completion_tokens=300), "0.1"),
        ({"speech_to_text": "0.3"}, CallUsage(heard_s=0.1), "0.0005"),
        ({"text_to_speech": "15"}, CallUsage(spoken_characters=241), "3.615"),
        # Each part alone would be rounded down: only the sum is rounded.
        ({"telephony": "0.000024", "speech_to_text": "0.000024"}, CallUsage(telephony_s=1, heard_s=1), "0.000001"),
        ({"telephony": "1000000", "tokens": "1000000"}, CallUsage(86400, 10**7, 10**7), "21440000000"),
    ],
)
def test_a_cost_is_exact_and_rounded_once(card: Mapping[str, str], usage: CallUsage, cost: str) -> None:
    prices = RateCard(**{name: Decimal(price) for name, price in card.items()})
    assert prices.cost_of(usage) == Decimal(cost)


def test_the_example_in_the_documentation_is_correct() -> None:
    cost = RateCard.from_settings(PRICES).cost_of(CallUsage(61.234, 812, 40, 12.3, 240))
    page = (Path(__file__).parents[3] / "docs/how-to/billing.md").read_text()
    assert f"which is **{cost}**" in page


def test_a_price_counts_digit_by_digit() -> None:
    card = RateCard.from_settings(BillingSettings(telephony_per_minute=0.1, inference_per_1000_tokens=1e-07))
    assert (card.telephony, card.tokens) == (Decimal("0.1"), Decimal("0.0000001"))
    assert card.cost_of(CallUsage(telephony_s=180)) == Decimal("0.3")


async def set_plans(harness: CallServiceHarness, **facts: Any) -> None:
    """Set plan and balance of every organization."""
    await harness.database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(**facts)))


async def balance_and_notes(harness: CallServiceHarness, organization_id: str) -> tuple[Decimal, list[BalanceChange]]:
    """Returns the balance, and the notes of its changes."""

    def look(conn: sa.Connection) -> tuple[Decimal, list[BalanceChange]]:
        found = organizations.get(conn, organization_id)
        assert found is not None
        return found.balance, balances.last_changes(conn, organization_id, 100)

    return await harness.database.read(look)


async def test_a_paid_plan_is_debited_at_the_calls_end_and_a_free_plan_is_not(tmp_path: Path) -> None:
    goodbye: list[LlmOutput] = [TextDelta("Goodbye then."), HANG_UP]
    async with call_service(tmp_path, goodbye, goodbye, billing=PRICES) as harness:
        number, _ = await harness.create_number(first_speaker="agent")
        assert (await harness.ended_call(harness.invite())).cost is None
        assert await balance_and_notes(harness, number.organization_id) == (0, [])
        await set_plans(harness, plan="paid", balance="10")
        charged = metrics.CHARGED._value.get()
        call = await harness.ended_call(harness.invite())
        left, (change,) = await balance_and_notes(harness, number.organization_id)
    assert CallUsage.from_json(call.usage).spoken_characters == len("Goodbye then.")
    assert call.cost == float(cost_by_hand(call)) > 0
    assert metrics.CHARGED._value.get() - charged == pytest.approx(call.cost)
    assert left == Decimal(10) - cost_by_hand(call)
    assert (change.amount, change.balance_after) == (-cost_by_hand(call), left)
    assert (change.call_id, change.made_by) == (call.id, "server")
    assert f"{len('Goodbye then.')} characters spoken" in (change.note or "")


async def test_an_unanswered_call_has_a_cost_of_zero(tmp_path: Path) -> None:
    async with call_service(tmp_path, billing=PRICES) as harness:
        line = await harness.create_number()
        await set_plans(harness, plan="paid", balance="1")
        waiting = await queue(harness, line)
        (await callee(harness)).ends(486)
        call = await ended(harness, waiting)
        assert call.cost == 0
        assert await balance_and_notes(harness, call.organization_id) == (1, [])


async def test_calls_that_end_together_are_all_debited_also_below_zero(tmp_path: Path) -> None:
    async with call_service(tmp_path, billing=PRICES) as harness:
        number, _ = await harness.create_number(**GREETS)
        await set_plans(harness, plan="paid", balance="0")  # inbound calls are answered all the same
        phones = [harness.invite() for _ in range(4)]
        await until(lambda: all(phone.leg.on_digit is not None for phone in phones))
        for phone in phones:
            phone.hangs_up()
        ended_calls = await asyncio.gather(*(harness.ended_call(phone) for phone in phones))
        left, changes = await balance_and_notes(harness, number.organization_id)
    assert left == -sum(cost_by_hand(call) for call in ended_calls) < 0
    assert sorted(str(change.call_id) for change in changes) == sorted(call.id for call in ended_calls)
    assert changes[-1].balance_after == left


async def test_an_end_that_is_stored_at_the_second_attempt_is_debited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.post_call.finalizer.STORE_RETRIES_S", (0.01,))
    real, tries = deliveries.add_all, []

    def fails_once(*arguments: Any, **named: Any) -> list[deliveries.Delivery]:
        tries.append(named)
        if len(tries) == 1:
            raise StorageUnavailable("the disk cannot be read or written")
        return real(*arguments, **named)

    monkeypatch.setattr(deliveries, "add_all", fails_once)
    async with call_service(tmp_path, [TextDelta("Goodbye."), HANG_UP], billing=PRICES) as harness:
        number, _ = await harness.create_number(first_speaker="agent", post_call_webhook_url="https://receiver.test/")
        await set_plans(harness, plan="paid", balance="1")
        call = await harness.ended_call(harness.invite())
        assert len(tries) == 2
        left, changes = await balance_and_notes(harness, number.organization_id)
    assert (left, len(changes)) == (1 - cost_by_hand(call), 1)


async def test_the_analysis_of_a_call_is_part_of_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid_before = []

    async def analyse(*_: Any) -> tuple[calls.Analysis, CallUsage]:
        paid_before.append(await balance_and_notes(harness, number.organization_id))
        return {"summary": "All is well.", "extractions": {}}, CallUsage(prompt_tokens=700, completion_tokens=100)

    monkeypatch.setattr("calls.post_call.analysis.CallAnalyzer.analyze", analyse)
    async with call_service(tmp_path, [TextDelta("Goodbye."), HANG_UP], hears=["bye"], billing=PRICES) as harness:
        number, _ = await harness.create_number(first_speaker="user", post_call_summary_enabled=True)
        await set_plans(harness, plan="paid", balance="1")
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "1#":
            phone.driver.on_digit(digit, "rfc4733")
        ended_call = await harness.ended_call(phone)
        ended_call = await ended(harness, ended_call)
        left, (change,) = await balance_and_notes(harness, number.organization_id)
    assert paid_before == [(1, [])]
    assert ended_call.analysis is not None
    assert CallUsage.from_json(ended_call.usage).tokens == 800
    assert left == 1 + change.amount == 1 - cost_by_hand(ended_call)


async def test_an_active_call_outlasts_the_balance_and_the_next_one_is_not_dialled(tmp_path: Path) -> None:
    async with call_service(tmp_path, billing=PRICES) as harness:
        number, _ = await harness.create_number(**GREETS)
        await set_plans(harness, plan="paid", balance="0.000001")

        def refused(conn: sa.Connection) -> Verdict | None:
            owner = organizations.get(conn, number.organization_id)
            assert owner is not None
            refusal = permissions.dial_rejection(conn, number, owner, "+4917012", lambda *_: None)
            return None if refusal is None else refusal.verdict

        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        assert await harness.database.read(refused) is None
        await set_plans(harness, balance="0")
        assert await harness.database.read(refused) == "refused_funds"
        assert not phone.leg.ended.done()
        phone.hangs_up()
        call = await harness.ended_call(phone)
        left, _ = await balance_and_notes(harness, number.organization_id)
        assert call.ended_reason == "customer_ended"
        assert left == -cost_by_hand(call) < 0


async def test_inbound_calls_are_rejected_without_balance_if_that_is_set(tmp_path: Path) -> None:
    settings = PRICES.model_copy(update={"inbound_when_empty": "refuse"})
    async with call_service(tmp_path, [TextDelta("Goodbye."), HANG_UP], billing=settings) as harness:
        await harness.create_number(first_speaker="agent")
        await set_plans(harness, plan="paid", balance="0")
        phone = harness.invite()
        with capture_logs() as logs:
            await until(phone.leg.ended.done)
        assert phone.sent == [480]
        assert await harness.all_calls() == []
        assert [event["why"] for event in logs if event["event"] == "call.refused"] == ["the organization has no funds"]
        await set_plans(harness, balance="0.01")
        assert (await harness.ended_call(harness.invite())).status == "completed"


DIES = """
import asyncio, os, sys
from calls.post_call.finalizer import CallFinalizer
from calls.call_record.outcome import CallOutcome
from calls.call_record.billing import RateCard
from calls.call_record.metering import CallUsage
from config.clock import utc_now
from decimal import ROUND_HALF_UP, Decimal
from storage.webhooks import deliveries
from storage.database.database import Database

async def main(url, call_id, moment):
    database = Database(url)
    await database.open()
    die = lambda *_, **__: os.kill(os.getpid(), 9)
    if moment == "before":
        deliveries.add_all = die  # after the debit, before the commit
    finalizer = CallFinalizer(database, None, "", die, RateCard(text_to_speech=Decimal(1)))
    if moment == "after":
        finalizer._add_webhook = lambda *_: True  # it is committed: `wake` is called
    usage = CallUsage(spoken_characters=500)
    now = utc_now()
    await finalizer.finish(call_id, CallOutcome("completed", "agent_ended", now, answered_at=now, usage=usage), None)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("moment", "cost"), [("before", "0.2"), ("after", "0.5")])
async def test_a_process_killed_during_the_debit_leaves_one_debit(
    database: Database, secrets: Secrets, tmp_path: Path, moment: str, cost: str
) -> None:
    """Before the commit there is no debit, and the next start debits the stored usage; after it there is one."""
    call = await database.write(_live)
    await database.close()
    run = [sys.executable, "-c", DIES, database.url.render_as_string(hide_password=False), call.id, moment]
    child = await asyncio.to_thread(subprocess.run, run, check=False)
    assert child.returncode == -signal.SIGKILL

    def paid(conn: sa.Connection) -> list[Decimal]:
        return [change.amount for change in balances.last_changes(conn, call.organization_id, 10)]

    await database.open()
    assert await database.read(paid) == [-Decimal(cost)] * (moment == "after")
    for _ in range(2):
        await CallFinalizer(database, secrets, "https://here.test", lambda: None, CARD).recover(tmp_path)
    assert await database.read(paid) == [-Decimal(cost)]
    stored = await database.read(lambda conn: calls.get_by_id(conn, call.id))
    owner = await database.read(lambda conn: organizations.get(conn, call.organization_id))
    assert stored is not None
    assert owner is not None
    assert (stored.cost, owner.balance) == (float(cost), 1 - Decimal(cost))


def _live(conn: sa.Connection) -> Call:
    """Returns an answered call of a paid plan, in which the agent has spoken."""
    owner = organizations.create(conn, "paying", plan="paid", balance=1)
    fields = AgentFields(name="a", post_call_webhook_url="https://receiver.test/")
    made = calls.create_inbound(
        conn,
        organization_id=owner.id,
        agent_id=agents.create(conn, owner.id, fields).id,
        phone_number_id="n",
        provider="sip",
        call_sid="c",
        customer_number="+1",
    )
    calls.mark_answered(conn, made.id, made.created_at)
    calls.store_progress(conn, made.id, transcript=[], turn_count=0, usage=CallUsage(spoken_characters=200).to_json())
    return made


async def test_telephony_is_billed_by_the_stored_times(database: Database) -> None:
    def pay(conn: sa.Connection) -> tuple[float | None, Call | None]:
        call = _live(conn)
        at = call.created_at + timedelta(seconds=10, milliseconds=1)
        ended_call = calls.finish(conn, call.id, status="completed", ended_reason="agent_ended", ended_at=at)
        assert ended_call is not None
        return charge(conn, ended_call, CallUsage(telephony_s=1e9), RateCard(telephony=Decimal(6))), calls.get_by_id(
            conn, call.id
        )

    cost, call = await database.write(pay)
    assert call is not None
    assert (cost, call.cost, CallUsage.from_json(call.usage).telephony_s) == (1.0001, 1.0001, 10.001)
