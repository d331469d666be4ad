"""`/v1/phone-numbers`: credentials, trunks, agents."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from calls.admission.refused_invites import RefusedInvite, RefusedInvites
from config.clock import utc_now
from sipcore.security.unknown_sources import MAX_UNKNOWN_SOURCES, UnknownSources
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi

SECRETS = ["sipPassword", *(f"provider_{which}{what}" for which in "abc" for what in ("AccountSid", "AuthToken"))]
BASE = {"number": "100", "provider": "sip"}


@pytest.mark.parametrize("name", SECRETS)
async def test_a_credential_is_write_only_and_encrypted(api: Api, name: str) -> None:
    secret = f"hush-{uuid4()}"
    phone = await api.create("/phone-numbers", {**BASE, name: secret})
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
    phone = await api.create("/phone-numbers", {**BASE, "provider_aAccountSid": "a", "provider_aAuthToken": "b"})
    await api("PATCH", f"/phone-numbers/{phone['id']}", {"provider_aAuthToken": "c"})
    stored = await api.services.database.read(lambda conn: phone_numbers.get(conn, api.organization_id, phone["id"]))
    assert stored is not None
    kept = {name: api.services.secrets.decrypt(token) for name, token in stored.carrier_credentials_encrypted.items()}
    assert kept == {"provider_a_account_sid": "a", "provider_a_auth_token": "c"}


REGISTRATION = {"sipMode": "registration", "sipUsername": "me", "sipPassword": "hush", "sipProxy": "carrier.example"}


@pytest.mark.parametrize("missing", ["sipUsername", "sipPassword", "sipProxy"])
async def test_a_registration_needs_its_fields(api: Api, missing: str) -> None:
    body = {name: value for name, value in REGISTRATION.items() if name != missing}
    status, answer = await api("POST", "/phone-numbers", {**BASE, **body})
    assert (status, [each["field"] for each in answer["details"]]) == (400, [missing])
    phone = await api.create("/phone-numbers", {**BASE, missing: REGISTRATION[missing]})
    status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", body)
    assert (status, answer["data"]["sipMode"]) == (200, "registration")


async def test_an_ip_allowlist_trunk_needs_its_address(api: Api) -> None:
    status, answer = await api("POST", "/phone-numbers", {**BASE, "sipMode": "ip_allowlist"})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["sipIp"])
    phone = await api.create("/phone-numbers", {**BASE, "sipMode": "ip_allowlist", "sipIp": "192.0.2.1"})
    assert (phone["sipStatus"], phone["sipStatusDetail"]) == ("listening", "no answer has come yet")
    for bad in ("both", None, 1):
        status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {"sipMode": bad})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["sipMode"])


async def test_the_status_of_a_number_without_a_trunk_says_what_is_missing(api: Api) -> None:
    phone = await api.create("/phone-numbers", BASE)
    assert phone["sipStatus"] == "unregistered"
    assert "sipMode" in phone["sipStatusDetail"]


async def test_a_number_is_unique_in_its_organization(api: Api) -> None:
    phone = await api.create("/phone-numbers", BASE)
    second = await api.create("/phone-numbers", {**BASE, "number": "101"})
    for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{second['id']}")):
        status, answer = await api(method, path, BASE)
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])
    status, _ = await api("PATCH", f"/phone-numbers/{phone['id']}", BASE)
    assert status == 200


async def test_the_same_number_from_the_same_source_in_two_organizations_is_refused(api: Api) -> None:
    other = await api.as_another_organization()
    trunk = {**BASE, "sipMode": "ip_allowlist", "sipIp": "2001:db8::1"}
    await api.create("/phone-numbers", trunk)
    status, answer = await other("POST", "/phone-numbers", {**trunk, "sipIp": "[2001:DB8:0::1]"})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])
    assert (await other("POST", "/phone-numbers", {**trunk, "number": "101"}))[0] == 201
    assert (await other("POST", "/phone-numbers", {**trunk, "sipIp": "2001:db8::2"}))[0] == 201


async def test_an_agent_must_be_the_organizations_own(api: Api) -> None:
    other = await api.as_another_organization()
    own = await api.create("/agents", {"name": "Anna"})
    theirs = await other.create("/agents", {"name": "Bea"})
    phone = await api.create("/phone-numbers", {**BASE, "agentId": own["id"].upper()})
    assert phone["agentId"] == own["id"]
    for bad in (theirs["id"], str(uuid4()), "x", 1):
        for method, path in (("POST", "/phone-numbers"), ("PATCH", f"/phone-numbers/{phone['id']}")):
            status, answer = await api(method, path, {**BASE, "number": "101", "agentId": bad})
            assert (status, [each["field"] for each in answer["details"]]) == (400, ["agentId"])
    _, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {"agentId": None})
    assert answer["data"]["agentId"] is None


async def test_every_stored_change_is_reported_to_the_endpoint(api: Api) -> None:
    phone = await api.create("/phone-numbers", BASE)
    await api("POST", "/phone-numbers", BASE)
    assert len(api.number_changes) == 1
    await api("PATCH", f"/phone-numbers/{phone['id']}", {"name": "OutboundClient"})
    await api("GET", f"/phone-numbers/{phone['id']}")
    assert len(api.number_changes) == 2
    assert await api("DELETE", f"/phone-numbers/{phone['id']}") == (200, {"data": {"id": phone["id"], "deleted": True}})
    await api("DELETE", f"/phone-numbers/{phone['id']}")
    assert len(api.number_changes) == 3


async def test_inbound_authentication_needs_user_name_and_password(api: Api) -> None:
    status, answer = await api("POST", "/phone-numbers", {**BASE, "sipInboundAuth": True})
    needed = {"sipUsername", "sipPassword"}
    assert (status, {each["field"] for each in answer["details"]}) == (400, needed)
    assert {each["message"] for each in answer["details"]} == {"Is required when sipInboundAuth is true"}
    phone = await api.create("/phone-numbers", {**BASE, "sipUsername": "desk"})
    status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {"sipInboundAuth": True})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["sipPassword"])
    change = {"sipInboundAuth": True, "sipPassword": "hush"}
    status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", change)
    assert (status, answer["data"]["sipInboundAuth"]) == (200, True)


async def test_optional_fields_of_a_trunk_have_defaults_and_are_changed_separately(api: Api) -> None:
    rules = {
        "sipSources": [],
        "sipInboundAuth": False,
        "sipAllowRedirect": False,
        "sipAllowRefer": False,
        "sipQualifySeconds": 60,
        "sipTransferMethod": "auto",
        "sipTransferCallerId": "own",
        "outboundPrefixes": None,
        "outboundPerMinute": None,
    }
    phone = await api.create("/phone-numbers", BASE)
    assert rules == {name: phone[name] for name in rules}
    changes = {"sipSources": ["198.51.100.7/24"], "sipQualifySeconds": 0, "outboundPrefixes": ["+49", "1"]}
    changes |= {"sipTransferMethod": "bridge", "sipTransferCallerId": "caller_in_from"}
    for name, value in changes.items():
        _, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {name: value})
        rules[name] = value
        assert rules == {name: answer["data"][name] for name in rules}
    for name in ("sipSources", "sipAllowRefer", "sipQualifySeconds", "sipTransferMethod", "sipTransferCallerId"):
        status, answer = await api("PATCH", f"/phone-numbers/{phone['id']}", {name: None})
        assert (status, [each["field"].partition(".")[0] for each in answer["details"]]) == (400, [name])


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("ff02::1", "multicast"),
        ("::ffff:e000:1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "reserved"),
        ("0.0.0.0", "this network"),
        ("0.1.2.3", "this network"),
        ("::", "unspecified"),
        ("169.254.169.254", "a metadata service"),
        ("100.100.100.200", "a metadata service"),
        ("fd00:ec2::254", "a metadata service"),
        ("64:ff9b::a9fe:a9fe", "a metadata service"),
    ],
)
async def test_a_trunk_s_address_is_unicast(api: Api, address: str, what: str) -> None:
    bracketed = f"[{address}]" if ":" in address else address
    phone = await api.create("/phone-numbers", BASE)
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"sipIp": address}, "sipIp"),
        ({"sipIp": bracketed}, "sipIp"),
        ({"sipSources": ["192.0.2.1", address]}, "sipSources.1"),
        ({"sipProxy": bracketed}, "sipProxy"),
        ({"sipProxy": f"sip:a/b@{bracketed}:5080;transport=tcp"}, "sipProxy"),
        ({"sipOutboundProxy": f"sip:{bracketed};lr"}, "sipOutboundProxy"),
    ]
    problem = {"message": f"Must be the unicast address of a trunk: this is {what}"}
    for body, field in bodies:
        for method, path, more in (("POST", "/phone-numbers", BASE), ("PATCH", f"/phone-numbers/{phone['id']}", {})):
            status, answer = await api(method, path, {**more, **body})
            assert (status, answer["details"]) == (400, [{"field": field, **problem}]), body


@pytest.mark.parametrize("address", ["127.0.0.1", "192.168.1.9", "169.254.3.4", "fe80::1", "::1", "10.255.255.255"])
async def test_loopback_and_lan_addresses_are_trunks_of_the_only_organization(api: Api, address: str) -> None:
    phone = await api.create("/phone-numbers", {**BASE, "sipMode": "ip_allowlist", "sipIp": address})
    assert phone["sipIp"] == address


@pytest.mark.parametrize(
    ("sources", "status"),
    [
        (["10.0.0.0/8", "pbx.example", "192.0.2.1"], 201),
        (["10.0.0.0/8", "10.1.0.0/16", "10.9.9.9/8"], 201),
        (["10.0.0.0/9", "11.0.0.0/9", "2001:db8::/16", "2001:db9::/16"], 201),
        (["10.0.0.0/8", "192.0.2.0/24"], 400),
        ([f"{first}.0.0.0/8" for first in range(1, 33)], 400),
        (["2001:db8::/16", "2002::/64"], 400),
    ],
)
async def test_the_networks_of_a_number_have_a_common_limit_of_addresses(
    api: Api, sources: list[str], status: int
) -> None:
    trunk = {**BASE, "sipMode": "ip_allowlist", "sipIp": "192.0.2.1", "sipSources": sources}
    given, answer = await api("POST", "/phone-numbers", trunk)
    assert given == status, answer
    if status == 400:
        assert [each["field"] for each in answer["details"]] == ["sipSources"]


async def test_a_narrower_source_is_accepted_beside_a_wider_one_of_another_organization(api: Api) -> None:
    """A number that another organization claims with a wide network belongs to the one with the single address."""
    other = await api.as_another_organization()
    trunk = {**BASE, "sipMode": "ip_allowlist"}
    squatted = await api.create("/phone-numbers", {**trunk, "sipIp": "192.0.2.1", "sipSources": ["198.0.0.0/9"]})
    theirs = await other.create("/phone-numbers", {**trunk, "sipIp": "198.51.100.7"})
    sources = ["198.51.100.7", "198.0.0.0/9"]
    read = api.services.database.read
    target = await read(lambda conn: phone_numbers.match_inbound(conn, sources, "100"))
    assert target is not None and (target.number.id, [each.id for each in target.other_matches]) == (
        theirs["id"],
        [squatted["id"]],
    )


async def test_the_same_number_and_source_is_rejected_for_a_second_organization(api: Api) -> None:
    other = await api.as_another_organization()
    trunk = {**BASE, "sipMode": "ip_allowlist"}
    await api.create("/phone-numbers", {**trunk, "sipIp": "192.0.2.1", "sipSources": ["198.51.100.0/24"]})
    status, answer = await other("POST", "/phone-numbers", {**trunk, "sipIp": "192.0.2.1"})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])
    assert answer["details"][0]["message"] == "This number is not available from this trunk"
    theirs = await other.create("/phone-numbers", {**trunk, "sipIp": "203.0.113.1"})
    for change in ({"sipIp": "192.0.2.1"}, {"sipSources": ["198.51.100.9/24"]}, {"sipSources": ["192.0.2.1"]}):
        status, answer = await other("PATCH", f"/phone-numbers/{theirs['id']}", change)
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["number"])


CARRIERS = {"provider_a": {"host": "sip.carrier.example", "sources": ["198.51.100.0/24"]}}
OF_CARRIER = {"number": "+4940123456", "provider": "provider_a"}


async def fields_of_400(api: Api, method: str, path: str, body: Any) -> dict[str, str]:
    """The messages of a 400 by field."""
    status, answer = await api(method, path, body)
    assert status == 400, answer
    return {each["field"]: each["message"] for each in answer["details"]}


async def test_a_number_of_a_carrier_that_is_not_configured_gets_400(api: Api) -> None:
    problems = await fields_of_400(api, "POST", "/phone-numbers", OF_CARRIER)
    assert [*problems] == ["provider"]
    assert "provider_a has no trunk" in problems["provider"] and "[providers.provider_a]" in problems["provider"]
    phone = await api.create("/phone-numbers", BASE)
    assert [*await fields_of_400(api, "PATCH", f"/phone-numbers/{phone['id']}", {"provider": "provider_b"})] == [
        "provider"
    ]
    assert (await api("GET", f"/phone-numbers/{phone['id']}"))[1]["data"]["provider"] == "sip"
    own = await api.create("/phone-numbers", {**OF_CARRIER, "sipMode": "ip_allowlist", "sipIp": "192.0.2.1"})
    assert (own["provider"], own["sipStatus"]) == ("provider_a", "listening")


async def test_a_number_from_before_is_read_changed_and_deleted_without_its_carrier(api: Api) -> None:
    stored = await api.services.database.write(
        lambda conn: phone_numbers.create(
            conn, api.organization_id, PhoneNumberFields(number="900", provider="provider_c")
        )
    )
    path = f"/phone-numbers/{stored.id}"
    status, answer = await api("GET", path)
    assert (status, answer["data"]["provider"], answer["data"]["sipStatus"]) == (200, "provider_c", "unregistered")
    assert "[providers.provider_c]" in answer["data"]["sipStatusDetail"]
    agent = await api.create("/agents", {"name": "Night", "systemPrompt": "Hello."})
    unchanged = {"provider": "provider_c", "sipTransferMethod": "auto", "sipQualifySeconds": 60}
    for changes in ({"name": "Night", "metadata": {"desk": 1}}, {"agentId": agent["id"]}, {**unchanged, "name": "Day"}):
        status, answer = await api("PATCH", path, changes)
        assert (status, answer["data"]["sipStatus"]) == (200, "unregistered"), changes
    assert (answer["data"]["name"], answer["data"]["agentId"]) == ("Day", agent["id"])
    for changes in ({"provider": "provider_b"}, {"sipQualifySeconds": 0}, {"sipIp": "192.0.2.1"}):
        assert [*await fields_of_400(api, "PATCH", path, {**changes, "name": "Dusk"})] == ["provider"], changes
    assert [*await fields_of_400(api, "PATCH", path, {"agentId": "gone"})] == ["agentId"]
    assert (await api("PATCH", path, {"provider": "sip"}))[0] == 200
    assert (await api("DELETE", path))[0] == 200


async def test_a_number_has_the_trunk_of_its_carrier_until_it_gets_its_own(start_api: StartApi) -> None:
    api: Api = await start_api({"providers": CARRIERS})

    async def source() -> str | None:
        stored = await api.services.database.read(
            lambda conn: phone_numbers.get(conn, api.organization_id, phone["id"])
        )
        assert stored is not None
        return stored.source

    phone = await api.create("/phone-numbers", OF_CARRIER)
    path = f"/phone-numbers/{phone['id']}"
    assert (phone["sipStatus"], phone["sipMode"], phone["sipIp"]) == ("listening", None, None)
    assert await source() == "sip.carrier.example"
    changes = (
        ({"name": "Night"}, "sip.carrier.example"),
        ({"provider": "sip"}, None),
        ({"provider": "provider_a"}, "sip.carrier.example"),
        ({"sipMode": "ip_allowlist", "sipIp": "192.0.2.1"}, "192.0.2.1"),
    )
    for change, expected in changes:
        status, answer = await api("PATCH", path, change)
        assert (status, await source()) == (200, expected), answer


async def test_the_trunk_of_a_carrier_needs_a_grant_like_any_other(start_api: StartApi) -> None:
    api: Api = await start_api({"providers": CARRIERS, "trunks": {"policy": "approved"}})

    async def grant(trunk: str) -> None:
        await api.services.database.write(
            lambda conn: trunk_grants.allow(conn, api.organization_id, trunk, "+4940*", actor="ann")
        )

    for trunk in ("sip.carrier.example", "198.51.100.0/24"):
        status, answer = await api("POST", "/phone-numbers", OF_CARRIER)
        assert (status, [each["field"] for each in answer["details"]]) == (403, ["provider"])
        await grant(trunk)
    await api.create("/phone-numbers", OF_CARRIER)
    status, answer = await api("POST", "/phone-numbers", {**OF_CARRIER, "number": "+4930123456"})
    assert (status, [each["field"] for each in answer["details"]]) == (403, ["number"])


@pytest.mark.parametrize(
    ("pbx", "title", "line"),
    [
        ("asterisk", "Asterisk", "type=identify"),
        ("freepbx", "FreePBX", "Trunks"),
        ("freeswitch", "FreeSWITCH", "<gateway"),
        ("kamailio", "Kamailio", "ds_is_from_list"),
        ("3cx", "3CX", "Trunk"),
    ],
)
async def test_a_number_has_the_configuration_of_its_pbx_without_the_password(
    start_api: StartApi, pbx: str, title: str, line: str
) -> None:
    api: Api = await start_api({"sip": {"public_address": "198.51.100.5"}})
    trunk = {"sipMode": "ip_allowlist", "sipIp": "192.0.2.10", "sipInboundAuth": True}
    secrets = {"sipUsername": "700", "sipPassword": "hush-hush"}
    phone = await api.create("/phone-numbers", {**BASE, **trunk, **secrets})
    status, answer = await api("GET", f"/phone-numbers/{phone['id']}/pbx-configuration?pbx={pbx}")
    found = answer["data"]
    assert (status, found["pbx"], found["title"], found["problem"]) == (200, pbx, title, None)
    assert line in found["configuration"] and "198.51.100.5" in found["configuration"]
    assert "hush-hush" not in found["configuration"]


async def test_a_pbx_that_cannot_have_the_trunk_says_why(api: Api) -> None:
    phone = await api.create("/phone-numbers", {**BASE, "sipMode": "ip_allowlist", "sipIp": "192.0.2.10"})
    _, answer = await api("GET", f"/phone-numbers/{phone['id']}/pbx-configuration?pbx=fritzbox")
    assert answer["data"]["configuration"] is None
    assert answer["data"]["problem"] == "a FRITZ!Box has no trunk by address: use a registration"
    bare = await api.create("/phone-numbers", {**BASE, "number": "101"})
    _, answer = await api("GET", f"/phone-numbers/{bare['id']}/pbx-configuration")
    assert answer["data"]["configuration"] is None and "sipMode" in answer["data"]["problem"]
    status, answer = await api("GET", f"/phone-numbers/{phone['id']}/pbx-configuration?pbx=other")
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["pbx"])


async def test_operators_see_the_addresses_that_no_trunk_has(start_api: StartApi) -> None:
    unknown = UnknownSources()
    api: Api = await start_api(unknown_sources=unknown.latest)
    for address, messages in (("192.0.2.10", 2), ("192.0.2.11", 1), ("192.0.2.10", 3)):
        unknown.add(address, messages)
    path = "/v1/phone-numbers/unknown-sources"
    operator = await signed_in(api, "operator")
    _, answer = await operator("GET", path)
    assert [(each["address"], each["messages"]) for each in answer["data"]] == [("192.0.2.10", 5), ("192.0.2.11", 1)]
    assert (await (await signed_in(api, "owner"))("GET", path))[0] == 403
    for number in range(MAX_UNKNOWN_SOURCES):
        unknown.add(f"198.51.100.{number}", 1)
    assert [len(unknown.latest()), unknown.latest()[-1].address] == [MAX_UNKNOWN_SOURCES, "198.51.100.0"]


async def test_refused_calls_are_the_organizations_own_and_can_be_those_of_one_number(start_api: StartApi) -> None:
    kept = RefusedInvites()
    api: Api = await start_api(refused_invites=kept.of)
    phone = await api.create("/phone-numbers", BASE)
    at = utc_now()
    kept.add(api.organization_id, RefusedInvite(at, phone["id"], "192.0.2.10", "100", "7", 480, "no agent"))
    kept.add(api.organization_id, RefusedInvite(at, None, "192.0.2.10", "<b>", "7", 404, "unknown number"))
    kept.add(str(uuid4()), RefusedInvite(at, None, "192.0.2.99", "1", "7", 404, "unknown number"))
    _, answer = await api("GET", "/phone-numbers/refused-calls")
    assert {(each["dialledNumber"], each["statusCode"]) for each in answer["data"]} == {("100", 480), ("<b>", 404)}
    _, answer = await api("GET", f"/phone-numbers/refused-calls?phoneNumberId={phone['id']}")
    assert [each["reason"] for each in answer["data"]] == ["no agent"]
    assert await api("GET", f"/phone-numbers/refused-calls?phoneNumberId={uuid4()}") == (
        404,
        {"error": "Phone number not found"},
    )
