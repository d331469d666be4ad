"""Inbound digest authentication of calls to numbers with `sip_inbound_auth`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from sipcore.security.digest import DigestVerifier
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.fakes.fake_leg import SOURCE, Phone
from tests.sipcore.security.test_digest import Caller

USER, PASSWORD = "harbour", "hush hush"


async def create_challenging_number(harness: CallServiceHarness, number: str = "+4930100", **facts: Any) -> PhoneNumber:
    """Create a number with `sip_inbound_auth`, in an organization of its own."""
    stored, _ = await harness.create_number(number, **facts)
    token = harness.secrets.encrypt(PASSWORD)
    changes = {"sip_inbound_auth": True, "sip_username": USER, "sip_password_encrypted": token}
    return await harness.database.write(lambda conn: phone_numbers.replace(conn, stored, changes))


async def rejected_statuses(phone: Phone) -> list[int]:
    """Wait for the end of a rejected call; returns its statuses."""
    await until(phone.leg.ended.done)
    return phone.sent


async def challenged(harness: CallServiceHarness) -> Caller:
    """Send an INVITE that is challenged; returns a digest client with the nonce."""
    phone = harness.invite()
    assert await rejected_statuses(phone) == [401]
    caller = Caller(DigestVerifier(["MD5"]), "MD5", SOURCE)
    caller.uri = "sip:+4930100@192.0.2.5"
    found = re.search('nonce="([^"]+)"', phone.dialog.headers["WWW-Authenticate"])
    assert found is not None
    caller.nonce = found[1]
    return caller


async def test_authenticated_caller_is_admitted_and_the_challenge_counts_as_no_call(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number = await create_challenging_number(harness)
        with capture_logs() as lines:
            caller = await challenged(harness)
        assert await harness.all_calls() == []
        assert [each["event"] for each in lines if each["log_level"] != "debug"] == []
        phone = harness.invite(authorization=caller.header(user=USER, password=PASSWORD))
        await until(lambda: 200 in phone.sent)
        assert (await harness.stored_call(phone)).phone_number_id == number.id


async def test_a_number_without_inbound_auth_challenges_no_caller(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness)
        await harness.create_number("+4930200")
        phone = harness.invite(dials="+4930200", authorization="Digest nonsense")
        await until(lambda: 200 in phone.sent)


@pytest.mark.parametrize(
    ("uri", "place", "status"),
    [
        ("sip:+4930100@pbx.example", "", 200),
        ("sip:4930100@pbx.example:5070;transport=tcp", "", 200),
        ("sips:%2B4930100@192.0.2.5", "", 200),
        ("tel:+4930100", "", 200),
        ("sip:192.0.2.5:5060", "192.0.2.5:5060", 200),
        ("sip:+4930200@192.0.2.5", "192.0.2.5:5060", 401),
        ("sip:+4930100x@192.0.2.5", "192.0.2.5:5060", 401),
        ("sip:192.0.2.9:5060", "192.0.2.5:5060", 401),
        ("sip:192.0.2.5", "192.0.2.5:5060", 401),
        ("x", "", 401),
        ("", "", 401),
    ],
)
async def test_a_digest_uri_of_another_call_is_wrong(tmp_path: Path, uri: str, place: str, status: int) -> None:
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness)
        caller = await challenged(harness)
        caller.uri = uri
        phone = harness.invite(authorization=caller.header(user=USER, password=PASSWORD), place=place)
        await until(lambda: phone.sent and phone.sent[-1] >= 200)
        assert phone.sent[-1] == status


async def test_the_digest_uri_must_name_the_matched_number_also_when_it_comes_from_to(
    tmp_path: Path,
) -> None:
    """A trunk could obtain such credentials by challenging an outbound call."""
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness)
        caller = await challenged(harness)
        caller.uri = "sip:+4940999@192.0.2.10"
        proof = caller.header(user=USER, password=PASSWORD)
        assert await rejected_statuses(harness.invite(dials="+4940999", to="+4930100", authorization=proof)) == [401]


async def test_an_unauthenticated_caller_cannot_tell_whether_the_number_has_an_agent(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness, assigned=False)
        caller = await challenged(harness)
        assert await rejected_statuses(harness.invite(authorization=caller.header(user=USER, password=PASSWORD))) == [
            480
        ]


async def test_wrong_credentials_are_logged_counted_and_challenged_again_without_a_secret(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness)
        caller = await challenged(harness)
        labels = {"outcome": "wrong"}
        before = REGISTRY.get_sample_value("trunkline_inbound_digests_total", labels) or 0
        with capture_logs() as lines:
            phone = harness.invite(authorization=caller.header(user=USER, password="guess"))
            assert await rejected_statuses(phone) == [401]
        assert "WWW-Authenticate" in phone.dialog.headers
        assert REGISTRY.get_sample_value("trunkline_inbound_digests_total", labels) == before + 1
        [line] = [each for each in lines if each["event"] == "sip.digest_failed"]
        assert (line["source"], line["number"], line["log_level"]) == (SOURCE, "+4930100", "warning")
        assert not any(word in repr(lines) for word in ("guess", PASSWORD))


async def test_after_five_wrong_credentials_a_source_is_rejected_with_403(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await create_challenging_number(harness)
        caller = await challenged(harness)
        wrong = [caller.header(count, user=USER, password="guess") for count in range(1, 7)]
        assert [await rejected_statuses(harness.invite(authorization=each)) for each in wrong] == [[401]] * 5 + [[403]]
        assert await rejected_statuses(
            harness.invite(authorization=caller.header(9, user=USER, password=PASSWORD))
        ) == [403]
        assert await harness.all_calls() == []


async def test_wrong_credentials_at_one_organization_do_not_block_the_source_at_another(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        mine = await create_challenging_number(harness)
        await create_challenging_number(harness, "+4930200")
        caller = await challenged(harness)
        caller.uri = "sip:+4930200@192.0.2.5"
        wrong = [caller.header(count, user=USER, password="guess") for count in range(1, 7)]
        ends = [await rejected_statuses(harness.invite(dials="+4930200", authorization=each)) for each in wrong]
        assert ends == [[401]] * 5 + [[403]]
        caller.uri = "sip:+4930100@192.0.2.5"
        phone = harness.invite(authorization=caller.header(9, user=USER, password=PASSWORD))
        await until(lambda: 200 in phone.sent)
        assert (await harness.stored_call(phone)).phone_number_id == mine.id


async def test_a_number_that_challenges_and_has_no_credentials_rejects_every_call(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number = await create_challenging_number(harness)
        changes = {"sip_password_encrypted": None}
        await harness.database.write(lambda conn: phone_numbers.replace(conn, number, changes))
        assert await rejected_statuses(harness.invite()) == [403]
