"""Number routing: which inbound calls are admitted, and the SIP status of the others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls import invite_admission
from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.admission.refused_invites import (
    NUMBERS,
    ORGANIZATIONS,
    PER_NUMBER,
    RefusedInvite,
    RefusedInvites,
    merged_invites,
)
from config.clock import utc_now
from storage.calls import calls
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.database.postgresql.locks import hold_writes
from storage.database.sqlite.engine import READERS
from storage.phone_numbers import phone_numbers, trunk_grants
from tests.calls.call_service_harness import CallServiceHarness, call_service, every_call, until
from tests.fakes.fake_leg import SOURCE, Phone
from tests.peers import postgresql
from tests.storage.transaction_gate import Gate, names_in

T = TypeVar("T")


async def rejected_statuses(harness: CallServiceHarness, phone: Phone) -> list[int]:
    await until(phone.leg.ended.done)
    return phone.sent


async def test_an_unknown_number_from_a_known_trunk_is_404_and_leaves_no_call(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        assert await rejected_statuses(harness, harness.invite(dials="+4930999")) == [404]
        assert await harness.all_calls() == []


async def test_a_number_of_another_trunk_is_unknown(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        assert await rejected_statuses(harness, harness.invite(source="192.0.2.99")) == [404]


async def test_a_number_whose_trunk_was_denied_is_unknown_and_another_one_on_it_is_not(
    tmp_path: Path,
) -> None:
    async with call_service(tmp_path, trunk_policy="auto") as harness:
        granted, _ = await harness.create_number("+4930100")
        await harness.create_number("+4930200")

        def give_to_one(conn: sa.Connection) -> None:
            trunk_grants.deny(conn, granted.organization_id, SOURCE, None, actor="ann")

        await harness.database.write(give_to_one)
        assert await rejected_statuses(harness, harness.invite(dials="+4930100")) == [404]
        phone = harness.invite(dials="+4930200")
        await until(lambda: 200 in phone.sent)


async def test_a_number_of_two_organizations_on_one_source_is_rejected_and_the_log_names_both(tmp_path: Path) -> None:
    """Each has a host name of its own; both resolve to the caller's address."""
    async with call_service(tmp_path) as harness:
        mine, _ = await harness.create_number()
        theirs, _ = await harness.create_number("4930200")

        def share(conn: sa.Connection) -> None:
            phone_numbers.replace(conn, mine, {"sip_ip": "sip.carrier.test"})
            phone_numbers.replace(conn, theirs, {"sip_ip": "alias.test", "number": "4930100"})

        await harness.database.write(share)
        harness.aliases[SOURCE] = {SOURCE, "sip.carrier.test", "alias.test"}
        with capture_logs() as lines:
            assert await rejected_statuses(harness, harness.invite()) == [404]
        [line] = [each for each in lines if each["event"] == "call.contested"]
        assert (line["source"], line["taken"], line["log_level"]) == (SOURCE, None, "warning")
        assert all(each.id in str(line["numbers"]) for each in (mine, theirs))
        assert await harness.all_calls() == []


async def test_a_number_without_an_agent_is_480(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(assigned=False)
        assert await rejected_statuses(harness, harness.invite()) == [480]


async def test_an_inactive_agent_is_480(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(is_active=False)
        assert await rejected_statuses(harness, harness.invite()) == [480]


@pytest.mark.parametrize(
    ("dials", "to"), [("+4930100", ""), ("4930100", ""), ("trunk-user", "+4930100"), ("", "4930100")]
)
async def test_the_dialled_number_is_the_request_s_user_or_to_s_with_or_without_plus(
    tmp_path: Path, dials: str, to: str
) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number()
        phone = harness.invite(dials=dials, to=to)
        await until(lambda: 200 in phone.sent)
        assert (await harness.stored_call(phone)).phone_number_id == number.id


async def test_an_organization_at_its_limit_gets_486_and_others_are_admitted(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(max_calls=1)
        await harness.create_number("+4930200")
        first = harness.invite()
        await until(lambda: 200 in first.sent)
        assert await rejected_statuses(harness, harness.invite()) == [486]
        other = harness.invite(dials="+4930200")
        await until(lambda: 200 in other.sent)
        first.hangs_up()
        await harness.ended_call(first)
        again = harness.invite()
        await until(lambda: 200 in again.sent)


async def test_calls_that_arrive_together_do_not_exceed_the_limit(tmp_path: Path) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(organization=2)) as harness:
        await harness.create_number()
        phones = [harness.invite() for _ in range(6)]
        await until(lambda: sum(bool(phone.sent) and phone.sent[-1] >= 200 for phone in phones) == 6)
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 486, 486, 486, 486]


async def test_a_full_process_is_503_with_retry_after(tmp_path: Path) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(process=1)) as harness:
        await harness.create_number()
        first = harness.invite()
        await until(lambda: 200 in first.sent)
        second = harness.invite()
        assert await rejected_statuses(harness, second) == [503]
        assert int(second.dialog.headers["Retry-After"]) > 0


async def test_a_failing_database_is_503_and_ends_no_other_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        first = harness.invite()
        await until(lambda: 200 in first.sent)
        with monkeypatch.context() as broken:

            def full(*_: object, **__: object) -> None:
                raise StorageUnavailable("the disk cannot be read or written")

            broken.setattr(calls, "insert", full)
            assert await rejected_statuses(harness, harness.invite()) == [503]
        assert not first.leg.ended.done()


@contextmanager
def write_locked(database: Database) -> Iterator[None]:
    """Another process has a write transaction open on the database, which excludes all others."""
    if not database.is_sqlite:
        with postgresql.server().session(str(database.url.database)) as session:
            session.execute(hold_writes())
            yield
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_an_invite_does_not_wait_behind_a_list_request(tmp_path: Path) -> None:
    """All connections for list requests are in use, and a hundred more requests wait."""
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        gates = [Gate() for _ in range(READERS)]
        reads = [asyncio.create_task(harness.database.read(lambda conn, gate=gate: gate.wait(conn))) for gate in gates]  # type: ignore[misc]
        for gate in gates:
            await gate.reached()
        reads += [asyncio.create_task(harness.database.read(names_in, owner="many")) for _ in range(100)]
        phone = harness.invite()
        await until(lambda: harness.service.active_call_count == 1)
        assert not any(each.done() for each in reads)
        for gate in gates:
            gate.open()
        await asyncio.gather(*reads)
        await until(lambda: 200 in phone.sent)


async def test_a_stalled_database_delays_a_limited_number_of_invites_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invite_admission, "ADMISSION_TIMEOUT_S", 0.5)
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        tasks = len(asyncio.all_tasks())
        with write_locked(harness.database):
            phones = [harness.invite() for _ in range(invite_admission.MAX_PENDING_INVITES + 20)]
            await until(lambda: sum(phone.sent == [503] for phone in phones) == 20)
            assert not any(phone.sent for phone in phones[: invite_admission.MAX_PENDING_INVITES]), (
                "they still wait for the database"
            )
            await until(lambda: all(phone.sent == [503] for phone in phones))
            assert all(int(phone.dialog.headers["Retry-After"]) > 0 for phone in phones)
            assert await rejected_statuses(harness, harness.invite()) == [503], (
                "the places of those that were told are not free yet"
            )
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert await harness.all_calls() == [], "no rejected call is stored"
        late = harness.invite()
        await until(lambda: 200 in late.sent)


async def test_a_call_that_was_rejected_while_it_was_stored_is_no_active_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that contains the call is slow."""
    monkeypatch.setattr(invite_admission, "ADMISSION_TIMEOUT_S", 1.0)  # enough for the steps before the commit
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        write = harness.database.write

        async def slow(work: Callable[[sa.Connection], T], **more: Any) -> T:
            result = await write(work, **more)
            await until(lambda: 503 in phone.sent)
            return result

        monkeypatch.setattr(harness.database, "write", slow)
        phone = harness.invite()
        [call] = await harness.database.until(every_call, lambda calls: bool(calls) and calls[0].ended_at is not None)
        assert (call.status, call.ended_reason) == ("failed", "error")
        await until(lambda: harness.service.active_call_count == 0)
        assert phone.sent[0] == 503


async def test_reaching_and_leaving_the_process_limit_is_reported_at_once(tmp_path: Path) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(process=2)) as harness:
        reports: list[bool] = []
        harness.service.on_capacity_changed = lambda: reports.append(harness.service.is_full)
        await harness.create_number()
        phones = [harness.invite() for _ in range(2)]
        await until(lambda: all(200 in phone.sent for phone in phones))
        assert reports == [False, True]
        phones[0].hangs_up()
        await harness.ended_call(phones[0])
        assert reports == [False, True, False]


async def test_a_refused_call_is_kept_for_its_number_with_the_reason(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number(assigned=False)
        await rejected_statuses(harness, harness.invite(number="+4917012"))
        (refused,) = harness.service.refused_invites.of(number.organization_id)
        assert (refused.phone_number_id, refused.code, refused.reason) == (
            number.id,
            480,
            "no agent answers this number",
        )
        assert (refused.source, refused.dialled, refused.caller) == (SOURCE, "+4930100", "+4917012")


async def test_a_refused_call_to_an_unknown_number_is_kept_for_the_one_organization_of_its_source(
    tmp_path: Path,
) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number()
        await rejected_statuses(harness, harness.invite(dials="+4930999"))
        await until(lambda: harness.service.refused_invites.of(number.organization_id))
        (refused,) = harness.service.refused_invites.of(number.organization_id)
        assert (refused.phone_number_id, refused.code, refused.dialled) == (None, 404, "+4930999")


async def test_a_refused_call_to_an_unknown_number_of_a_shared_source_is_kept_for_nobody(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        numbers = [(await harness.create_number(each))[0] for each in ("+4930100", "+4930200")]
        await rejected_statuses(harness, harness.invite(dials="+4930999"))
        await harness.service.drain(5)  # the look-up of its organizations has ended
        assert [harness.service.refused_invites.of(each.organization_id) for each in numbers] == [[], []]


def test_refused_calls_are_bounded_and_one_number_evicts_no_other() -> None:
    kept = RefusedInvites()

    def refused(number: str, minute: int) -> RefusedInvite:
        return RefusedInvite(utc_now() + timedelta(minutes=minute), number, SOURCE, number, "1", 480, "no agent")

    kept.add("one", refused("quiet", 0))
    for minute in range(1000):
        kept.add("one", refused("busy", minute))
        kept.add("other", refused("loud", minute))
    found = kept.of("one")
    assert [each.phone_number_id for each in found].count("busy") == PER_NUMBER
    assert found[-1].phone_number_id == "quiet" and found == sorted(found, key=lambda each: each.at, reverse=True)
    for number in range(NUMBERS):
        kept.add("one", refused(f"number {number}", 0))
    assert len({each.phone_number_id for each in kept.of("one")}) == NUMBERS
    for organization in range(ORGANIZATIONS):
        kept.add(f"organization {organization}", refused("1", 0))
    assert kept.of("one") == []


def test_refused_calls_of_several_servers_have_the_order_and_the_bounds_of_one() -> None:
    whole, parts = RefusedInvites(), [RefusedInvites() for _ in range(3)]
    for minute in range(600):
        number = "busy" if minute % 2 else None if minute % 5 == 0 else f"number {minute // 20}"
        refused = RefusedInvite(utc_now() + timedelta(minutes=minute), number, SOURCE, "1", "2", 480, "no agent")
        for kept in (whole, parts[minute % 3]):
            kept.add("one", refused)
    assert merged_invites(each.of("one") for each in parts) == whole.of("one")
    assert len({each.phone_number_id for each in whole.of("one")}) == NUMBERS
    assert merged_invites([]) == []
