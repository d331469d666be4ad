"""The HTTP client with address rules, against a real server on loopback."""

from __future__ import annotations

import asyncio
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import tls_context
from config.errors import HttpEgressError
from tests.calls.http_server import LOOPBACK, client_with, serving


async def says_ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::ffff:0:7f00:1",
        "::ffff:0:a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2001:0:7f00:1::1",
        "2001:0:5db8:d822:0:0:80ff:fffe",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
    ],
)
def test_loopback_link_local_and_metadata_addresses_are_refused(address: str) -> None:
    assert not HttpEgressRules().is_allowed(address)


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "192.168.1.9",
        "172.16.0.1",
        "fd12::1",
        "93.184.216.34",
        "2606::1",
        "2001:4860:4860::8888",
        "64:ff9b::5db8:d822",
    ],
)
def test_private_and_public_addresses_are_allowed(address: str) -> None:
    assert HttpEgressRules().is_allowed(address)


def test_deny_has_precedence_over_allow() -> None:
    rules = HttpEgressRules(allow=["127.0.0.0/8"], deny=["127.0.0.2/32", "10.0.0.0/8"])
    assert rules.is_allowed("127.0.0.1")
    assert not rules.is_allowed("127.0.0.2")
    assert not rules.is_allowed("10.1.1.1")
    assert not rules.is_allowed("::ffff:10.1.1.1")
    assert not rules.is_allowed("::ffff:0:a01:101")


def test_an_allowed_network_covers_the_same_addresses_inside_ipv6() -> None:
    assert HttpEgressRules(allow=["127.0.0.0/8"]).is_allowed("::ffff:127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "[::ffff:7f00:1]"])
async def test_every_notation_of_loopback_is_refused(host: str) -> None:
    asked: list[str] = []

    async def notes(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    async with serving(notes) as origin, client_with(HttpEgressRules()) as client:
        port = origin.rpartition(":")[2]
        with pytest.raises(HttpEgressError) as refused:
            await client.request("GET", f"http://{host}:{port}/", timeout_s=5, max_bytes=10)
    assert asked == []
    assert "not allowed" in refused.value.message or "canonical" in refused.value.message


async def test_a_redirect_is_a_response_and_is_not_followed() -> None:
    async def redirects(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/elsewhere"}, text="go")

    async with serving(redirects) as origin, client_with(LOOPBACK) as client:
        answer = await client.request("POST", f"{origin}/", body=b"x", timeout_s=5, max_bytes=10)
    assert (answer.status, answer.body) == (302, b"go")


async def test_the_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with serving(says_ok) as origin, client_with(LOOPBACK) as client:
        answer = await client.request("GET", f"{origin}/", timeout_s=5, max_bytes=10)
    assert answer.body == b"ok"


async def test_dns_lookups_do_not_wait_for_the_default_thread_pool() -> None:
    loop, release = asyncio.get_running_loop(), threading.Event()
    async with serving(says_ok) as origin, client_with(LOOPBACK) as client:
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, release.wait)
        try:
            url = origin.replace("127.0.0.1", "localhost")
            answer = await client.request("GET", url, timeout_s=20, max_bytes=10)
        finally:
            release.set()
            await busy
    assert answer.body == b"ok"


async def test_a_response_is_read_up_to_its_limit() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response

    async with serving(endless) as origin, client_with(LOOPBACK) as client:
        answer = await client.request("GET", f"{origin}/", timeout_s=5, max_bytes=100_000)
    assert (len(answer.body), answer.truncated) == (100_000, True)


async def test_a_response_of_exactly_the_limit_is_not_truncated() -> None:
    async with serving(says_ok) as origin, client_with(LOOPBACK) as client:
        answer = await client.request("GET", f"{origin}/", timeout_s=5, max_bytes=2)
    assert (answer.body, answer.truncated) == (b"ok", False)


async def test_a_server_that_never_answers_is_a_timeout() -> None:
    release = asyncio.Event()

    async def hangs(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with serving(hangs) as origin, client_with(LOOPBACK) as client:
        with pytest.raises(HttpEgressError) as late:
            await client.request("GET", f"{origin}/", timeout_s=0.05, max_bytes=10)
        release.set()
    assert late.value.kind == "timeout"


async def test_a_port_without_a_listener_is_a_connection_error() -> None:
    async with serving(says_ok) as origin:
        pass
    async with client_with(LOOPBACK) as client:
        with pytest.raises(HttpEgressError) as failed:
            await client.request("GET", f"{origin}/", timeout_s=5, max_bytes=10)
    assert failed.value.kind == "connection"


@pytest.mark.parametrize("url", ["https://", "http://exa mple/", "ftp://127.0.0.1/", "nonsense"])
async def test_an_invalid_url_is_an_http_egress_error(url: str) -> None:
    async with client_with(LOOPBACK) as client:
        with pytest.raises(HttpEgressError):
            await client.request("GET", url, timeout_s=5, max_bytes=10)


def test_a_missing_certificate_file_raises_at_start() -> None:
    with pytest.raises(OSError):
        tls_context("/nonexistent/ca.pem")
    assert tls_context(None).verify_mode == ssl.CERT_REQUIRED


async def test_a_response_is_streamed() -> None:
    second = asyncio.Event()

    async def in_two(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=203, headers={"X-Kind": "slow"})
        await response.prepare(request)
        await response.write(await request.read())
        await second.wait()
        await response.write(b" two")
        return response

    async with (
        serving(in_two) as origin,
        client_with(LOOPBACK) as client,
        client.open("POST", origin, headers={}, body=b"one", connect_s=5, head_s=5, max_bytes=99) as stream,
    ):
        assert (stream.status, stream.headers["x-kind"]) == (203, "slow")
        assert await stream.read(5) == b"one"
        second.set()
        assert await stream.read(5) == b" two"
        assert await stream.read(5) == b""


async def test_a_streamed_response_has_limits_of_time_and_size() -> None:
    async def never_ends(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.path == "/endless":
            await response.write(bytes(1000))
        await asyncio.sleep(60)
        return response

    async with serving(never_ends) as origin, client_with(LOOPBACK) as client:
        limits: dict[str, Any] = {"headers": {}, "body": None, "connect_s": 5.0, "head_s": 5.0, "max_bytes": 100_000}
        async with client.open("GET", f"{origin}/silent", **limits) as stream:
            with pytest.raises(HttpEgressError) as late:
                await stream.read(0.05)
        async with client.open("GET", f"{origin}/endless", **limits) as stream:
            with pytest.raises(HttpEgressError) as more:
                while await stream.read(5):
                    pass
    assert (late.value.kind, more.value.kind) == ("timeout", "refused")


async def test_a_streamed_response_has_a_timeout_for_its_head_and_address_rules() -> None:
    async def hangs(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    limits: dict[str, Any] = {"headers": {}, "body": None, "connect_s": 5.0, "head_s": 0.05, "max_bytes": 10}
    kinds = []
    async with serving(hangs) as origin:
        for rules in (LOOPBACK, HttpEgressRules()):
            async with client_with(rules) as client:
                with pytest.raises(HttpEgressError) as failed:
                    async with client.open("GET", origin, **limits):
                        pass
                kinds.append(failed.value.kind)
    assert kinds == ["timeout", "refused"]
