"""Which inbound calls are taken, and what the others are told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls import service
from calls.admission.capacity import ConcurrencyLimits
from storage.calls import calls
from storage.database.database import READERS, StorageTrouble
from storage.phone_numbers import phone_numbers, trunk_grants
from tests.calls.call_service_harness import House, every_call, open_house, until
from tests.fakes.fake_leg import SOURCE, Phone
from tests.storage.transaction_gate import Gate, names_in

T = TypeVar("T")


async def refused(house: House, phone: Phone) -> list[int]:
    await until(phone.leg.ended.done)
    return phone.sent


async def test_an_unknown_number_from_a_known_trunk_is_404_and_leaves_no_call(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        assert await refused(house, house.rings(dials="+4930999")) == [404]
        assert await house.all_calls() == []


async def test_a_number_of_another_trunk_is_unknown(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        assert await refused(house, house.rings(source="192.0.2.99")) == [404]


async def test_a_number_that_has_lost_its_trunk_is_unknown_where_another_one_has_it(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path, trunk_policy="auto") as house:
        taken, _ = await house.number("+4930100")
        await house.number("+4930200")

        def give_to_one(conn: sa.Connection) -> None:
            trunk_grants.deny(conn, taken.organization_id, SOURCE, None, actor="ann")

        await house.database.write(give_to_one)
        assert await refused(house, house.rings(dials="+4930100")) == [404]
        phone = house.rings(dials="+4930200")
        await until(lambda: 200 in phone.sent)


async def test_a_number_that_two_organizations_have_there_is_nobody_s_and_the_log_names_both(tmp_path: Path) -> None:
    """Each has it from a host name of its own; both resolve to the caller's address."""
    async with open_house(tmp_path) as house:
        mine, _ = await house.number()
        theirs, _ = await house.number("4930200")

        def share(conn: sa.Connection) -> None:
            phone_numbers.replace(conn, mine, {"sip_ip": "sip.carrier.test"})
            phone_numbers.replace(conn, theirs, {"sip_ip": "alias.test", "number": "4930100"})

        await house.database.write(share)
        house.names[SOURCE] = {SOURCE, "sip.carrier.test", "alias.test"}
        with capture_logs() as lines:
            assert await refused(house, house.rings()) == [404]
        [line] = [each for each in lines if each["event"] == "call.contested"]
        assert (line["source"], line["taken"], line["log_level"]) == (SOURCE, None, "warning")
        assert all(each.id in str(line["numbers"]) for each in (mine, theirs))
        assert await house.all_calls() == []


async def test_a_number_without_an_agent_is_480(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(assigned=False)
        assert await refused(house, house.rings()) == [480]


async def test_an_inactive_agent_is_480(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(is_active=False)
        assert await refused(house, house.rings()) == [480]


@pytest.mark.parametrize(
    ("dials", "to"), [("+4930100", ""), ("4930100", ""), ("trunk-user", "+4930100"), ("", "4930100")]
)
async def test_the_dialled_number_is_the_request_s_user_or_to_s_with_or_without_plus(
    tmp_path: Path, dials: str, to: str
) -> None:
    async with open_house(tmp_path) as house:
        number, _ = await house.number()
        phone = house.rings(dials=dials, to=to)
        await until(lambda: 200 in phone.sent)
        assert (await house.stored(phone)).phone_number_id == number.id


async def test_an_organization_at_its_ceiling_is_busy_and_others_are_not(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(max_calls=1)
        await house.number("+4930200")
        first = house.rings()
        await until(lambda: 200 in first.sent)
        assert await refused(house, house.rings()) == [486]
        other = house.rings(dials="+4930200")
        await until(lambda: 200 in other.sent)
        first.hangs_up()
        await house.ends(first)
        again = house.rings()
        await until(lambda: 200 in again.sent)


async def test_calls_that_come_at_once_do_not_pass_the_ceiling_together(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=ConcurrencyLimits(organization=2)) as house:
        await house.number()
        phones = [house.rings() for _ in range(6)]
        await until(lambda: sum(bool(phone.sent) and phone.sent[-1] >= 200 for phone in phones) == 6)
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 486, 486, 486, 486]


async def test_a_full_process_is_503_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=ConcurrencyLimits(process=1)) as house:
        await house.number()
        first = house.rings()
        await until(lambda: 200 in first.sent)
        second = house.rings()
        assert await refused(house, second) == [503]
        assert int(second.dialog.headers["Retry-After"]) > 0


async def test_a_database_in_trouble_is_503_and_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        first = house.rings()
        await until(lambda: 200 in first.sent)
        with monkeypatch.context() as broken:

            def full(*_: object, **__: object) -> None:
                raise StorageTrouble("the disk cannot be read or written")

            broken.setattr(calls, "insert", full)
            assert await refused(house, house.rings()) == [503]
        assert not first.leg.ended.done()


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Another process writes to the database, and does not come to an end."""
    with closing(sqlite3.connect(data_dir / "trunkline.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_caller_waits_for_no_list(tmp_path: Path) -> None:
    """Every connection that lists are read on is taken, and a hundred more lists wait."""
    async with open_house(tmp_path) as house:
        await house.number()
        gates = [Gate() for _ in range(READERS)]
        reads = [asyncio.create_task(house.database.read(lambda _, gate=gate: gate.wait())) for gate in gates]  # type: ignore[misc]
        for gate in gates:
            await gate.reached()
        reads += [asyncio.create_task(house.database.read(names_in, owner="many")) for _ in range(100)]
        phone = house.rings()
        await until(lambda: house.service.live_calls == 1)
        assert not any(each.done() for each in reads)
        for gate in gates:
            gate.open()
        await asyncio.gather(*reads)
        await until(lambda: 200 in phone.sent)


async def test_a_database_that_does_not_answer_holds_few_callers_and_those_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ADMISSION_S", 0.5)
    async with open_house(tmp_path) as house:
        await house.number()
        tasks = len(asyncio.all_tasks())
        with locked(tmp_path):
            phones = [house.rings() for _ in range(service.MOST_ARRIVING + 20)]
            await until(lambda: sum(phone.sent == [503] for phone in phones) == 20)
            assert not any(phone.sent for phone in phones[: service.MOST_ARRIVING]), "they still hope"
            await until(lambda: all(phone.sent == [503] for phone in phones))
            assert all(int(phone.dialog.headers["Retry-After"]) > 0 for phone in phones)
            assert await refused(house, house.rings()) == [503], "the places of those that were told are not free yet"
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert await house.all_calls() == [], "nobody is stored who was told to go"
        late = house.rings()
        await until(lambda: 200 in late.sent)


async def test_a_caller_who_was_told_to_go_while_it_was_stored_is_no_live_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit takes its time, once the call is in it."""
    monkeypatch.setattr(service, "ADMISSION_S", 1.0)  # time enough for what comes before the commit
    async with open_house(tmp_path) as house:
        await house.number()
        write = house.database.write

        async def slow(work: Callable[[sa.Connection], T], **more: Any) -> T:
            result = await write(work, **more)
            await until(lambda: 503 in phone.sent)
            return result

        monkeypatch.setattr(house.database, "write", slow)
        phone = house.rings()
        [call] = await house.database.until(every_call, lambda calls: bool(calls) and calls[0].ended_at is not None)
        assert (call.status, call.ended_reason) == ("failed", "error")
        await until(lambda: house.service.live_calls == 0)
        assert phone.sent[0] == 503


async def test_it_is_told_at_once_that_the_process_is_full_and_that_it_is_so_no_more(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=ConcurrencyLimits(process=2)) as house:
        told: list[bool] = []
        house.service.on_capacity_changed = lambda: told.append(house.service.is_full)
        await house.number()
        phones = [house.rings() for _ in range(2)]
        await until(lambda: all(200 in phone.sent for phone in phones))
        assert told == [False, True]
        phones[0].hangs_up()
        await house.ends(phones[0])
        assert told == [False, True, False]
