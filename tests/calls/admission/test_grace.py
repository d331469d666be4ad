"""New calls while the database is away: admitted for the grace period from what the node knows, stored afterwards."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from calls import row_reconciliation
from calls.admission import admission_reads
from calls.admission.admission_reads import AdmissionReads
from calls.invite_admission import ADMISSION_TIMEOUT_S
from config.secrets import Secrets
from storage import tables
from storage.agents import agents, tools
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.database import call_lock
from storage.phone_numbers import admission_replica, phone_numbers
from storage.phone_numbers.admission_replica import AdmissionReplica
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, every_call, until
from tests.calls.outage_database import OutageDatabase, outage_database
from tests.calls.session.test_outage import EVENTS, PRICES, answered_call, events_of, hang_up
from tests.fakes.fake_leg import SOURCE, Phone

GRACE_S = 120.0
SECRETS = Secrets([Fernet.generate_key()])


CONFIG: tools.ToolConfig = {
    "url": "https://tool.test/",
    "method": "GET",
    "timeout": 100,
    "headers": [],
    "body": [],
}


class Clock:
    """Time that a test lets pass after the real one."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead_s


@asynccontextmanager
async def grace_service(
    folder: Path, grace_s: float = GRACE_S, **settings: Any
) -> AsyncIterator[tuple[CallServiceHarness, OutageDatabase, AdmissionReplica, Clock]]:
    """A call service with a replica, which tests refresh."""
    database, clock = await outage_database(folder), Clock()
    replica = AdmissionReplica(database)
    reads = AdmissionReads(database, replica if grace_s else None, grace_s, clock.now_s)
    settings |= {"database": database, "admission_reads": reads, "journaled": True, "secrets": SECRETS}
    try:
        async with call_service(folder, **settings) as harness:
            yield harness, database, replica, clock
    finally:
        await replica.close()


async def status_of_invite(harness: CallServiceHarness, **facts: Any) -> int:
    """The final status of an INVITE."""
    phone = harness.invite(**facts)
    await until(lambda: phone.sent and phone.sent[-1] >= 200)
    return phone.sent[-1]


async def test_a_call_during_an_outage_is_taken_without_the_database_and_stored_once_afterwards(tmp_path: Path) -> None:
    async with grace_service(tmp_path, billing=PRICES) as (harness, database, replica, _):
        number, agent = await harness.create_number(**EVENTS)
        await replica.refresh()
        database.set_away(True)
        assert await status_of_invite(harness, dials="+49309999") == 404, "an unknown number; the outage is known now"
        phones, before_answer = list[Phone](), list[str]()

        def note() -> None:
            before_answer.extend("".join(traceback.format_stack()) for each in phones if 200 not in each.sent)

        await until(lambda: "read" in database.attempts)  # the lookup of the refused INVITE, in the background
        database.on_attempt = note
        phones.append(phone := harness.invite())
        await until(lambda: 200 in phone.sent and "write" in database.attempts)
        assert before_answer == [], "nothing is read or written before the answer"
        await hang_up(harness, phone)
        assert await harness.journal.calls() == [harness_call_id(harness)]
        database.set_away(False)
        harness.service.on_outage_over()
        (call,) = await harness.database.until(every_call, lambda found: bool(found and found[0].ended_at))
        assert (call.phone_number_id, call.agent_id, call.ended_reason) == (number.id, agent.id, "customer_ended")
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]
        harness.service.on_outage_over()
        await until(lambda: not list((tmp_path / "call-journal").glob("*.call")))
        assert len(await harness.all_calls()) == 1


async def test_a_call_that_the_end_of_the_outage_did_not_find_is_stored_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reconciliation, "STORE_ROWS_EVERY_S", 0.01)
    async with grace_service(tmp_path) as (harness, database, replica, _):
        await harness.create_number(**EVENTS)
        await replica.refresh()
        storing = asyncio.create_task(harness.service.store_rows_periodically())
        database.set_away(True)
        assert await status_of_invite(harness) == 200
        database.set_away(False)
        (call,) = await harness.database.until(every_call, bool)
        assert (call.status, call.ended_at) == ("in_progress", None)
        assert await events_of(harness, call) == ["call.started", "call.answered"]
        storing.cancel()


def harness_call_id(harness: CallServiceHarness) -> str:
    (call_id,) = harness.service._deps.finalizer.outage_buffer.ended_calls
    return call_id


async def test_the_grace_period_counts_from_the_beginning_of_the_outage(tmp_path: Path) -> None:
    async with grace_service(tmp_path) as (harness, database, replica, clock):
        await harness.create_number()
        await replica.refresh()
        database.set_away(True)
        clock.ahead_s = GRACE_S - 1
        assert await status_of_invite(harness) == 200
        clock.ahead_s = GRACE_S + 1
        refused = harness.invite()
        await until(lambda: refused.sent)
        assert refused.sent == [503] and int(refused.dialog.headers["Retry-After"]) > 0
        database.set_away(False)
        assert await status_of_invite(harness) == 200, "as soon as the database is back"


@pytest.mark.parametrize("grace_s", [0.0, GRACE_S])
async def test_without_grace_or_without_a_complete_copy_calls_get_503(tmp_path: Path, grace_s: float) -> None:
    async with grace_service(tmp_path, grace_s) as (harness, database, _, _):
        await harness.create_number()
        database.set_away(True)
        for _ in range(2):
            assert await status_of_invite(harness) == 503
        assert len(database.attempts) <= 3, "once the outage is known the database is not asked"


async def test_the_ceiling_of_an_organization_is_this_nodes_share_of_it(tmp_path: Path) -> None:
    async with grace_service(tmp_path, node_share=lambda limit: limit // 2) as (harness, database, replica, _):
        await harness.create_number(max_calls=4)
        await replica.refresh()
        database.set_away(True)
        assert [await status_of_invite(harness) for _ in range(3)] == [200, 200, 486]


async def test_the_balance_that_is_known_counts(tmp_path: Path) -> None:
    prices = PRICES.model_copy(update={"inbound_when_empty": "refuse"})
    async with grace_service(tmp_path, billing=prices) as (harness, database, replica, _):
        await harness.create_number()
        for balance, status in ((1, 200), (0, 480)):
            update = sa.update(tables.organizations).values(plan="paid", balance=balance)
            await harness.database.write(lambda conn: conn.execute(update))  # noqa: B023
            await replica.refresh()
            database.set_away(True)
            assert await status_of_invite(harness) == status
            database.set_away(False)


async def test_the_tools_of_the_agent_are_known(tmp_path: Path) -> None:
    async with grace_service(tmp_path) as (harness, database, replica, _):
        number, _ = await harness.create_number(**EVENTS)
        fields = tools.ToolFields(name="look up", config=CONFIG)
        await harness.database.write(lambda conn: tools.create(conn, number.organization_id, fields))
        await replica.refresh()
        database.set_away(True)
        phone = await answered_call(harness)
        for digit in "1#":
            phone.driver.on_digit(digit, "rfc4733")
        await until(lambda: harness.llm.prompts)
        assert "look_up" in {each.name for each in harness.llm.prompts[-1].tools}


async def test_the_replica_follows_changes_and_removals(tmp_path: Path) -> None:
    async with grace_service(tmp_path) as (harness, database, replica, _):
        _, agent = await harness.create_number()
        other, _ = await harness.create_number("+4930200")
        await replica.refresh()
        await asyncio.sleep(0.002)  # times are whole milliseconds

        def change(conn: sa.Connection) -> None:
            agents.update(conn, agent.organization_id, agent.id, {"is_active": False})
            phone_numbers.delete(conn, other.organization_id, other.id)

        await harness.database.write(change)
        await replica.refresh()
        database.set_away(True)
        assert await status_of_invite(harness, dials="+4930100") == 480
        assert await status_of_invite(harness, dials="+4930200") == 404


@pytest.mark.parametrize("hanging", [("read", "write"), ("write",)])
async def test_a_database_that_hangs_delays_one_invite_by_less_than_the_admission_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: tuple[str, ...]
) -> None:
    """Transactions that hang are found to be lost much later only."""
    assert 2 * admission_reads.TIMEOUT_S < ADMISSION_TIMEOUT_S
    monkeypatch.setattr(admission_reads, "TIMEOUT_S", 0.05)
    async with grace_service(tmp_path) as (harness, database, replica, _):
        await harness.create_number(**EVENTS)
        await replica.refresh()
        hold, asked = asyncio.Event(), list[tuple[str, bool]]()

        def hang(name: str) -> None:
            real = getattr(database, name)

            async def hangs(work: Any, **options: Any) -> Any:
                of_a_call = call_lock.get() is not None  # by the session of a call that is answered
                asked.append((name, of_a_call or all(200 in each.sent for each in phones)))
                await hold.wait()
                return await real(work, **options)

            monkeypatch.setattr(database, name, hangs)

        phones = list[Phone]()
        for name in hanging:
            hang(name)
        try:
            for _ in range(3):
                phones.append(harness.invite())
                await until(lambda: 200 in phones[-1].sent)
            assert [name for name, is_answered in asked if not is_answered] == [hanging[0]], "the first INVITE, once"
        finally:
            hold.set()
        for phone in phones:
            phone.hangs_up()
        await until(lambda: not harness.service.active_calls())
        harness.service.on_outage_over()
        await database.until(every_call, lambda found: [bool(each.ended_at) for each in found] == [True] * 3)


async def test_the_replica_follows_numbers_that_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_replica, "BATCH_ROWS", 1)  # so that both have the same number for a while
    async with grace_service(tmp_path) as (harness, database, replica, _):
        number, agent = await harness.create_number("+4930100")
        fields: dict[str, Any] = {"number": "+4930200", "provider": "sip", "sip_mode": "ip_allowlist", "sip_ip": SOURCE}

        def add(conn: sa.Connection) -> phone_numbers.PhoneNumber:
            made = phone_numbers.PhoneNumberFields(**fields, agent_id=agent.id)
            return phone_numbers.create(conn, number.organization_id, made)

        other = await database.write(add)
        await replica.refresh()
        await asyncio.sleep(0.002)

        def swap(conn: sa.Connection) -> None:
            moved = phone_numbers.replace(conn, number, {"number": "+4930300"})
            phone_numbers.replace(conn, other, {"number": "+4930100"})
            phone_numbers.replace(conn, moved, {"number": "+4930200"})

        await database.write(swap)
        await replica.refresh()
        database.set_away(True)
        phone = harness.invite(dials="+4930100")
        await until(lambda: 200 in phone.sent)
        assert [each.call.phone_number_id for each in harness.service.active_calls()] == [other.id]


async def test_a_copy_that_is_too_large_is_given_up_until_it_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grace_service(tmp_path) as (harness, _, replica, _):
        await harness.create_number()
        for name, most in (("MAX_ROWS", 1), ("MAX_BYTES", 1000)):
            with monkeypatch.context() as patch, capture_logs() as lines:
                patch.setattr(admission_replica, name, most)
                for _ in range(2):
                    await replica.refresh()
                    assert not replica.is_complete
            assert [each["event"] for each in lines] == ["admission_replica.too_large"]
            await replica.refresh()
            assert replica.is_complete


async def test_an_error_does_not_end_the_refreshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_replica, "MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(admission_replica, "REFRESH_S", 0.01)
    async with grace_service(tmp_path) as (harness, database, replica, _):
        await harness.create_number()
        failures, real = [RuntimeError("a fault")], database.read

        async def read(work: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return await real(work, **options)

        monkeypatch.setattr(database, "read", read)
        running = asyncio.create_task(replica.run())
        await until(lambda: replica.is_complete)
        running.cancel()


async def test_a_commit_of_unknown_outcome_leaves_one_row(tmp_path: Path) -> None:
    async with grace_service(tmp_path) as (harness, database, replica, _):
        await harness.create_number(**EVENTS)
        await replica.refresh()
        database.lost_commits = 1
        phone = await answered_call(harness)
        await hang_up(harness, phone)
        (call,) = await database.until(every_call, lambda found: [bool(each.ended_at) for each in found] == [True])
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]


async def test_a_call_that_is_stored_after_its_invite_was_refused_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_reads, "TIMEOUT_S", 1.0)
    async with grace_service(tmp_path) as (harness, database, _, _):  # without a complete copy
        await harness.create_number(**EVENTS)
        committed = asyncio.Event()
        real = database.write

        async def is_slow(work: Any, **options: Any) -> Any:
            result = await real(work, **options)
            await committed.wait()
            return result

        monkeypatch.setattr(database, "write", is_slow)
        try:
            assert await status_of_invite(harness) == 503
            assert [each.ended_at for each in await database.read(every_call)] == [None]
        finally:
            monkeypatch.setattr(database, "write", real)
            committed.set()
        (call,) = await database.until(every_call, lambda found: [bool(each.ended_at) for each in found] == [True])
        assert (call.status, call.ended_reason) == ("failed", "error")


async def test_stored_calls_without_a_session_are_found_without_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_ROW_AGE_S", "CLOSE_EVERY_S"):
        monkeypatch.setattr(row_reconciliation, name, 0.0)
    monkeypatch.setattr(row_reconciliation, "STORE_ROWS_EVERY_S", 0.01)
    async with grace_service(tmp_path) as (harness, database, _, _):
        number, agent = await harness.create_number(**EVENTS)
        left = await database.write(partial(leave_row, number=number, agent=agent))
        running = asyncio.create_task(harness.service.store_rows_periodically())
        (found,) = await database.until(every_call, lambda found: all(each.ended_at for each in found))
        running.cancel()
        assert (found.id, found.ended_reason) == (left.id, "error")


def leave_row(conn: sa.Connection, number: PhoneNumber, agent: Agent) -> Call:
    """A ringing call without a session."""
    facts: dict[str, Any] = {"phone_number_id": number.id, "provider": "sip", "call_sid": "x"}
    facts["customer_number"] = "+1"
    return calls.create_inbound(conn, organization_id=number.organization_id, agent_id=agent.id, **facts)


async def test_open_rows_without_a_session_are_closed_after_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_ROW_AGE_S", "CLOSE_AFTER_OUTAGE_S"):
        monkeypatch.setattr(row_reconciliation, name, 0.0)
    async with grace_service(tmp_path) as (harness, database, _, _):
        number, agent = await harness.create_number(**EVENTS)
        phone = await answered_call(harness)
        left = await database.write(partial(leave_row, number=number, agent=agent))
        await asyncio.sleep(0.002)
        harness.service.on_outage_over()
        found = await database.until(every_call, lambda found: any(each.ended_at for each in found))
        assert [(each.id, each.ended_reason) for each in found if each.ended_at] == [(left.id, "error")]
        await hang_up(harness, phone)
        assert {each.ended_reason for each in await harness.all_calls()} == {"error", "customer_ended"}
