"""SIP sources of a number: normal form, matching, precedence."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from config.errors import Invalid
from storage import tables
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import AmbiguousNumber, PhoneNumber, PhoneNumberFields
from storage.phone_numbers.sip_sources import normal_source

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


AROUND_CARRIER: dict[str, Any] = PBX | {"sip_sources": ["198.51.100.0/24"]}


async def test_a_number_matches_calls_from_each_of_its_sources(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        listed = ["198.51.100.0/24", "SBC.example", "192.0.2.1"]
        _number(conn, organization_id, "100", **PBX, sip_sources=listed)
        _number(conn, organization_id, "200", **CARRIER, sip_outbound_proxy="sip:edge.Carrier.example;lr")
        assert phone_numbers.all_sources(conn) == {
            "192.0.2.1",
            "198.51.100.0/24",
            "sbc.example",
            "sip.carrier.example",
            "edge.carrier.example",
        }
        for source in ("192.0.2.1", "198.51.100.0/24", "sbc.example"):
            target = phone_numbers.match_inbound(conn, ["203.0.113.9", source], "100")
            assert target is not None, source
            assert phone_numbers.match_inbound(conn, [source], "200") is None
        assert phone_numbers.match_inbound(conn, ["edge.carrier.example"], "200") is not None
        assert phone_numbers.match_inbound(conn, [], "100") is None

    await database.write(check)


async def test_an_update_of_a_number_updates_its_sources(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        number = _number(conn, organization_id, "100", **PBX, sip_sources=["198.51.100.0/24"])
        number = phone_numbers.replace(conn, number, {"sip_ip": "192.0.2.2"})
        assert phone_numbers.all_sources(conn) == {"192.0.2.2", "198.51.100.0/24"}
        number = phone_numbers.replace(conn, number, {"sip_sources": ["203.0.113.7/32"]})
        assert phone_numbers.all_sources(conn) == {"192.0.2.2", "203.0.113.7"}
        number = phone_numbers.replace(conn, number, {"sip_mode": None})
        assert phone_numbers.all_sources(conn) == frozenset()
        phone_numbers.replace(conn, number, {"sip_mode": "ip_allowlist"})
        assert phone_numbers.delete(conn, organization_id, number.id)
        assert phone_numbers.all_sources(conn) == frozenset()

    await database.write(check)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (AROUND_CARRIER, PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["198.51.100.7/24"]}),
        (PBX | {"sip_ip": "198.51.100.7"}, PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["198.51.100.7/32"]}),
        (PBX | {"sip_sources": ["sip.carrier.example"]}, CARRIER),
        (CARRIER | {"sip_outbound_proxy": "192.0.2.1:5080"}, PBX),
    ],
)
async def test_two_organizations_cannot_have_one_number_with_one_source(
    database: Database, organization_id: str, held: dict[str, Any], wanted: dict[str, Any]
) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other").id
        _number(conn, organization_id, "+49777", **held)
        with pytest.raises(Invalid) as made:
            _number(conn, other, "49777", **wanted)
        with_other_source = _number(conn, other, "49777", **PBX | {"sip_ip": "203.0.113.200"})
        with pytest.raises(Invalid) as moved:
            phone_numbers.replace(conn, with_other_source, wanted)
        for error in (made.value, moved.value):
            assert [problem.field for problem in error.problems] == ["number"]
            assert "exist" not in error.problems[0].message
        assert _number(conn, other, "49778", **wanted).number == "49778"
        assert _number(conn, organization_id, "49777", **wanted).number == "49777"

    await database.write(check)


WIDE: dict[str, Any] = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["192.0.0.0/9"]}
NARROW: dict[str, Any] = PBX | {"sip_ip": "203.0.113.2", "sip_sources": ["192.0.2.0/24"]}


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [(WIDE, PBX), (WIDE, NARROW), (NARROW, PBX), (WIDE, CARRIER), (NARROW, CARRIER), (CARRIER, PBX)],
)
@pytest.mark.parametrize("wider_is_older", [True, False])
async def test_the_narrower_source_wins_regardless_of_age(
    database: Database, organization_id: str, wider: dict[str, Any], narrower: dict[str, Any], wider_is_older: bool
) -> None:
    matched = ["192.0.2.1", "192.0.2.0/24", "192.0.0.0/9", "sip.carrier.example"]

    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other").id
        claims = [(other, "49777", wider), (organization_id, "+49777", narrower)]
        made = {
            who: _number(conn, who, number, **facts) for who, number, facts in claims[:: 1 if wider_is_older else -1]
        }
        for dialled in ("49777", "+49777"):
            target = phone_numbers.match_inbound(conn, matched, dialled)
            assert target is not None
            assert (target.number, target.other_matches) == (made[organization_id], [made[other]])

    await database.write(check)


HERE: dict[str, Any] = PBX
NAMED: dict[str, Any] = CARRIER
ALSO_NAMED: dict[str, Any] = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["alias.example"]}
BY_PROXY: dict[str, Any] = CARRIER | {"sip_proxy": "elsewhere.example", "sip_outbound_proxy": "edge.example"}
AROUND: dict[str, Any] = PBX | {"sip_ip": "203.0.113.1", "sip_sources": ["192.0.2.0/24"]}


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (HERE, ALSO_NAMED, "first"),
        (HERE, BY_PROXY, "first"),
        (NAMED, HERE, "second"),
        (AROUND, NAMED, "second"),
        (NAMED, ALSO_NAMED, None),
        (ALSO_NAMED, BY_PROXY, None),
    ],
)
@pytest.mark.parametrize(("held", "wanted"), [("+49777", "49777"), ("49777", "+49777"), ("49777", "49777")])
async def test_an_address_wins_over_a_host_name_that_resolves_to_it(
    database: Database,
    organization_id: str,
    first: dict[str, Any],
    second: dict[str, Any],
    winner: str | None,
    held: str,
    wanted: str,
) -> None:
    """The addresses of a name are not known when it is stored."""

    def check(conn: sa.Connection) -> None:
        mine = _number(conn, organization_id, held, **first)
        theirs = _number(conn, organizations.create(conn, "other").id, wanted, **second)
        matched = ["192.0.2.1", "192.0.2.0/24", "alias.example", "sip.carrier.example", "edge.example"]
        for dialled in (held, wanted):
            if winner is None:
                with pytest.raises(AmbiguousNumber) as contested:
                    phone_numbers.match_inbound(conn, matched, dialled)
                assert {each.id for each in contested.value.numbers} == {mine.id, theirs.id}
            else:
                target = phone_numbers.match_inbound(conn, matched, dialled)
                assert target is not None
                expected = (mine, [theirs]) if winner == "first" else (theirs, [mine])
                assert (target.number, target.other_matches) == expected

    await database.write(check)


async def test_the_outbound_proxy_of_an_allowlist_number_is_no_source(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        _number(conn, organization_id, "100", **PBX, sip_outbound_proxy="edge.carrier.example")
        assert phone_numbers.all_sources(conn) == {"192.0.2.1"}
        assert phone_numbers.match_inbound(conn, ["edge.carrier.example"], "100") is None

    await database.write(check)


@pytest.mark.sqlite
async def test_matching_one_of_ten_thousand_numbers_uses_an_index(database: Database, organization_id: str) -> None:
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
        """The number of hundreds of SQLite's instructions for a match; a scan takes over a thousand."""
        hundreds: list[None] = []
        raw = conn.connection.driver_connection
        assert raw is not None
        raw.set_progress_handler(lambda: hundreds.append(None), 100)
        target = phone_numbers.match_inbound(conn, ["192.0.2.1"], "4900000123")
        raw.set_progress_handler(None, 0)
        assert target is not None
        return len(hundreds)

    await database.write(fill)
    assert await database.read(steps) < 20
