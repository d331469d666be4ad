"""`/v1/phone-numbers`"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from storage import phone_numbers
from tests.api.cases import FieldCase, choice, integer, text
from tests.api.conftest import Api

SECRETS = ["sipPassword", *(f"provider_{which}{what}" for which in "abc" for what in ("AccountSid", "AuthToken"))]
TRANSPORTS = ("udp", "tcp", "tls")
LABEL = "x" * 63
NO_HOSTS = ("a..b", ".a", "a..", f"{LABEL}x", f"{LABEL}x.example", "192.0.2.256", "1.2.3", "a b", "a/b", "ä.example")


def place(name: str, *, nullable: bool = False) -> FieldCase:
    """A host, `host:port` or `sip:` URI of 1 to 100 characters."""
    good = ("x", f"{LABEL}.{'y' * 36}", "pbx.", "pbx:5080", "sip:pbx.example;transport=tcp", "[2001:db8::1]:5060")
    bad: tuple[Any, ...] = (
        *NO_HOSTS,
        "sip:a..b:5060",
        f"sip:me@{LABEL}x",
        "[fe80]",
        "",
        f"{LABEL}.{'y' * 37}",
        1,
        True,
        ["x"],
        {},
    )
    return FieldCase(name, None, good, bad, nullable)


FIELDS = [
    FieldCase("name", None, ("Front desk", "", "é" * 500), (1, True, [], {})),
    FieldCase(
        "number",
        None,
        ("+41441234567", "+12", "+123456789012345", "12", "123456789012345"),
        ("", "1", "+0123", "+1", "+1234567890123456", "1234567890123456", "12a", " 12", "12\n", "١٢٣", 12, True),
    ),
    choice("provider", ("sip", "provider_a", "provider_b", "provider_c"), None),
    text("sipUsername", 1, 60, None),
    place("sipProxy"),
    place("sipOutboundProxy", nullable=True),
    text("sipAuthUser", 1, 60, None, nullable=True),
    FieldCase(
        "sipIp",
        None,
        ("x", "192.0.2.1", "2001:db8::1", "pbx.example", f"{LABEL}.{LABEL}.{LABEL}.{'y' * 61}"),
        (*NO_HOSTS, "", f"{LABEL}.{LABEL}.{LABEL}.{'y' * 62}", "2001:db8::g", "[", 1, True, ["x"], {}),
    ),
    integer("sipPort", 1, 65535, None),
    choice("sipProtocol", TRANSPORTS, None),
    choice("sipRegisterTransport", TRANSPORTS, None),
    FieldCase("metadata", {}, ({}, {"a": {"b": [1, 2.5, None, True, "x"]}}), ([], "x", 1, True)),
]
BASE = {"number": "100", "provider": "sip"}
RESPONSE_ONLY = {"id", "createdAt", "updatedAt", "sipMode", "agentId", "sipStatus", "sipStatusDetail"}


@pytest.mark.parametrize("case", FIELDS, ids=str)
async def test_a_field_takes_what_the_contract_says(api: Api, case: FieldCase) -> None:
    phone = await api.made("/phone-numbers", BASE)
    if case.name not in BASE:
        assert phone[case.name] == case.default
    for value in (*case.good, *((None,) if case.nullable else ())):
        status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {case.name: value})
        assert (status, answer["data"][case.name]) == (200, value)
        await api("DELETE", f"/phone-numbers/{phone['id']}")
        phone = await api.made("/phone-numbers", {**BASE, case.name: value})
        assert phone[case.name] == value


@pytest.mark.parametrize("case", FIELDS, ids=str)
async def test_a_field_refuses_everything_else(api: Api, case: FieldCase) -> None:
    phone = await api.made("/phone-numbers", BASE)
    for value in (*case.bad, *(() if case.nullable else (None,))):
        for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{phone['id']}")):
            status, answer = await api(method, path, {**BASE, "number": "101", case.name: value})
            assert (status, answer["error"]) == (400, "Validation failed"), value
            assert {each["field"].split(".")[0] for each in answer["details"]} == {case.name}, value
    assert await api("GET", f"/phone-numbers/{phone['id']}") == (200, {"data": phone})


@pytest.mark.parametrize("name", SECRETS)
async def test_a_credential_is_write_only_and_encrypted(api: Api, name: str) -> None:
    secret = f"hush-{uuid4()}"
    phone = await api.made("/phone-numbers", {**BASE, name: secret})
    assert name not in phone
    response = await api.raw("PATCH", f"/phone-numbers/{phone['id']}", {name: f"{secret}2"})
    assert secret not in await response.text()
    stored = await api.services.database.read(lambda conn: phone_numbers.get(conn, api.organization_id, phone["id"]))
    assert stored is not None
    tokens = [stored.sip_password_encrypted, *stored.carrier_credentials_encrypted.values()]
    assert [api.services.secrets.decrypt(token) for token in tokens if token is not None] == [f"{secret}2"]
    assert not any(token in repr(stored) for token in tokens if token is not None)
    for bad in (None, "", 1):
        status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {name: bad})
        assert (status, answer["details"][0]["field"]) == (400, name)


async def test_one_credential_changes_without_the_others(api: Api) -> None:
    phone = await api.made("/phone-numbers", {**BASE, "provider_aAccountSid": "a", "provider_aAuthToken": "b"})
    await api("PATCH", f"/phone-numbers/{phone['id']}", {"provider_aAuthToken": "c"})
    stored = await api.services.database.read(lambda conn: phone_numbers.get(conn, api.organization_id, phone["id"]))
    assert stored is not None
    kept = {name: api.services.secrets.decrypt(token) for name, token in stored.carrier_credentials_encrypted.items()}
    assert kept == {"provider_a_account_sid": "a", "provider_a_auth_token": "c"}


async def test_the_response_has_exactly_the_fields_of_the_contract(api: Api) -> None:
    phone = await api.made("/phone-numbers", BASE)
    assert set(phone) == {case.name for case in FIELDS} | RESPONSE_ONLY


REGISTRATION = {"sipMode": "registration", "sipUsername": "me", "sipPassword": "hush", "sipProxy": "carrier.example"}


@pytest.mark.parametrize("missing", ["sipUsername", "sipPassword", "sipProxy"])
async def test_a_registration_needs_its_fields(api: Api, missing: str) -> None:
    body = {name: value for name, value in REGISTRATION.items() if name != missing}
    status, answer = await api("POST", "/phone-numbers", {**BASE, **body})
    assert (status, [each["field"] for each in answer["details"]]) == (400, [missing])
    phone = await api.made("/phone-numbers", {**BASE, missing: REGISTRATION[missing]})
    status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", body)
    assert (status, answer["data"]["sipMode"]) == (200, "registration")


async def test_an_allowlisted_trunk_needs_its_address(api: Api) -> None:
    status, answer = await api("POST", "/phone-numbers", {**BASE, "sipMode": "ip_allowlist"})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["sipIp"])
    phone = await api.made("/phone-numbers", {**BASE, "sipMode": "ip_allowlist", "sipIp": "192.0.2.1"})
    assert (phone["sipStatus"], phone["sipStatusDetail"]) == ("listening", None)
    for bad in ("both", None, 1):
        status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {"sipMode": bad})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["sipMode"])


async def test_a_number_without_a_trunk_says_what_is_missing(api: Api) -> None:
    phone = await api.made("/phone-numbers", BASE)
    assert phone["sipStatus"] == "unregistered"
    assert "sipMode" in phone["sipStatusDetail"]


async def test_number_and_provider_are_required(api: Api) -> None:
    status, answer = await api("POST", "/phone-numbers", {})
    assert (status, {each["field"] for each in answer["details"]}) == (400, {"number", "provider"})


async def test_a_number_is_unique_in_its_organization(api: Api) -> None:
    phone = await api.made("/phone-numbers", BASE)
    second = await api.made("/phone-numbers", {**BASE, "number": "101"})
    for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{second['id']}")):
        status, answer = await api(method, path, BASE)
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])
    status, _ = await api("PATCH", f"/phone-numbers/{phone['id']}", BASE)
    assert status == 200


async def test_the_same_number_from_the_same_source_in_two_organizations_is_refused(api: Api) -> None:
    other = await api.of_another_organization()
    trunk = {**BASE, "sipMode": "ip_allowlist", "sipIp": "2001:db8::1"}
    await api.made("/phone-numbers", trunk)
    status, answer = await other("POST", "/phone-numbers", {**trunk, "sipIp": "[2001:DB8:0::1]"})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])
    assert (await other("POST", "/phone-numbers", {**trunk, "number": "101"}))[0] == 201
    assert (await other("POST", "/phone-numbers", {**trunk, "sipIp": "2001:db8::2"}))[0] == 201


async def test_an_agent_must_be_the_organizations_own(api: Api) -> None:
    other = await api.of_another_organization()
    own = await api.made("/agents", {"name": "Anna"})
    theirs = await other.made("/agents", {"name": "Bea"})
    phone = await api.made("/phone-numbers", {**BASE, "agentId": own["id"].upper()})
    assert phone["agentId"] == own["id"]
    for bad in (theirs["id"], str(uuid4()), "x", 1):
        for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{phone['id']}")):
            status, answer = await api(method, path, {**BASE, "number": "101", "agentId": bad})
            assert (status, [each["field"] for each in answer["details"]]) == (400, ["agentId"])
    _, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {"agentId": None})
    assert answer["data"]["agentId"] is None


async def test_the_endpoint_hears_of_every_change_that_was_stored(api: Api) -> None:
    phone = await api.made("/phone-numbers", BASE)
    await api("POST", "/phone-numbers", BASE)
    assert len(api.number_changes) == 1
    await api("PATCH", f"/phone-numbers/{phone['id']}", {"name": "Desk"})
    await api("GET", f"/phone-numbers/{phone['id']}")
    assert len(api.number_changes) == 2
    assert await api("DELETE", f"/phone-numbers/{phone['id']}") == (200, {"data": {"id": phone["id"], "deleted": True}})
    await api("DELETE", f"/phone-numbers/{phone['id']}")
    assert len(api.number_changes) == 3


async def test_a_list_is_newest_first(api: Api) -> None:
    for number in ("100", "101", "102"):
        await api.made("/phone-numbers", {**BASE, "number": number})
    _, answer = await api("GET", "/phone-numbers?limit=2&offset=1")
    assert answer["pagination"] == {"total": 3, "limit": 2, "offset": 1}
    stamps: list[Any] = [each["createdAt"] for each in answer["data"]]
    assert stamps == sorted(stamps, reverse=True)
