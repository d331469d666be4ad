"""Billing of a call of a paid organization: its cost by the rate card is subtracted from the balance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from storage.accounts import api_keys, organizations
from tests.media.speech import speech
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import PRICES, Office
from tests.trunkline.server_process import command
from tests.trunkline.sip_phone import calling

pytestmark = pytest.mark.asyncio(loop_scope="package")
FIRST = Decimal("0.000001")
SENTENCES = ("Hi.", "It is €5.")


def price(name: str) -> Decimal:
    return Decimal(str(PRICES[name]))


def expected_cost(call: Mapping[str, Any]) -> Decimal:
    """The cost of a call by its usage in the API."""
    usage = {name: Decimal(str(value)) for name, value in call["usage"].items()}
    exact = (
        price("telephony_per_minute") * usage["telephonySeconds"] / 60
        + price("inference_per_1000_tokens") * (usage["promptTokens"] + usage["completionTokens"]) / 1000
        + price("speech_to_text_per_minute") * usage["heardSeconds"] / 60
        + price("text_to_speech_per_1000_characters") * usage["spokenCharacters"] / 1000
    )
    return exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)


def create_paid_organization(conn: sa.Connection) -> str:
    """Create a paid organization with a small balance; returns an API key."""
    owner = organizations.create(conn, "Paying", plan="paid", balance=FIRST)
    return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]


async def test_a_call_is_charged_by_its_usage_and_the_next_one_is_rejected_without_balance(
    office: Office, tmp_path: Path
) -> None:
    async def run(*arguments: str) -> str:
        code, out, err = await command(*arguments, folder=tmp_path, environment=office.server.environment)
        assert code == 0, err
        return out.strip()

    async with office.server.database() as database:
        key = await database.write(create_paid_organization)
    office.server.secrets.add(key)
    async with Client(office.server.origin, key, office.server.secrets) as client:
        greeting = " ".join(SENTENCES)
        agent_id = await client.agent(firstSpeaker="agent", agentGreeting=greeting, agentGreetingEnabled=True)
        number_id = await client.number("300", agent_id)
        since = office.server.log.mark()
        async with calling(office.server.target, "300") as phone:
            answered = await office.server.event("call.answered", since=since)
            call_id = answered["call_id"]
            assert "usage" not in await client.call(call_id)
            await office.server.event("turn.agent", since=since, call_id=call_id)
            await phone.hears(50)  # what is said at once after the agent may be its echo
            phone.say(speech("hello there"))
            await phone.has_said()
            await phone.hears(25)
            await phone.hang_up()
        await office.server.event("call.ended", since=since, call_id=call_id)
        call = await client.call(call_id)
        usage = call["usage"]
        assert Decimal(str(call["cost"])) == expected_cost(call) > 0
        started, ended = (datetime.fromisoformat(call[name]) for name in ("startedAt", "endedAt"))
        assert usage["telephonySeconds"] == (ended - started).total_seconds() > 1.5
        assert usage["spokenCharacters"] >= sum(map(len, SENTENCES))
        assert 0 < usage["heardSeconds"] < usage["telephonySeconds"]
        assert (usage["promptTokens"], usage["completionTokens"]) == (0, 0), "the responder has no tokens"

        wish = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550100"}
        assert await client.status("POST", "calls", wish) == 402
        change = json.loads((await run("org", "balance", "Paying", "--json")).splitlines()[-1])
        assert Decimal(change["amount"]) == -expected_cost(call)
        assert Decimal(change["balanceAfter"]) == FIRST - expected_cost(call)
        assert change["callId"] == call_id
        balance = Decimal(await run("org", "topup", "Paying", "2.5", "--note", "invoice 7"))
        assert balance == FIRST - expected_cost(call) + Decimal("2.5")
        assert await client.status("POST", "calls", wish) == 201
        (waiting,) = await client.v1("GET", "calls?direction=outbound")
        await client.status("POST", f"calls/{waiting['id']}/hangup")
