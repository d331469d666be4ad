"""Which inbound calls are taken, and what the others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from calls.admission import Ceilings
from storage import calls
from storage.database import StorageTrouble
from tests.calls.house import House, open_house, until
from tests.fakes_legs import Phone


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
    async with open_house(tmp_path, ceilings=Ceilings(organization=2)) as house:
        await house.number()
        phones = [house.rings() for _ in range(6)]
        await until(lambda: sum(bool(phone.sent) and phone.sent[-1] >= 200 for phone in phones) == 6)
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 486, 486, 486, 486]


async def test_a_full_process_is_503_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=Ceilings(process=1)) as house:
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
                raise StorageTrouble("the disk is full")

            broken.setattr(calls, "create_inbound", full)
            assert await refused(house, house.rings()) == [503]
        assert not first.leg.ended.done()
