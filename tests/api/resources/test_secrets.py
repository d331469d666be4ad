"""Secrets are neither in responses nor in log lines nor readable in the database file."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import pytest

from api.routes import ROUTES
from config import logging as our_logging
from tests import database_template
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api

SECRETS = {
    "postCallWebhookSecret": "whsec_Zm9yIHlvdXIgZXllcw",
    "sipPassword": "hush-sip-password",
    "provider_aAccountSid": "hush-account",
    "provider_bAuthToken": "hush-token",
}


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """All log lines at debug level, as JSON."""
    import logging

    import structlog

    root = logging.getLogger()
    handlers, level, structlog_config = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    our_logging.configure("debug", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**structlog_config)


async def test_no_response_and_no_log_line_has_a_secret(api: Api, log_lines: io.StringIO) -> None:
    agent_secret = {"postCallWebhookSecret": SECRETS["postCallWebhookSecret"]}
    number_secrets = {name: value for name, value in SECRETS.items() if name not in agent_secret}
    texts = []
    for path, body in (
        ("/agents", {"name": "Anna", **agent_secret}),
        ("/phone-numbers", {"number": "100", "provider": "sip", **number_secrets}),
    ):
        created = await api.create(path, body)
        for method, url, sent in (
            ("GET", f"{path}/{created['id']}", None),
            ("PATCH", f"{path}/{created['id']}", body),
            ("GET", path, None),
            ("POST", path, {**body, "unheardOf": 1, "name": 5}),
            ("DELETE", f"{path}/{created['id']}", None),
        ):
            response = await api.raw(method, url, sent)
            texts.append(await response.text() + str(response.headers))
    async with api.client.get("/v1/calls/x/recording?expires=1&signature=hush-signature") as response:
        texts.append(await response.text())
    await api.client.close()
    await api.services.database.close()
    assert "api.request" in log_lines.getvalue()
    for secret in (*SECRETS.values(), api.key):
        assert not any(secret in text for text in texts)
        assert secret not in log_lines.getvalue()
        assert not await asyncio.to_thread(database_template.contains, api.services.database, secret)
    assert "hush-signature" not in log_lines.getvalue()


async def test_a_viewer_reads_no_secret_of_the_organization(api: Api) -> None:
    """Those who may change a tool read the values of its headers, because they could send them to any server."""
    header, trunk = "hush-header", {name: value for name, value in SECRETS.items() if name != "postCallWebhookSecret"}
    config = {"url": "https://tools.example/", "method": "GET", "headers": [{"key": "X-Api-Key", "value": header}]}
    agent = {"name": "Anna", "postCallWebhookSecret": SECRETS["postCallWebhookSecret"]}
    created = {
        "/agents": await api.create("/agents", agent),
        "/tools": await api.create("/tools", {"name": "Weather", "type": "http", "config": config}),
        "/phone-numbers": await api.create("/phone-numbers", {"number": "100", "provider": "sip", **trunk}),
        "/webhook-endpoints": await api.create(
            "/webhook-endpoints", {"url": "https://example.com/", "secret": SECRETS["postCallWebhookSecret"]}
        ),
    }
    viewer, editor, texts = await signed_in(api, "viewer"), await signed_in(api, "editor"), []
    for route in ROUTES:
        resource = f"/{route.path.split('/')[1]}"
        if route.method == "GET" and route.role == "viewer" and resource in created:
            path = route.path.replace("{id}", created[resource]["id"]).replace("{n}", "1")
            status, answer = await viewer("GET", f"/v1{path}")
            texts.append(str(answer))
            assert status == 200, path
    assert len(texts) >= 10
    for secret in (header, *SECRETS.values()):
        assert not any(secret in text for text in texts)
    path = f"/v1/tools/{created['/tools']['id']}"
    assert (await viewer("GET", path))[1]["data"]["config"]["headers"] == [{"key": "X-Api-Key", "value": "[hidden]"}]
    assert (await editor("GET", path))[1]["data"]["config"]["headers"] == config["headers"]
