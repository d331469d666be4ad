"""`/organization`: what the operator has set, and the retention that the organization sets."""

from __future__ import annotations

from typing import Any

import pytest

from storage.accounts import audit_log, organizations
from storage.tables.columns import EPOCH
from tests.api.conftest import Api, StartApi


async def test_it_shows_the_limits_that_apply(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"max_calls_per_organization": 7}, "dashboard": {"listen": False}})
    status, answer = await api("GET", "/organization")
    data = answer["data"]
    assert (status, data["id"], data["name"]) == (200, api.organization_id, "default")
    assert (data["plan"], data["balance"], data["maxCalls"], data["listening"]) == ("free", None, 7, False)

    def change(conn: Any) -> None:
        stored = organizations.get(conn, api.organization_id)
        assert stored is not None
        organizations.change(conn, stored, {"plan": "paid", "balance": 12.5, "max_calls": 3})

    await api.services.database.write(change)
    data = (await api("GET", "/organization"))[1]["data"]
    assert (data["plan"], data["balance"], data["maxCalls"]) == ("paid", 12.5, 3)


async def test_retention_changes_and_is_audited(api: Api) -> None:
    status, answer = await api("PATCH", "/organization", {"keepRecordingsDays": 30, "redact": True})
    assert (status, answer["data"]["keepRecordingsDays"], answer["data"]["redact"]) == (200, 30, True)
    status, answer = await api("PATCH", "/organization", {"keepRecordingsDays": None})
    assert (status, answer["data"]["keepRecordingsDays"], answer["data"]["redact"]) == (200, None, True)
    assert (await api("PATCH", "/organization", {"redact": True}))[0] == 200, "nothing changes"
    entries = await api.services.database.read(lambda conn: audit_log.entries_since(conn, api.organization_id, EPOCH))
    assert [(each.action, each.fields) for each in entries] == [
        ("organization.update", ["keepRecordingsDays", "redact"]),
        ("organization.update", ["keepRecordingsDays"]),
        ("organization.update", []),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keepRecordingsDays", -1),
        ("keepCallsDays", 36501),
        ("keepTranscriptsDays", 1.5),
        ("redact", None),
        ("plan", "paid"),
        ("balance", 100),
        ("maxCalls", 1000),
        ("name", "mine"),
        ("outboundPrefixes", None),
    ],
)
async def test_what_is_out_of_bounds_or_the_operators_is_refused(api: Api, field: str, value: Any) -> None:
    status, answer = await api("PATCH", "/organization", {field: value})
    assert (status, [each["field"] for each in answer["details"]]) == (400, [field])
