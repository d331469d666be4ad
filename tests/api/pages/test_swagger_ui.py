"""`/docs`: its page and files, with their media types, headers and content security policy."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, NoReturn

import pytest
from yarl import URL

from api.pages import swagger_ui
from api.pages.static_file import StaticFile
from api.pages.swagger_ui import dist_folder, static_files
from tests.api.conftest import Api, StartApi

FILES = {
    "/docs": "text/html; charset=utf-8",
    "/docs/": "text/html; charset=utf-8",
    "/docs/index.html": "text/html; charset=utf-8",
    "/docs/swagger-initializer.js": "text/javascript; charset=utf-8",
    "/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "/docs/swagger-ui.css": "text/css; charset=utf-8",
    "/docs/favicon-32x32.png": "image/png",
}
NOT_SERVED = [
    "oauth2-redirect.html",
    "swagger-ui-bundle.js.map",
    "swagger-ui-standalone-preset.js",
    "LICENSE",
    "swagger_ui.py",
    "..%2f..%2f..%2fapps.py",
    "%2e%2e%2fswagger_ui.py",
    "..%5cswagger_ui.py",
    "%2fetc%2fpasswd",
    "swagger-ui.css%00",
    "swagger-ui.css/",
    "SWAGGER-UI.CSS",
]


@pytest.fixture(scope="module")
def contents() -> Mapping[str, StaticFile]:
    return static_files()


@pytest.mark.parametrize("path", FILES)
async def test_page_and_files_are_served_without_a_key(api: Api, contents: Mapping[str, StaticFile], path: str) -> None:
    content = contents[path.removeprefix("/docs").strip("/") or "index.html"].plain
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        async with api.client.get(path, headers=headers) as response:
            assert (response.status, response.headers["Content-Type"]) == (200, FILES[path])
            assert await response.read() == content != b""


@pytest.mark.parametrize("name", NOT_SERVED)
async def test_no_other_file_is_served(api: Api, name: str) -> None:
    async with api.client.get(URL(f"/docs/{name}", encoded=True)) as response:
        assert response.status == 404
        assert (await response.json()).keys() == {"error"}


@pytest.mark.parametrize("path", FILES)
async def test_policy_allows_no_inline_script_and_nothing_of_another_origin(api: Api, path: str) -> None:
    async with api.client.get(path) as response:
        policy = response.headers["Content-Security-Policy"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"
    rules = dict(each.split(" ", 1) for each in policy.split("; "))
    assert (rules["default-src"], rules["script-src"]) == ("'self'", "'self'")
    assert (rules["frame-ancestors"], rules["base-uri"], rules["object-src"]) == ("'none'", "'none'", "'none'")
    sources = {source for value in rules.values() for source in value.split()}
    assert sources == {"'self'", "'none'", "'unsafe-inline'", "data:"}
    assert [name for name, value in rules.items() if "unsafe" in value] == ["style-src"]


async def test_without_javascript_the_page_links_to_the_openapi_document(api: Api) -> None:
    async with api.client.get("/docs") as response:
        page = await response.text()
    assert '<a href="/v1/openapi.json">' in page.partition("<noscript>")[2].partition("</noscript>")[0]


async def test_head_of_the_page_is_get_without_the_body(api: Api) -> None:
    async with api.client.get("/docs", headers={"Accept-Encoding": "identity"}) as whole:
        length = len(await whole.read())
    async with api.client.head("/docs", headers={"Accept-Encoding": "identity"}) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["Content-Length"] == str(length)
        assert response.headers["ETag"] == whole.headers["ETag"]
    async with api.client.post("/docs") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")


@pytest.mark.parametrize("path", ["/docs", "/docs/swagger-ui-bundle.js"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_cached_version_gets_304(api: Api, encoding: str, path: str) -> None:
    async with api.client.get(path, headers={"Accept-Encoding": encoding}) as first:
        version = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, max-age=60"
    other = "gzip" if encoding == "identity" else "identity"
    async with api.client.get(path, headers={"Accept-Encoding": other}) as same:
        assert same.headers["ETag"] != version
    for known, status in ((version, 304), (f'"x", W/{version}', 304), ("*", 304), ('"x"', 200)):
        headers = {"Accept-Encoding": encoding, "If-None-Match": known}
        async with api.client.get(path, headers=headers) as again:
            assert (again.status, again.headers["ETag"]) == (status, version)
            assert bool(await again.read()) is (status == 200)


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip, br", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("br", False)],
)
async def test_a_client_that_accepts_gzip_gets_it(
    api: Api, contents: Mapping[str, StaticFile], accepted: str, compressed: bool
) -> None:
    headers = {"Accept-Encoding": accepted}
    async with api.client.request("GET", "/docs/swagger-ui.css", headers=headers, auto_decompress=False) as response:
        body = await response.read()
        assert ("Content-Encoding" in response.headers) is compressed
        assert response.headers["Vary"] == "Accept-Encoding"
    assert (gzip.decompress(body) if compressed else body) == contents["swagger-ui.css"].plain


async def test_a_request_for_the_page_counts_against_the_rate_limit_of_its_address(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 2}})
    seen = []
    for path in ("/docs", "/docs/swagger-ui.css", "/docs"):
        async with api.client.get(path) as response:
            seen.append((response.status, response.headers["X-RateLimit-Remaining"]))
    assert seen == [(200, "1"), (200, "0"), (429, "0")]


def test_neither_django_nor_the_package_is_imported(contents: Mapping[str, StaticFile]) -> None:
    assert contents
    assert not {"django", "drf_spectacular_sidecar"} & sys.modules.keys()


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def not_installed(_name: str) -> NoReturn:
        raise PackageNotFoundError

    class Incomplete:
        def locate_file(self, path: str) -> Any:
            return tmp_path / path

    for found, message in ((not_installed, "make setup"), (lambda _name: Incomplete(), "is missing; install")):
        monkeypatch.setattr(swagger_ui, "distribution", found)
        with pytest.raises(FileNotFoundError, match=message):
            dist_folder()
