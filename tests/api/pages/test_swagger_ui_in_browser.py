"""Swagger UI in a real browser: the operations of the document, a request with a key, nothing from another origin."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.routes import openapi_json
from tests.api.conftest import Api
from tests.peers import chromium
from tests.peers.chromium import RecordingProxy, Tab, browser

pytestmark = chromium.required
DOCUMENT = json.loads(openapi_json())
OPERATIONS = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
LISTED = """[...document.querySelectorAll('.opblock-summary')].map(each => [
  each.querySelector('.opblock-summary-method').textContent,
  each.querySelector('.opblock-summary-path').dataset.path])"""
APPEARS = """new Promise(resolve => {
  const look = () => document.querySelector(%s) ? resolve() : requestAnimationFrame(look);
  look();
})"""
LIST_AGENTS = "#operations-Agents-listAgents"
TYPE_KEY = """(() => {
  const field = document.querySelector('.auth-container input');
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, %s);
  field.dispatchEvent(new Event('input', {bubbles: true}));
})()"""


@pytest.fixture
async def opened() -> AsyncIterator[tuple[Tab, RecordingProxy]]:
    async with browser() as found:
        yield found


def _address(api: Api, fragment: str = "") -> str:
    return str(api.client.make_url("/docs")) + fragment


async def _appears(tab: Tab, selector: str) -> None:
    await tab.call("Runtime.evaluate", expression=APPEARS % json.dumps(selector), awaitPromise=True)


async def _click(tab: Tab, selector: str) -> None:
    await _appears(tab, selector)
    await tab.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def _assert_own_origin_only(api: Api, tab: Tab, proxy: RecordingProxy) -> None:
    origin = str(api.client.make_url("/"))
    requested = [each for each in tab.requested_urls() if not each.startswith("data:")]
    assert [each for each in requested if not each.startswith(origin)] == []
    assert proxy.requests == []
    # GenericIssue is Chromium's advice on the labels of form fields.
    assert [each for each in tab.problems() if each != "GenericIssue"] == []
    assert [each for each in tab.events_named("Runtime.consoleAPICalled") if each["type"] == "error"] == []


async def test_every_operation_is_listed_and_nothing_is_blocked_or_of_another_origin(
    api: Api, opened: tuple[Tab, RecordingProxy]
) -> None:
    tab, proxy = opened
    await tab.open(_address(api))
    await _appears(tab, LIST_AGENTS)
    assert sorted(map(tuple, await tab.evaluate(LISTED))) == sorted(OPERATIONS)
    _assert_own_origin_only(api, tab, proxy)


async def test_an_operation_is_tried_out_with_a_key(api: Api, opened: tuple[Tab, RecordingProxy]) -> None:
    tab, proxy = opened
    await api.create("/agents", {"name": "Reception"})
    await tab.open(_address(api))
    await _click(tab, ".auth-wrapper .authorize")
    await _appears(tab, ".auth-container input")
    await tab.evaluate(TYPE_KEY % json.dumps(api.key))
    await _click(tab, ".auth-btn-wrapper button[type=submit]")
    await _click(tab, ".auth-btn-wrapper .btn-done")
    await _click(tab, f"{LIST_AGENTS} .opblock-summary-control")
    await _click(tab, f"{LIST_AGENTS} .try-out__btn")
    await _click(tab, f"{LIST_AGENTS} .execute")
    response = f"{LIST_AGENTS} .live-responses-table .response"
    await _appears(tab, response)
    assert await tab.evaluate(f"document.querySelector('{response} .response-col_status').textContent") == "200"
    assert "Reception" in await tab.evaluate(
        f"document.querySelector('{response} .response-col_description').textContent"
    )
    _assert_own_origin_only(api, tab, proxy)
    assert await tab.evaluate("JSON.stringify({...localStorage, ...sessionStorage})") == "{}", "the key is kept nowhere"


async def test_a_url_with_a_fragment_opens_its_operation(api: Api, opened: tuple[Tab, RecordingProxy]) -> None:
    tab, _ = opened
    await tab.open(_address(api, "#/Agents/updateAgent"))
    await _appears(tab, "#operations-Agents-updateAgent.is-open")


async def test_a_request_to_another_origin_would_be_detected(opened: tuple[Tab, RecordingProxy]) -> None:
    tab, proxy = opened
    page = "<!DOCTYPE html><title>x</title><img src='http://elsewhere.example/x.png'><script>nothing()</script>"

    async def blocking(_request: web.Request) -> web.Response:
        policy = {"Content-Security-Policy": "default-src 'none'; img-src *"}
        return web.Response(text=page, content_type="text/html", headers=policy)

    app = web.Application()
    app.router.add_get("/", blocking)
    async with TestServer(app) as server:
        await tab.open(str(server.make_url("/")))
        await proxy.wait_for_request()
    assert proxy.requests == ["GET http://elsewhere.example/x.png HTTP/1.1"]
    assert any("Content Security Policy" in each for each in tab.problems())
