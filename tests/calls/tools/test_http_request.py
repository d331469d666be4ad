"""Rendering of a tool's request: parts of the URL, headers, body, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from calls.call_record.context_variables import ContextValue
from calls.tools.http_request import InvalidToolRequest, RequestTemplate, ToolRequest


def filled(
    url: str,
    values: dict[str, ContextValue] | None = None,
    arguments: dict[str, Any] | None = None,
    *,
    method: Any = "GET",
    headers: list[tuple[str, str]] | None = None,
) -> ToolRequest:
    return RequestTemplate(method, url, headers or []).render(arguments or {}, values or {}, call_id="c")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_without_a_body_the_parameters_go_into_the_query(method: str) -> None:
    arguments = {"name": "Ann & Bob", "count": 2, "share": 2.5, "now": True, "tags": ["a", 1], "at": {"x": [1]}}
    request = filled("http://h.example/p?k=1#f", arguments=arguments, method=method)
    assert str(request.url) == (
        "http://h.example/p?k=1&name=Ann%20%26%20Bob&count=2&share=2.5&now=true&tags=a&tags=1"
        "&at=%7B%22x%22%3A%5B1%5D%7D"
    )
    assert request.body is None
    assert "Content-Type" not in request.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_with_a_body_the_parameters_go_into_it_as_json(method: str) -> None:
    request = filled("http://h.example/p?k=1", arguments={"name": "Änn", "n": [1, {"a": None}]}, method=method)
    assert str(request.url) == "http://h.example/p?k=1"
    assert request.body == '{"name":"Änn","n":[1,{"a":null}]}'.encode()
    assert request.headers == {"Content-Type": "application/json"}
    assert filled("http://h.example/", method=method).body == b"{}"


def test_a_configured_content_type_stays() -> None:
    request = filled("http://h.example/", method="POST", headers=[("content-type", "application/vnd.x+json")])
    assert list(request.headers.items()) == [("content-type", "application/vnd.x+json")]


@pytest.mark.parametrize(
    ("url", "values", "sent"),
    [
        ("http://{{host}}/", {"host": "a.example"}, "http://a.example/"),
        ("http://{{ region }}.example:{{port}}/", {"region": "eu", "port": 8080}, "http://eu.example:8080/"),
        ("http://h.example/o/{{id}}/x", {"id": "7/8?#&%2F é"}, "http://h.example/o/7%2F8%3F%23%26%252F%20%C3%A9/x"),
        ("http://h.example/o/{{id}}", {"id": "7;admin=1,@:+"}, "http://h.example/o/7%3Badmin%3D1%2C%40%3A%2B"),
        ('http://h.example/ü|%2F%/{{id}}?q=ü%20"', {"id": "%"}, "http://h.example/%C3%BC%7C%2F%25/%25?q=%C3%BC%20%22"),
        ("http://h.example/o/v{{id}}", {"id": ".."}, "http://h.example/o/v.."),
        ("http://h.example/a/../{{n}}", {"n": 1}, "http://h.example/a/../1"),
        ("http://h.example/?q={{q}}&z=1", {"q": "a&b=c#d+e f"}, "http://h.example/?q=a%26b%3Dc%23d%2Be%20f&z=1"),
        ("http://h.example/?q={{q}}", {}, "http://h.example/?q="),
        ("http://{{u}}:{{p}}@h.example/", {"u": "a@b", "p": "c:d/e"}, "http://a%40b:c%3Ad%2Fe@h.example/"),
        ("http://h.example?x={{v}}", {"v": "{{w}}", "w": "no"}, "http://h.example/?x=%7B%7Bw%7D%7D"),
        ("HTTPS://h.example/{{n}}", {"n": 7}, "https://h.example/7"),
        ("http://[::1]:80/{{n}}", {"n": True}, "http://[::1]/true"),
    ],
)
def test_a_value_stays_within_its_part_of_the_url(url: str, values: dict[str, ContextValue], sent: str) -> None:
    assert str(filled(url, values).url) == sent


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("http://{{host}}/", {}),
        ("http://{{host}}/", {"host": ""}),
        ("http://{{host}}/", {"host": "good.example/evil"}),
        ("http://{{host}}/", {"host": "user@evil.example"}),
        ("http://{{host}}/", {"host": "evil.example:99"}),
        ("http://{{host}}.good.example/", {"host": "evil.example#"}),
        ("http://{{host}}.good.example/", {"host": "evil.example\\"}),
        ("http://h.example:{{port}}/", {"port": "80@evil.example"}),
        ("http://h.example:{{port}}/", {"port": 123456}),
        ("http://h.example:{{port}}/", {"port": 99999}),
        ("http://h.example/orders/{{id}}", {}),
        ("http://h.example/orders/{{id}}", {"id": ""}),
        ("http://h.example/orders/{{id}}/x", {"id": ".."}),
        ("http://h.example/orders/{{id}}", {"id": "."}),
        ("http://h.example/orders/.{{id}}", {"id": "."}),
        ("http://h.example/orders/%2E{{id}}", {"id": "."}),
    ],
)
def test_a_value_that_would_change_host_or_path_is_refused(url: str, values: dict[str, ContextValue]) -> None:
    with pytest.raises(InvalidToolRequest) as refused:
        filled(url, values, method="DELETE")
    assert "evil" not in refused.value.message


def test_headers_are_rendered_and_may_repeat() -> None:
    headers = [("X-Call", "{{ call_id }}-{{n}}"), ("Cookie", "a=1"), ("Cookie", "b={{gone}}")]
    request = filled("http://h.example/", {"call_id": "c1", "n": 2.5}, headers=headers)
    assert list(request.headers.items()) == [("X-Call", "c1-2.5"), ("Cookie", "a=1"), ("Cookie", "b=")]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "a\x7fb"])
def test_a_value_that_would_inject_a_header_is_refused(value: str) -> None:
    with pytest.raises(InvalidToolRequest, match="header X-Call would hold a line break") as refused:
        filled("http://h.example/", {"v": value}, headers=[("X-Call", "{{v}}")])
    assert "Evil" not in refused.value.message


def test_compressed_responses_are_not_requested() -> None:
    assert not filled("http://h.example/", headers=[("Accept-Encoding", "gzip")]).headers


def test_secrets_are_the_values_of_headers_and_the_credentials_of_the_url() -> None:
    headers = [
        ("Authorization", "Bearer {{key}}"),
        ("X-Pin", "123"),
        ("X-Key", "hush"),
        ("Cookie", 'sid="abc123"; t=9; for={{customer_number}}'),
        ("X-Proxy-Authorization", "Basic aW5uZXI6ZG9vci00"),
        ("X-Office", "{{office_secret}} 7f3a-99b0"),
        ("X-Unnamed", "correcthorsebatterystaple"),
        ("Accept", "application/vnd.example-2+json"),
        ("Content-Type", "application/json"),
    ]
    values: dict[str, ContextValue] = {"key": "s3cret-token", "customer_number": "+4930123456", "office_secret": "quay"}
    request = filled("http://user:p%40ss@h.example/", values, headers=headers)
    assert request.secrets == {
        "Bearer s3cret-token",
        "s3cret-token",
        "hush",
        "user:p%40ss",
        "user:p@ss",
        "p@ss",
        'sid="abc123"; t=9; for=+4930123456',
        'sid="abc123";',
        "for=+4930123456",
        "abc123",
        "Basic aW5uZXI6ZG9vci00",
        "aW5uZXI6ZG9vci00",
        "inner:door-4",
        "door-4",
        "quay",
        "7f3a-99b0",
        "correcthorsebatterystaple",
        "dXNlcjpwQHNz",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Debug", "true"),
        ("Prefer", "respond-async"),
        ("X-Tenant", "2026"),
        ("X-Company", "Harbour Dental"),
        ("X-Author", "Anna"),
        ("X-Keyword", "berth"),
        ("X-Caller", "{{customer_number}}"),
        ("X-Api-Key", "{{customer_number}}"),
        ("X-Days", "{{days}}"),
        ("X-Gone", "{{token}}"),
    ],
)
def test_ordinary_values_are_not_secrets(name: str, value: str) -> None:
    values: dict[str, ContextValue] = {"customer_number": "+4930123456", "days": "2026-11-21T10"}
    assert not filled("http://h.example/", values, headers=[(name, value)]).secrets


def test_the_repr_of_a_request_has_no_values() -> None:
    template = RequestTemplate("POST", "http://u:hush@h.example/", [("Authorization", "hush")])
    assert "hush" not in repr(template) + repr(template.render({"a": "hush"}, {}, call_id="c"))


def test_a_stored_url_that_is_invalid_is_an_error() -> None:
    with pytest.raises(InvalidToolRequest, match="no URL"):
        filled("ftp://h.example/")


def test_a_stored_url_never_leads_to_another_host() -> None:
    with pytest.raises(InvalidToolRequest, match="would lead to another host"):
        filled("https://api example.com/")


@pytest.mark.parametrize(
    "url",
    [
        "https://{{sip_x_server}}/",
        "https://api.example.com{{sip_x_end}}/",
        "https://{{ sip_x_tenant }}.example.com/a",
        "https://user:{{key}}@{{caller_name}}.example.com/",
        "https://api.example.com:{{customer_number}}/",
        "https://{{diverted_from}}.example.com",
        "https://{{tenant}}.{{caller_number}}.example/",
    ],
)
def test_a_caller_cannot_choose_the_server(url: str) -> None:
    values = dict.fromkeys(
        ("sip_x_server", "sip_x_end", "sip_x_tenant", "key", "caller_name", "diverted_from", "tenant", "caller_number"),
        "evil.example",
    ) | {"customer_number": "80"}
    with pytest.raises(InvalidToolRequest, match="takes its host from the caller"):
        RequestTemplate("GET", url, ()).render({}, values, call_id="c")
    assert RequestTemplate("GET", url, (), allow_variable_host=True).render({}, values, call_id="c").url.host


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/{{sip_x_id}}?a={{customer_number}}#{{caller_name}}",
        "https://{{caller_name}}:{{sip_x_id}}@api.example.com/",
        "https://api.example.com?{{sip_x_id}}",
        "https://[2001:db8::1]/{{sip_x_id}}",
    ],
)
@pytest.mark.parametrize(
    "value", ["evil.example", "x@evil.example/", "/../..", "#@evil.example", "\\evil.example", ":80@e"]
)
def test_variables_of_callers_outside_the_host_are_allowed(url: str, value: str) -> None:
    values: dict[str, ContextValue] = dict.fromkeys(("sip_x_id", "customer_number", "caller_name"), value)
    sent = RequestTemplate("GET", url, ()).render({}, values, call_id="c").url
    assert (sent.host, sent.port) in (("api.example.com", 443), ("2001:db8::1", 443))
