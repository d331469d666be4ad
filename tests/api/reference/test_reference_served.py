"""`/docs`: who gets the page, with which headers, and when not again."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

import pytest

from api.reference.page import policy, render
from api.routes import description
from tests.api.conftest import Api, StartApi

DOCUMENT = json.loads(description())


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
async def test_it_is_served_without_a_key(api: Api, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        async with api.client.get(path, headers=headers) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/html; charset=utf-8"
            assert await response.text() == render(DOCUMENT)


async def test_its_policy_allows_its_own_style_and_nothing_else(api: Api) -> None:
    async with api.client.get("/docs") as response:
        html = await response.text()
        assert response.headers["Content-Security-Policy"] == policy()
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    inline = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert len(inline) == 1
    digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
    assert policy().split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]


async def test_head_answers_as_get_without_the_page(api: Api) -> None:
    async with api.client.get("/docs", headers={"Accept-Encoding": "identity"}) as whole:
        length = len(await whole.read())
    async with api.client.head("/docs", headers={"Accept-Encoding": "identity"}) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["Content-Length"] == str(length)
        assert response.headers["ETag"] == whole.headers["ETag"]
    async with api.client.post("/docs") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_known_version_is_not_sent_again(api: Api, encoding: str) -> None:
    async with api.client.get("/docs", headers={"Accept-Encoding": encoding}) as first:
        version = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, max-age=60"
    other = "gzip" if encoding == "identity" else "identity"
    async with api.client.get("/docs", headers={"Accept-Encoding": other}) as same:
        assert same.headers["ETag"] != version
    for known, status in ((version, 304), (f'"x", W/{version}', 304), ("*", 304), ('"x"', 200)):
        headers = {"Accept-Encoding": encoding, "If-None-Match": known}
        async with api.client.get("/docs", headers=headers) as again:
            assert (again.status, again.headers["ETag"]) == (status, version)
            assert bool(await again.read()) is (status == 200)


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip, br", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("br", False)],
)
async def test_it_is_packed_for_whoever_takes_gzip(api: Api, accepted: str, packed: bool) -> None:
    headers = {"Accept-Encoding": accepted}
    async with api.client.request("GET", "/docs", headers=headers, auto_decompress=False) as response:
        body = await response.read()
        assert ("Content-Encoding" in response.headers) is packed
    assert (gzip.decompress(body) if packed else body).decode() == render(DOCUMENT)


async def test_it_counts_as_a_request_of_its_address(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 2}})
    seen = []
    for _ in range(3):
        async with api.client.get("/docs") as response:
            seen.append((response.status, response.headers["X-RateLimit-Remaining"]))
    assert seen == [(200, "1"), (200, "0"), (429, "0")]


async def test_its_examples_go_to_the_address_that_the_settings_tell(start_api: StartApi) -> None:
    api: Api = await start_api({"api": {"public_url": "https://voice.example:8443"}})
    async with api.client.get("/docs") as response:
        html = await response.text()
    assert "curl https://voice.example:8443/v1/agents" in html
    assert "TRUNKLINE_URL" not in html
