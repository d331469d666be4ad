"""Calls while the database cannot be reached: their ends are in the call journal until they are stored, once."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from calls.post_call.replay_pace import ReplayPace
from calls.session.best_effort_write import best_effort_write
from config.secrets import Secrets
from config.settings_tables import BillingSettings
from storage import tables
from storage.accounts import balances, organizations
from storage.calls import call_journal
from storage.calls.calls import Call
from storage.webhooks import deliveries
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, every_call, until
from tests.calls.outage_database import OutageDatabase, outage_database
from tests.fakes.fake_leg import Phone
from tests.transcripts import without_times

EVENTS: dict[str, Any] = {
    **GREETS,
    "post_call_webhook_url": "https://receiver.test/hook",
    "post_call_webhook_events": ["call.started", "call.answered", "call.completed"],
}
PRICES = BillingSettings(telephony_per_minute=0.6, text_to_speech_per_1000_characters=1.0)
SECRETS = Secrets([Fernet.generate_key()])


@asynccontextmanager
async def outage_service(
    folder: Path, *answers: str, **settings: Any
) -> AsyncIterator[tuple[CallServiceHarness, OutageDatabase]]:
    """A call service whose database can be taken away, as a process would start in the folder."""
    database = await outage_database(folder)
    async with call_service(
        folder, *answers, database=database, secrets=SECRETS, journaled=True, **settings
    ) as harness:
        await harness.service.replay_journal()
        await harness.service.recover()
        yield harness, database


async def answered_call(harness: CallServiceHarness) -> Phone:
    phone = harness.invite()
    await until(lambda: 200 in phone.sent and phone.leg.on_digit is not None)
    await harness.tts.until_spoken(1)
    heard_ms = harness.pump.now_ms + 2000
    await until(lambda: harness.pump.now_ms > heard_ms)
    return phone


async def hang_up(harness: CallServiceHarness, phone: Phone) -> None:
    phone.hangs_up()
    await until(lambda: not harness.service.active_calls())


async def the_call(harness: CallServiceHarness) -> Call:
    """Wait until the only call is closed."""
    (call,) = await harness.database.until(
        every_call, lambda found: bool(found) and all(each.ended_at for each in found)
    )
    return call


async def events_of(harness: CallServiceHarness, call: Call) -> list[str]:
    found = await harness.database.read(partial(deliveries.of_call, call_id=call.id))
    return [each.event for each in found]


async def charges_of(harness: CallServiceHarness, call: Call) -> list[Decimal]:
    changes = await harness.database.read(lambda conn: balances.last_changes(conn, call.organization_id, 100))
    return [each.amount for each in changes]


async def make_paid(harness: CallServiceHarness) -> None:
    await harness.database.write(
        lambda conn: conn.execute(sa.update(tables.organizations).values(plan="paid", balance=10))
    )


async def test_an_end_during_an_outage_is_in_the_journal_until_it_is_stored(tmp_path: Path) -> None:
    async with outage_service(tmp_path, billing=PRICES) as (harness, database):
        await harness.create_number(**EVENTS)
        await make_paid(harness)
        phone = await answered_call(harness)
        database.set_away(True)
        await hang_up(harness, phone)
        (file,) = (tmp_path / call_journal.FOLDER).iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert b"Welcome" not in file.read_bytes(), "it is encrypted"
        database.set_away(False)
        harness.service.on_outage_over()
        call = await the_call(harness)
        assert call.ended_reason == "customer_ended"
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]
        assert len(await charges_of(harness, call)) == 1
        await until(lambda: not list(file.parent.iterdir()))


async def test_the_next_process_stores_what_a_killed_one_has_written_to_the_journal(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with outage_service(tmp_path, billing=PRICES) as (harness, database):
            await harness.create_number(**EVENTS)
            await make_paid(harness)
            phone = await answered_call(harness)
            database.set_away(True)
            await hang_up(harness, phone)
    (line,) = [each for each in lines if each["event"] in ("call.end_lost", "call.end_in_journal")]
    assert line["event"] == "call.end_in_journal"
    async with outage_service(tmp_path, billing=PRICES) as (harness, _):
        call = await the_call(harness)
        assert (call.status, call.ended_reason) == ("completed", "customer_ended")
        assert without_times(call.transcript) == [{"role": "assistant", "content": GREETS["agent_greeting"]}]
        assert call.cost and call.recorded
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]
        assert await charges_of(harness, call) == [-Decimal(str(call.cost))]
        found = await harness.database.read(partial(deliveries.of_call, call_id=call.id))
        assert json.loads(found[-1].body)["transcriptUrl"] is not None
        assert await harness.journal.calls() == []


async def test_a_call_to_be_analyzed_is_analyzed_by_the_next_process(tmp_path: Path) -> None:
    async with outage_service(tmp_path, "I see.") as (harness, database):
        await harness.create_number(**EVENTS, post_call_summary_enabled=True)
        phone = await answered_call(harness)
        for digit in "1#":
            phone.driver.on_digit(digit, "rfc4733")
        await harness.database.until(every_call, lambda found: "user" in str(found[0].transcript))
        database.set_away(True)
        await hang_up(harness, phone)
    async with outage_service(tmp_path) as (harness, _):
        call = await the_call(harness)
        assert (call.ended_reason, call.analysis is not None) == ("customer_ended", True)
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]


async def test_a_call_without_a_row_that_a_process_left_is_stored_and_closed_by_the_next(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    async with outage_service(tmp_path) as (harness, database):
        await harness.create_number(**EVENTS)
        database.writes = False
        phone = await answered_call(harness)
        await until(lambda: len(list((tmp_path / call_journal.FOLDER).glob("*.call"))) == 1)
        shutil.copytree(tmp_path / call_journal.FOLDER, aside)
        database.set_away(True)
        await hang_up(harness, phone)
    shutil.rmtree(tmp_path / call_journal.FOLDER)
    shutil.move(aside, tmp_path / call_journal.FOLDER)  # as a killed process leaves it
    async with outage_service(tmp_path) as (harness, _):
        call = await the_call(harness)
        assert (call.ended_reason, call.call_sid) == ("server_restart", phone.leg.sip_call_id)
        assert await events_of(harness, call) == ["call.started", "call.completed"]


@pytest.mark.parametrize("summary", [False, True])
async def test_a_commit_of_unknown_outcome_stores_the_end_once(tmp_path: Path, summary: bool) -> None:
    async with outage_service(tmp_path, billing=PRICES) as (harness, database):
        await harness.create_number(**EVENTS, post_call_summary_enabled=summary)
        await make_paid(harness)
        phone = await answered_call(harness)
        await harness.database.until(every_call, lambda found: bool(found[0].started_at and found[0].transcript))
        database.lost_commits = 1
        phone.hangs_up()
        await until(lambda: not harness.service.active_calls() and not database.lost_commits)
        harness.service.on_outage_over()
        call = await the_call(harness)
        await until(lambda: not list((tmp_path / call_journal.FOLDER).glob("*.call")))
        assert call.ended_reason == "customer_ended"
        assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]
        assert len(await charges_of(harness, call)) == 1


async def test_a_record_that_was_stored_before_the_process_died_changes_nothing(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    async with outage_service(tmp_path, billing=PRICES) as (harness, database):
        await harness.create_number(**EVENTS)
        await make_paid(harness)
        database.writes = False
        phone = await answered_call(harness)
        await hang_up(harness, phone)
        shutil.copytree(tmp_path / call_journal.FOLDER, aside)
        database.set_away(False)
        harness.service.on_outage_over()
        before = await the_call(harness)
        await until(lambda: not list((tmp_path / call_journal.FOLDER).glob("*.call")))
    shutil.copytree(aside, tmp_path / call_journal.FOLDER, dirs_exist_ok=True)
    async with outage_service(tmp_path, billing=PRICES) as (harness, _):
        assert await the_call(harness) == before
        assert len(await events_of(harness, before)) == 3
        assert len(await charges_of(harness, before)) == 1
        assert await harness.journal.calls() == []


async def test_the_record_of_a_deleted_organization_is_removed(tmp_path: Path) -> None:
    async with outage_service(tmp_path) as (harness, database):
        number, _ = await harness.create_number(**EVENTS)
        database.writes = False
        await hang_up(harness, await answered_call(harness))
    delete = sa.delete(tables.organizations).where(tables.organizations.c.id == number.organization_id)
    database = await outage_database(tmp_path)
    await database.open()
    await database.write(lambda conn: conn.execute(delete))
    await database.close()
    async with outage_service(tmp_path) as (harness, _):
        assert await harness.all_calls() == []
        assert await harness.database.read(organizations.all_of) == []
        assert await harness.journal.calls() == []


async def test_beyond_the_journals_limit_ends_are_in_memory_alone_and_that_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as lines:
        async with outage_service(tmp_path) as (harness, database):
            monkeypatch.setattr(harness.journal, "_max_bytes", 100)
            await harness.create_number(**EVENTS)
            phone = await answered_call(harness)
            database.set_away(True)
            await hang_up(harness, phone)
            database.set_away(False)
            harness.service.on_outage_over()
            assert (await the_call(harness)).ended_reason == "customer_ended"
    assert [each["event"] for each in lines].count("call_journal.not_written") == 1


async def test_replays_keep_their_pace_with_jitter() -> None:
    now, waits = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    pace = ReplayPace(50, lambda: now, sleep)
    for _ in range(2000):
        await pace.turn()
    assert 2000 / 50 * 0.9 < now < 2000 / 50 * 1.1
    assert 0.01 <= min(waits) < 0.012 and 0.028 < max(waits) <= 0.03


async def test_an_end_that_is_refused_for_another_reason_is_journaled_and_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calls.post_call.finalizer.STORE_RETRIES_S", (0.01,))
    monkeypatch.setattr("calls.post_call.finalizer.PENDING_RETRY_S", 0.05)
    async with outage_service(tmp_path, billing=PRICES) as (harness, database):
        await harness.create_number(**EVENTS)
        await make_paid(harness)
        phone = await answered_call(harness)
        database.refuses = True
        await hang_up(harness, phone)
        assert len(await harness.journal.calls()) == 1
        database.refuses = False
        call = await the_call(harness)
        assert (call.ended_reason, len(await charges_of(harness, call))) == ("customer_ended", 1)
        await until(lambda: not list((tmp_path / call_journal.FOLDER).glob("*.call")))


async def test_records_that_no_call_in_memory_has_are_stored_by_the_running_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with outage_service(tmp_path) as (harness, database):
        await harness.create_number(**EVENTS)
        phone = await answered_call(harness)
        database.set_away(True)
        monkeypatch.setattr("calls.post_call.outage_buffer.MAX_ENDS", 0)
        await hang_up(harness, phone)
        database.set_away(False)
        await harness.service._journal_replay.replay()
        assert (await the_call(harness)).ended_reason == "customer_ended"
        assert await harness.journal.calls() == []


async def test_the_state_of_live_calls_that_is_not_stored_is_logged_once_for_an_outage(tmp_path: Path) -> None:
    async with outage_service(tmp_path) as (_, database):
        with capture_logs() as lines:
            for away in (True, True, True, False, True, True):
                database.set_away(away)
                await best_effort_write(database, "call", lambda _: None)
    assert [each["log_level"] for each in lines if each["event"] == "call.progress_not_stored"] == [
        "warning", "debug", "debug", "warning", "debug",
    ]  # fmt: skip


async def test_an_outage_of_ten_minutes_heals_without_a_stampede(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is that of the pace and of the retries: a second of it is a millisecond."""
    turns = list[float]()
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        turns.append(now_s)

    monkeypatch.setattr("calls.post_call.finalizer.STORE_RETRIES_S", (0.001, 0.002, 0.004, 0.008, 0.015))
    monkeypatch.setattr("calls.post_call.finalizer.PENDING_RETRY_S", 0.06)
    with capture_logs() as lines:
        await an_outage_of_ten_minutes(tmp_path, turns, ReplayPace(50, lambda: now_s, sleep))
    errors = [each for each in lines if each["event"] == "call.end_not_stored" and each["log_level"] == "error"]
    assert len(errors) == len({each["call_id"] for each in errors}) == 3, "the first attempt of each call"


async def an_outage_of_ten_minutes(folder: Path, turns: list[float], pace: ReplayPace) -> None:
    async with outage_service(folder, rtp_timeout_s=600.0) as (harness, database):
        await harness.create_number(**EVENTS)
        finalizer = harness.service._deps.finalizer
        finalizer._pace = pace  # type: ignore[misc]
        phones = [await answered_call(harness) for _ in range(5)]
        database.set_away(True)
        for phone in phones[:3]:
            phone.hangs_up()
        await until(lambda: len(harness.service.active_calls()) == 2)
        failed = len(database.attempts)
        await until(lambda: len(database.attempts) > failed + 3 * 10)  # ten of the 60 s: ten minutes
        turns.clear()
        database.set_away(False)
        harness.service.on_outage_over()
        await database.until(every_call, lambda found: sum(bool(each.ended_at) for each in found) == 3)
        assert all(after - before >= 0.01 - 1e-9 for before, after in pairwise(turns)), "they keep their pace"
        for phone in phones[3:]:
            phone.hangs_up()
        found = await database.until(every_call, lambda found: all(each.ended_at for each in found))
        assert [each.ended_reason for each in found] == ["customer_ended"] * 5
        for call in found:
            assert await events_of(harness, call) == ["call.started", "call.answered", "call.completed"]
        await until(lambda: not list((folder / call_journal.FOLDER).glob("*.call")))
