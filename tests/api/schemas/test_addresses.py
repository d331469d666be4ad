"""Address patterns of bodies. A contract test checks that the published patterns are the enforced ones."""

from __future__ import annotations

import json
import random
import re
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import pytest
from openapi_schema_validator import OAS30Validator

from api.routes import openapi_json
from api.schemas.addresses import HTTP, HTTP_TEMPLATE, HTTPS, IPV4, IPV6, SIP_ADDRESS, SIP_HOST, SIP_SOURCE
from tests.api.conftest import Api

SCHEMAS: Final = json.loads(openapi_json())["components"]["schemas"]


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _is(kind: type[IPv4Address | IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("pattern", "kind", "parts"),
    [
        (IPV6, IPv6Address, (":", ":", "::", "1", "ab", "FFFF", "12345", "g")),
        (IPV4, IPv4Address, (".", ".", "0", "1", "25", "199", "255", "256", "01")),
    ],
)
def test_ip_address_patterns_match_what_the_standard_library_accepts(
    pattern: str, kind: type[IPv4Address | IPv6Address], parts: tuple[str, ...]
) -> None:
    chance = random.Random(1)
    candidates = {"".join(chance.choices(parts, k=chance.randint(1, 16))) for _ in range(20_000)}
    assert (
        {text for text in candidates if _matches(pattern, text)}
        == {text for text in candidates if _is(kind, text)}
        != set()
    )


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        (
            HTTP,
            (
                "http://a",
                "HTTPS://A.b:1/",
                "https://a:65535?x=%5b%5d",
                "https://u:p%40@[::1]#x",
                "https://a_b/" + "c" * 9,
            ),
            (
                "",
                "https:",
                "https://",
                "https:///a",
                "https://a:0",
                "https://a:65536",
                "https://a b",
                "https://a/\\",
                "a",
            ),
        ),
        (HTTP, (), ("https://[1::2::3]/", "https://[1.2.3.4]/", "https://ä/", "https://a/\n", "ftp://a", "https://@/")),
        (HTTPS, ("https://a", "HTTPS://a"), ("http://a", "HTTP://a")),
        (
            HTTP_TEMPLATE,
            ("https://{{a}}.b:{{ port }}/{{c}}{{d}}?{}={e}#{{f}}", "https://{{user}}:{{key}}@{{host}}"),
            ("{{a}}://b", "https://{{a b}}/", "https://a/{{", "https://a/{{}}", "https://a/{{b}", "https://[{{a}}]/"),
        ),
        (
            SIP_ADDRESS,
            ("sip", "a.b.", "1.2.3.4:5060", "[::1]:1", "sip:me:x@a;transport=tcp", "SIPS:a:65535", "3com.example"),
            (
                "1.2.3",
                "a.1",
                "sip:5060",
                "sip:",
                "a:0",
                "a:70000",
                "::1",
                "[1.2.3.4]",
                "sip:a;b@c",
                "-a..b",
                "a/b",
                "sip:@a",
                "224.0.0.1",
                "sip:a@239.1.2.3:5060",
                "255.255.255.255",
                "0.0.0.0:5060",
                "[::]",
                "sip:[ff02::1]:5060;lr",
            ),
        ),
        (SIP_HOST, ("a", "a.b.", "1.2.3.4", "::1", "[::1]"), ("a:5060", "1.2.3.4:1", "sip:a", "0", "[a]", "", "a\n")),
        (SIP_HOST, (), ("224.0.0.1", "240.0.0.1", "255.255.255.255", "0.0.0.0", "::", "[::]", "ff02::1", "[FF0e::1]")),
        (
            SIP_SOURCE,
            (
                "a",
                "1.2.3.4",
                "::1",
                "[::1]",
                "10.0.0.0/8",
                "1.2.3.4/32",
                "223.255.255.255",
                "127.0.0.1",
                "fe80::1",
                "ff::1",
                "0::1",
                "2001:db8::1/99",
                "::1/100",
                "::1/128",
            ),
            (
                "",
                "a/8",
                "10.0.0.0/7",
                "10.0.0.0/08",
                "1.2.3.4/33",
                "::/15",
                "::1/129",
                "[::1]/64",
                "1.2.3.4/",
                "a:5060",
                "0.0.0.0",
                "0.1.2.3",
                "0.0.0.0/8",
                "224.0.0.1",
                "239.1.2.0/24",
                "240.0.0.0/8",
                "255.255.255.255",
                "::",
                "[::]",
                "::/16",
                "0:0:0:0:0:0:0:0",
                "ff02::1",
                "[FF0e::1]",
                "ff00::/16",
            ),
        ),
    ],
)
def test_an_address_pattern_accepts_valid_and_rejects_malformed_addresses(
    pattern: str, accepted: tuple[str, ...], rejected: tuple[str, ...]
) -> None:
    assert [text for text in accepted if not _matches(pattern, text)] == []
    assert [text for text in rejected if _matches(pattern, text)] == []


@pytest.mark.parametrize(
    ("trunk", "whole"),
    [
        ({}, True),
        ({"sipIp": "192.0.2.1"}, True),
        ({"sipMode": "ip_allowlist"}, False),
        ({"sipMode": "ip_allowlist", "sipIp": "192.0.2.1"}, True),
        ({"sipMode": "registration", "sipUsername": "me", "sipPassword": "hush"}, False),
        ({"sipMode": "registration", "sipUsername": "me", "sipPassword": "hush", "sipProxy": "pbx"}, True),
        ({"sipInboundAuth": False}, True),
        ({"sipInboundAuth": True, "sipUsername": "me"}, False),
        ({"sipInboundAuth": True, "sipUsername": "me", "sipPassword": "hush"}, True),
    ],
)
def test_the_openapi_document_has_the_fields_that_a_sip_mode_requires(trunk: dict[str, Any], whole: bool) -> None:
    validator = OAS30Validator({**SCHEMAS["PhoneNumberCreate"], "components": {"schemas": SCHEMAS}})
    assert validator.is_valid({"number": "100", "provider": "sip"} | trunk) is whole


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/agents", "postCallWebhookUrl", "Must be an absolute http or https URL"),
        ("/agents", "holdMusicUrl", "Must be an absolute http or https URL"),
        ("/tools", "config.url", "Must be an absolute http or https URL"),
        ("/phone-numbers", "sipProxy", "Must be host, host:port or a sip: URI, with an IP address or a host name"),
        ("/phone-numbers", "sipIp", "Must be an IP address or a host name"),
        (
            "/phone-numbers",
            "sipSources.0",
            "Must be a unicast IP address, a network (IPv4 of /8 to /32, IPv6 of /16 to /128) or a host name",
        ),
    ],
)
async def test_the_error_says_what_kind_of_address_was_rejected(api: Api, path: str, field: str, message: str) -> None:
    parent, _, name = field.rpartition(".")
    inner = ["//"] if name.isdigit() else {name: "//"}
    _, answer = await api("POST", path, {parent: inner} if parent else inner)
    assert {"field": field, "message": message} in answer["details"]
