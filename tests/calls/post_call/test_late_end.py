"""The true end of a call that another node has closed as `server_restart`: stored, charged and told once."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.settings_tables import BillingSettings
from storage.accounts import organizations
from storage.calls.calls import Call
from storage.webhooks import deliveries
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, every_call, until
from tests.calls.session.test_outage import answered_call, charges_of, make_paid
from tests.transcripts import without_times

EVENTS: dict[str, Any] = {**GREETS, "post_call_webhook_url": "https://receiver.test/hook"}
PRICES = BillingSettings(telephony_per_minute=0.6, text_to_speech_per_1000_characters=1.0)


async def balance_of(harness: CallServiceHarness, call: Call) -> Decimal:
    found = await harness.database.read(partial(organizations.get, organization_id=call.organization_id))
    assert found is not None
    return found.balance


@pytest.mark.parametrize("summary", [False, True])
async def test_the_true_end_of_a_call_that_another_node_has_closed(tmp_path: Path, summary: bool) -> None:
    async with call_service(tmp_path, "I see.", billing=PRICES) as harness:
        await harness.create_number(**EVENTS, post_call_summary_enabled=summary)
        await make_paid(harness)
        phone = await answered_call(harness)
        await harness.database.until(every_call, lambda found: bool(found[0].started_at))
        assert await harness.service.recover() == 1, "as another node does, which misses this one's heartbeats"
        (closed,) = await harness.all_calls()
        assert (closed.ended_reason, closed.recorded) == ("server_restart", True)
        for digit in "1#":
            phone.driver.on_digit(digit, "rfc4733")
        await harness.tts.until_spoken(2)
        phone.hangs_up()
        await until(lambda: not harness.service.active_calls())
        (call,) = await harness.database.until(
            every_call, lambda found: found[0].ended_reason == "customer_ended" and found[0].ended_at is not None
        )
        assert (call.status, call.recorded, call.started_at) == ("completed", True, closed.started_at)
        assert without_times(call.transcript)[0] == {"role": "assistant", "content": GREETS["agent_greeting"]}
        assert len(call.transcript) > len(closed.transcript)
        assert (call.analysis is not None) == summary
        charges = await charges_of(harness, call)
        assert len(charges) == 2 and all(each < 0 for each in charges)
        assert call.cost is not None and closed.cost is not None
        assert -sum(charges) == Decimal(str(call.cost)) > Decimal(str(closed.cost)) == -charges[0]
        assert await balance_of(harness, call) == 10 - Decimal(str(call.cost))
        told = await harness.database.read(partial(deliveries.of_call, call_id=call.id))
        assert [json.loads(each.body)["event"] for each in told] == ["call.completed"]
