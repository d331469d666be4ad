"""Where a number's calls come from: several places, told in any way, found by any of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
import sqlalchemy as sa

from config.errors import Invalid
from storage import organizations, phone_numbers, tables
from storage.database import Database
from storage.phone_numbers import Contested, PhoneNumber, PhoneNumberFields
from storage.sip_places import normal_source, overlap

PBX: dict[str, Any] = {"provider": "sip", "sip_mode": "ip_allowlist", "sip_ip": "192.0.2.1"}
CARRIER: dict[str, Any] = {"provider": "sip", "sip_mode": "registration", "sip_proxy": "sip.carrier.example"}


def _number(conn: sa.Connection, organization_id: str, number: str, **facts: Any) -> PhoneNumber:
    return phone_numbers.create(conn, organization_id, PhoneNumberFields(number=number, **facts))


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.77/24", "192.0.2.0/24"),
        ("192.0.2.77/32", "192.0.2.77"),
        ("2001:DB8::1/64", "2001:db8::/64"),
        ("2001:DB8::1/128", "2001:db8::1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("SBC.Carrier.example.", "sbc.carrier.example"),
    ],
)
def test_a_source_is_stored_in_its_normal_form(written: str, normal: str) -> None:
    assert normal_source(written) == normal


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.0/24", True),
        ("192.0.2.0/25", "192.0.2.0/24", True),
        ("192.0.2.0/25", "192.0.2.128/25", False),
        ("198.51.100.1", "192.0.2.0/24", False),
        ("2001:db8::1", "2001:db8::/32", True),
        ("0.0.0.1", "::/16", False),
        ("pbx.example", "pbx.example", True),
        ("pbx.example", "192.0.2.0/24", False),
    ],
)
def test_sources_overlap_when_a_call_could_come_from_both(one: str, other: str, both: bool) -> None:
    assert overlap(["sbc.example", one], ["203.0.113.9", other]) is both
    assert overlap([other], [one]) is both


def test_many_sources_overlap_as_each_pair_of_them_does() -> None:
    chance = random.Random(5)

    def some() -> list[str]:
        bits = chance.choice((24, 28, 32))
        return [normal_source(f"10.0.{chance.randrange(40)}.{chance.randrange(256)}/{bits}") for _ in range(6)]

    outcomes = set()
    for _ in range(500):
        one, other = some(), some()
        expected = any(ip_network(a).overlaps(ip_network(b)) for a in one for b in other)
        assert overlap(one, other) is overlap(other, one) is expected
        outcomes.add(expected)
    assert outcomes == {True, False}


async def test_a_number_is_found_from_each_of_its_sources(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        listed = ["198.51.100.0/24", "SBC.example", "192.0.2.1"]
        _number(conn, organization_id, "100", **PBX, sip_sources=listed)
        _number(conn, organization_id, "200", **CARRIER, sip_outbound_proxy="sip:edge.Carrier.example;lr")
        assert phone_numbers.sources(conn) == {
            "192.0.2.1",
            "198.51.100.0/24",
            "sbc.example",
            "sip.carrier.example",
            "edge.carrier.example",
        }
        for source in ("192.0.2.1", "198.51.100.0/24", "sbc.example"):
            target = phone_numbers.find_inbound(conn, ["203.0.113.9", source], "100")
            assert target is not None, source
            assert phone_numbers.find_inbound(conn, [source], "200") is None
        assert phone_numbers.find_inbound(conn, ["edge.carrier.example"], "200") is not None
        assert phone_numbers.find_inbound(conn, [], "100") is None

    await database.write(check)


async def test_sources_follow_each_change_of_their_number(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        number = _number(conn, organization_id, "100", **PBX, sip_sources=["198.51.100.0/24"])
        number = phone_numbers.replace(conn, number, {"sip_ip": "192.0.2.2"})
        assert phone_numbers.sources(conn) == {"192.0.2.2", "198.51.100.0/24"}
        number = phone_numbers.replace(conn, number, {"sip_sources": ["203.0.113.7/32"]})
        assert phone_numbers.sources(conn) == {"192.0.2.2", "203.0.113.7"}
        number = phone_numbers.replace(conn, number, {"sip_mode": None})
        assert phone_numbers.sources(conn) == frozenset()
        phone_numbers.replace(conn, number, {"sip_mode": "ip_allowlist"})
        assert phone_numbers.delete(conn, organization_id, number.id)
        assert phone_numbers.sources(conn) == frozenset()

    await database.write(check)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (PBX | {"sip_sources": ["198.51.100.0/24"]}, PBX | {"sip_ip": "198.51.100.7"}),
        (PBX | {"sip_ip": "198.51.100.7"}, PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["198.51.0.0/16"]}),
        (PBX | {"sip_sources": ["sip.carrier.example"]}, CARRIER),
        (CARRIER | {"sip_outbound_proxy": "192.0.2.1:5080"}, PBX),
    ],
)
async def test_one_number_from_overlapping_sources_is_no_two_organizations(
    database: Database, organization_id: str, held: dict[str, Any], wanted: dict[str, Any]
) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other").id
        _number(conn, organization_id, "+49777", **held)
        with pytest.raises(Invalid) as made:
            _number(conn, other, "49777", **wanted)
        elsewhere = _number(conn, other, "49777", **PBX | {"sip_ip": "203.0.113.200"})
        with pytest.raises(Invalid) as moved:
            phone_numbers.replace(conn, elsewhere, wanted)
        for refusal in (made.value, moved.value):
            assert [problem.field for problem in refusal.problems] == ["number"]
        assert _number(conn, other, "49778", **wanted).number == "49778"
        assert _number(conn, organization_id, "49777", **wanted).number == "49777"

    await database.write(check)


HERE: dict[str, Any] = PBX
NAMED: dict[str, Any] = CARRIER
ALSO_NAMED: dict[str, Any] = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["alias.example"]}
BY_PROXY: dict[str, Any] = CARRIER | {"sip_proxy": "elsewhere.example", "sip_outbound_proxy": "edge.example"}
AROUND: dict[str, Any] = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["192.0.2.0/24"]}


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        (HERE, ALSO_NAMED, "first"),
        (HERE, BY_PROXY, "first"),
        (AROUND, NAMED, "first"),
        (NAMED, HERE, None),
        (NAMED, ALSO_NAMED, None),
        (ALSO_NAMED, BY_PROXY, None),
    ],
)
@pytest.mark.parametrize(("held", "wanted"), [("+49777", "49777"), ("49777", "+49777"), ("49777", "49777")])
async def test_a_host_name_takes_no_call_from_another_organization(
    database: Database,
    organization_id: str,
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, Any],
    second: dict[str, Any],
    taken: str | None,
    held: str,
    wanted: str,
) -> None:
    """What a name resolves to is not known when it is stored."""
    now = Ticks(monkeypatch)

    def check(conn: sa.Connection) -> None:
        mine = _number(conn, organization_id, held, **first)
        now.later()
        theirs = _number(conn, organizations.create(conn, "other").id, wanted, **second)
        means = ["192.0.2.1", "192.0.2.0/24", "alias.example", "sip.carrier.example", "edge.example"]
        for dialled in (held, wanted):
            if taken is None:
                with pytest.raises(Contested) as contested:
                    phone_numbers.find_inbound(conn, means, dialled)
                assert {each.id for each in contested.value.numbers} == {mine.id, theirs.id}
            else:
                target = phone_numbers.find_inbound(conn, means, dialled)
                assert target is not None
                assert (target.number, target.rivals) == (mine, [theirs])

    await database.write(check)


class Ticks:
    """The clock of `storage.phone_numbers`, which stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at = datetime(2026, 11, 21, tzinfo=UTC)
        monkeypatch.setattr(phone_numbers, "utc_now", lambda: self._at)

    def later(self) -> None:
        """A second passes."""
        self._at += timedelta(seconds=1)


@pytest.mark.parametrize(
    "before",
    [
        {"sip_sources": []},
        {"number": "999"},
        {"sip_mode": None},
    ],
)
async def test_a_number_that_was_something_else_before_was_not_there_first(
    database: Database, organization_id: str, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any]
) -> None:
    now = Ticks(monkeypatch)

    def check(conn: sa.Connection) -> None:
        literal = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["192.0.2.1"]}
        facts = {"number": "49777"} | literal
        squatter = _number(conn, organizations.create(conn, "other").id, **facts | before)
        now.later()
        mine = _number(conn, organization_id, "+49777", **CARRIER)
        now.later()
        squatter = phone_numbers.replace(conn, squatter, {name: facts[name] for name in before})
        with pytest.raises(Contested):
            phone_numbers.find_inbound(conn, ["192.0.2.1", "sip.carrier.example"], "49777")
        target = phone_numbers.find_inbound(conn, ["sip.carrier.example"], "49777")
        assert target is not None
        assert (target.number, target.rivals) == (mine, [])

    await database.write(check)


async def test_a_change_of_something_else_does_not_make_a_number_younger(
    database: Database, organization_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Ticks(monkeypatch)

    def check(conn: sa.Connection) -> None:
        mine = _number(conn, organization_id, "+49777", **PBX)
        now.later()
        _number(conn, organizations.create(conn, "other").id, "49777", **CARRIER)
        now.later()
        mine = phone_numbers.replace(conn, mine, {"name": "Desk", "sip_sources": ["198.51.100.0/24"]})
        target = phone_numbers.find_inbound(conn, ["192.0.2.1", "sip.carrier.example"], "49777")
        assert target is not None
        assert target.number == mine

    await database.write(check)


async def test_an_allowlist_number_has_no_calls_from_an_outbound_proxy(
    database: Database, organization_id: str
) -> None:
    def check(conn: sa.Connection) -> None:
        _number(conn, organization_id, "100", **PBX, sip_outbound_proxy="edge.carrier.example")
        assert phone_numbers.sources(conn) == {"192.0.2.1"}
        assert phone_numbers.find_inbound(conn, ["edge.carrier.example"], "100") is None

    await database.write(check)


async def test_a_number_among_ten_thousand_is_found_at_once(database: Database, organization_id: str) -> None:
    made = 10_000

    def fill(conn: sa.Connection) -> None:
        one = _number(conn, organization_id, "+4930", **PBX)
        row = conn.execute(sa.select(tables.phone_numbers)).mappings().one()
        rows = [{**row, "id": f"{each:036}", "number": f"+49{each:08}"} for each in range(made)]
        conn.execute(sa.insert(tables.phone_numbers), rows)
        facts = {"source": one.source, "since": one.created_at}
        sources = [facts | {"phone_number_id": each["id"]} for each in rows]
        conn.execute(sa.insert(tables.phone_number_sources), sources)

    def steps(conn: sa.Connection) -> int:
        """How many hundreds of instructions SQLite takes to find one; a scan takes over a thousand."""
        hundreds: list[None] = []
        raw = conn.connection.driver_connection
        assert raw is not None
        raw.set_progress_handler(lambda: hundreds.append(None), 100)
        target = phone_numbers.find_inbound(conn, ["192.0.2.1"], "4900000123")
        raw.set_progress_handler(None, 0)
        assert target is not None
        return len(hundreds)

    await database.write(fill)
    assert await database.read(steps) < 20
