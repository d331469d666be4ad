"""The caller id of a transfer's second leg: what the number's setting shows, and what a caller cannot make of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calls.session.transfer.caller_identity import second_leg_identity
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.captured_headers import CapturedHeaders
from sipcore.messages.headers import NameAddr, parse_name_addr
from storage.calls.calls import Call, new_inbound
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber, TransferCallerId
from tests.calls.call_service_harness import call_service
from tests.calls.outbound_calls import callee
from tests.calls.session.transfer.transfer_calls import AGENT, tool_call

OWN = NameAddr("+4930100", "Front desk")
DIVERTED_BY = NameAddr("+4930100", "")
CALLER_ID_SETTINGS: list[TransferCallerId] = ["own", "caller", "caller_in_from"]


def number(shown: TransferCallerId) -> PhoneNumber:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    return PhoneNumber(
        number="+4930100",
        name="Front desk",
        provider="sip",
        sip_transfer_caller_id=shown,
        id="n",
        organization_id="o",
        source=None,
        created_at=at,
        updated_at=at,
    )


def call(customer: str, **changes: Any) -> Call:
    made = new_inbound(
        organization_id="o", agent_id="a", phone_number_id="n", provider="sip", call_sid="s", customer_number=customer
    )
    return replace(made, **changes)


def facts(name: str = "Ann", headers: CapturedHeaders | None = None) -> InviteFacts:
    to = NameAddr("+4930100", "")
    return InviteFacts("s", "inbound", "192.0.2.1", to.user, to, NameAddr("+49170", name), headers=headers or {})


@pytest.mark.parametrize(
    ("shown", "identity"),
    [
        ("own", CallerIdentity(OWN, None, DIVERTED_BY)),
        ("caller", CallerIdentity(NameAddr("+49170", "Ann"), None, DIVERTED_BY)),
        ("caller_in_from", CallerIdentity(NameAddr("+49170", "Ann"), OWN, DIVERTED_BY)),
    ],
)
def test_the_setting_of_the_number_decides_what_is_shown(shown: TransferCallerId, identity: CallerIdentity) -> None:
    assert second_leg_identity(call("+49170"), facts(), number(shown)) == identity


@pytest.mark.parametrize("shown", CALLER_ID_SETTINGS)
def test_a_withheld_number_stays_withheld(shown: TransferCallerId) -> None:
    hidden = {"P-Asserted-Identity": ('"Ann" <sip:+49170@h>',), "Privacy": ("id",)}
    identity = second_leg_identity(call("anonymous"), facts("Ann", hidden), number(shown))
    lines = [*identity.header_lines("192.0.2.9"), ("From", repr(identity.caller))]
    assert not any("Ann" in value or "49170" in value for _, value in lines)
    assert (("Privacy", "id") in lines) is (shown != "own")
    assert identity.caller == (OWN if shown == "own" else NameAddr("anonymous", "Anonymous"))


@pytest.mark.parametrize("shown", CALLER_ID_SETTINGS)
def test_a_caller_without_a_phone_number_is_not_named(shown: TransferCallerId) -> None:
    identity = second_leg_identity(call("alice.smith"), facts("Alice"), number(shown))
    assert identity == CallerIdentity(OWN, diverted_by=DIVERTED_BY)


def test_the_name_of_our_own_number_is_not_given_to_a_callee_of_ours() -> None:
    parent = call("+49170", direction="outbound")
    ours = replace(facts("Front desk"), direction="outbound")
    assert second_leg_identity(parent, ours, number("caller")).caller == NameAddr("+49170", "")


@pytest.mark.parametrize(
    "name",
    [
        "Ann\r\nX-Evil: 1",
        '" <sip:0900@h>;x="',
        'Ann\\" <sip:0900@h>',
        "Ann\x00\x07",
        "A" * 5000,
        "\u2028X-Evil: 1",
        "sip:0900@h>",
    ],
)
def test_a_callers_name_adds_no_header_and_no_uri(name: str) -> None:
    identity = second_leg_identity(call("+49170"), facts(name), number("caller"))
    for field, value in identity.header_lines("192.0.2.9"):
        assert value.isprintable()
        assert parse_name_addr(value).user == {"P-Asserted-Identity": "+49170", "Diversion": "+4930100"}[field]
        assert len(value) < 400


async def test_the_target_sees_what_the_number_is_set_to(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        ours, _ = await harness.create_number(**AGENT)
        changes = {"sip_transfer_method": "bridge", "sip_transfer_caller_id": "caller"}
        await harness.database.write(lambda conn: phone_numbers.replace(conn, ours, changes))
        harness.invite(number="+4917099", name="Ann")
        target = await callee(harness)
    assert target.caller == CallerIdentity(NameAddr("+4917099", "Ann"), None, DIVERTED_BY)


async def test_the_target_sees_our_number_by_default(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        ours, _ = await harness.create_number(**AGENT)
        await harness.database.write(lambda conn: phone_numbers.replace(conn, ours, {"sip_transfer_method": "bridge"}))
        harness.invite(number="+4917099", name="Ann")
        target = await callee(harness)
    assert target.caller == CallerIdentity(NameAddr("+4930100", ""), None, DIVERTED_BY)
