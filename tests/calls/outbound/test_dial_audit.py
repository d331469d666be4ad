"""The audit of redirects and transfers, and its pruning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from calls.outbound import dial_audit, peer_reroute_permissions
from calls.outbound.peer_reroute_permissions import PeerRerouteRequest, RerouteMethod
from config.clock import utc_now
from storage import tables
from storage.accounts import audit_log, organizations
from storage.calls import calls, outbound_audit
from storage.calls.calls import Call
from storage.calls.outbound_audit import AttemptWithCall, DialRequest
from storage.database.database import Database
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumberFields

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def _call(conn: sa.Connection, **facts: Any) -> Call:
    owner = organizations.create(conn, "default").id
    fields = PhoneNumberFields(number="100", provider="sip", **facts)
    number = phone_numbers.create(conn, owner, fields)
    return calls.create_inbound(
        conn,
        organization_id=owner,
        agent_id="",
        phone_number_id=number.id,
        provider="sip",
        call_sid="x",
        customer_number="200",
    )


def _is_authorized(conn: sa.Connection, call: Call, by: RerouteMethod, destination: str) -> bool:
    """True if the peer's request is authorized."""
    number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
    request = PeerRerouteRequest(by, destination, "192.0.2.1", from_number="100")
    return peer_reroute_permissions.authorize_peer_reroute(conn, call, number, request, lambda *_: None)


def _log(conn: sa.Connection, owner: str) -> list[AttemptWithCall]:
    return list(outbound_audit.page_after(conn, owner, BEGINNING, "", limit=99))


@pytest.mark.parametrize(
    ("by", "facts", "destination", "verdict"),
    [
        ("refer", {}, "+49301", "refer_refused"),
        ("redirect", {}, "+49301", "redirect_refused"),
        ("refer", {"sip_allow_redirect": True}, "+49301", "refer_refused"),
        ("redirect", {"sip_allow_refer": True}, "+49301", "redirect_refused"),
        ("refer", {"sip_allow_refer": True}, "+49301", "referred"),
        ("redirect", {"sip_allow_redirect": True}, "300", "redirected"),
        ("refer", {"sip_allow_refer": True, "outbound_prefixes": ["+49"]}, "+18005550100", "refer_refused"),
        ("refer", {"sip_allow_refer": True}, "alice\r\n", "refer_refused"),
    ],
)
async def test_a_peer_reroutes_a_call_only_to_allowed_destinations(
    database: Database, by: RerouteMethod, facts: dict[str, Any], destination: str, verdict: str
) -> None:
    def check(conn: sa.Connection) -> None:
        call = _call(conn, **facts)
        granted = _is_authorized(conn, call, by, destination)
        assert granted is not verdict.endswith("refused")
        [entry] = _log(conn, call.organization_id)
        attempt = entry.attempt
        assert (attempt.verdict, attempt.call_id, attempt.client) == (verdict, call.id, "192.0.2.1")
        assert (attempt.api_key_id, attempt.destination, attempt.number) == (None, destination.strip(), "100")
        assert (attempt.detail is None) is granted

    await database.write(check)


async def test_a_rerouted_call_counts_against_the_calls_per_minute(database: Database) -> None:
    def check(conn: sa.Connection) -> None:
        call = _call(conn, sip_allow_refer=True, sip_allow_redirect=True, outbound_per_minute=2)
        methods: list[RerouteMethod] = ["refer", "redirect", "refer"]
        assert [_is_authorized(conn, call, by, "300") for by in methods] == [True, True, False]
        assert _log(conn, call.organization_id)[2].attempt.detail == "too many calls per minute"

    await database.write(check)


async def test_a_peer_cannot_flood_the_audit_log(database: Database) -> None:
    def check(conn: sa.Connection) -> None:
        call = _call(conn, sip_allow_redirect=True)
        for _ in range(peer_reroute_permissions.MAX_REFUSED_ENTRIES + 20):
            assert not _is_authorized(conn, call, "refer", "300")
        assert len(outbound_audit.page_after(conn, call.organization_id, BEGINNING, "", limit=999)) == 100
        assert _is_authorized(conn, call, "redirect", "300")
        assert len(outbound_audit.page_after(conn, call.organization_id, BEGINNING, "", limit=999)) == 101

    await database.write(check)


async def test_a_withdrawn_permission_counts_at_once(database: Database) -> None:
    def check(conn: sa.Connection) -> None:
        call = _call(conn, sip_allow_refer=True)
        number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
        assert number is not None
        phone_numbers.replace(conn, number, {"sip_allow_refer": False})
        assert not _is_authorized(conn, call, "refer", "300")
        phone_numbers.delete(conn, call.organization_id, number.id)
        assert not _is_authorized(conn, call, "refer", "300")
        assert [each.attempt.detail for each in _log(conn, call.organization_id)] == [
            "the trunk does not allow it",
            "the number was deleted",
        ]
        assert [each.attempt.number for each in _log(conn, call.organization_id)] == ["100", "100"]

    await database.write(check)


async def test_dial_attempts_are_removed_after_400_days(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_audit, "ROWS_PER_TRANSACTION", 2)
    now = utc_now()

    def fill(conn: sa.Connection) -> str:
        owner = organizations.create(conn, "default").id
        wish = DialRequest(organization_id=owner, phone_number_id=None, destination="300", client=None)
        for _ in range(6):
            outbound_audit.record(conn, wish, "queued")
        old = list(conn.execute(sa.select(tables.outbound_attempts.c.id).limit(5)).scalars())
        change = sa.update(tables.outbound_attempts).where(tables.outbound_attempts.c.id.in_(old))
        conn.execute(change.values(created_at=now - timedelta(days=400)))
        young = sa.update(tables.outbound_attempts).where(tables.outbound_attempts.c.id.not_in(old))
        conn.execute(young.values(created_at=now - timedelta(days=399, hours=23)))
        return owner

    owner = await database.write(fill)
    assert await dial_audit.prune(database, timedelta(days=400)) == 5
    assert len(await database.read(lambda conn: _log(conn, owner))) == 1
    assert await dial_audit.prune(database, timedelta(days=400)) == 0


async def test_operators_changes_are_removed_after_400_days(database: Database) -> None:
    def fill(conn: sa.Connection) -> str:
        owner = organizations.create(conn, "default").id
        entries = tables.audit_entries
        for trunk, age in (("192.0.2.1", timedelta(days=400)), ("192.0.2.2", timedelta(days=399, hours=23))):
            trunk_grants.allow(conn, owner, trunk, "*", actor="ann")
            mine = entries.c.detail.startswith(trunk)
            conn.execute(sa.update(entries).where(mine).values(created_at=utc_now() - age))
        return owner

    owner = await database.write(fill)
    assert await dial_audit.prune(database, timedelta(days=400)) == 1
    left = await database.read(lambda conn: audit_log.entries_since(conn, owner, BEGINNING))
    assert [each.detail for each in left] == ["192.0.2.2 for numbers *"]
