"""Health, readiness, metrics, lists of voices and models, the port."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web

from api.serving.listener import listen
from config.errors import StartupError
from config.settings_tables import ApiSettings
from models.loading.catalogue import language_model_id, recognizer_id, voice_id
from tests.api.conftest import Api, StartApi


async def test_the_process_is_healthy_without_a_key(api: Api) -> None:
    async with api.client.get("/healthz") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


async def test_readiness_names_what_is_missing(api: Api) -> None:
    checks = {"sip": "ok", "models": "ok", "database": "ok"}
    async with api.client.get("/readyz") as response:
        assert response.status == 200
        assert await response.json() == {
            "status": "ready", "checks": checks, "liveCalls": 3, "callsRefused": None,
            "uploadsRefused": None,
        }  # fmt: skip
    api.readiness.parts["sip"] = "draining"
    async with api.client.get("/readyz") as response:
        assert response.status == 503
        answer = await response.json()
    assert (answer["status"], answer["checks"]) == ("unavailable", {**checks, "sip": "draining"})


async def test_metrics_count_requests_by_route_and_not_by_path(api: Api) -> None:
    await api("GET", "/agents/x")
    await api.raw("PROPFIND", "/nothing")
    async with api.client.get("/metrics") as response:
        figures = await response.text()
    assert 'trunkline_http_requests_total{method="GET",route="/v1/agents/{id}",status="404"}' in figures
    assert 'trunkline_http_requests_total{method="other",route="unmatched",status="404"}' in figures
    assert "/v1/agents/x" not in figures


def _seen_from(api: Api, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(web.BaseRequest, "remote", property(lambda _: address))


async def _metrics(api: Api, **headers: str) -> int:
    async with api.client.get("/metrics", headers=headers) as response:
        text = await response.text()
    assert ("trunkline_live_calls" in text) == (response.status == 200)
    return response.status


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 200), ("127.9.9.9", 200), ("::1", 200), ("::ffff:127.0.0.1", 200),
        ("192.0.2.7", 403), ("10.0.0.1", 403), ("2001:db8::1", 403), ("fe80::1%eth0", 403), ("::ffff:192.0.2.7", 403),
        ("", 403),
    ],
)  # fmt: skip
async def test_metrics_are_for_loopback_clients_only(
    api: Api, monkeypatch: pytest.MonkeyPatch, address: str, status: int
) -> None:
    _seen_from(api, monkeypatch, address)
    assert await _metrics(api) == status
    assert await _metrics(api, Authorization=f"Bearer {api.key}") == status
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert await _metrics(api, **{name: "127.0.0.1"}) == 403, "a header never lets anybody in"


async def test_metrics_can_require_an_api_key(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await start_api({"api": {"metrics": "key"}})
    for address in ("127.0.0.1", "192.0.2.7"):
        _seen_from(api, monkeypatch, address)
        assert await _metrics(api) == 401
        assert await _metrics(api, Authorization="Bearer tk_00000000_x") == 401
        assert await _metrics(api, Authorization=f"Bearer {api.key}") == 200


async def test_metrics_can_be_open_to_all_clients(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await start_api({"api": {"metrics": "open"}})
    _seen_from(api, monkeypatch, "192.0.2.7")
    assert await _metrics(api) == 200


async def test_voices_and_language_models_are_listed(api: Api) -> None:
    unknown = {"quality": None, "sampleRate": None}
    voices = [
        {"id": str(voice_id(name)), "name": name, "language": "en-US", "engine": "named-voices", **unknown}
        for name in ("flite/slt", "flite/rms")
    ]
    pagination = {"total": 2, "limit": 50, "offset": 0}
    status, answer = await api("GET", "/voices")
    links = [voice.pop("sampleUrl") for voice in answer["data"]]
    assert [urlsplit(link).path for link in links] == [f"/v1/voices/{voice['id']}/sample" for voice in voices]
    assert (status, answer) == (200, {"data": voices, "pagination": pagination})
    _, answer = await api("GET", "/voices?limit=1&offset=1")
    assert answer["data"][0].pop("sampleUrl") == links[1]
    assert answer == {"data": voices[1:], "pagination": {"total": 2, "limit": 1, "offset": 1}}
    _, answer = await api("GET", "/slm-models")
    assert answer["data"] == [
        {
            "id": str(language_model_id("responder")),
            "name": "responder",
            "provider": "builtin",
            "contextLength": 4096,
            "isDefault": True,
            "promptTokensPerSecond": None,
            "tokensPerSecond": None,
        }
    ]
    _, answer = await api("GET", "/speech-recognizers")
    assert answer["data"] == [
        {
            "id": str(recognizer_id("certain-stt")),
            "name": "certain-stt",
            "engine": "certain-stt",
            "languages": ["*"],
            "streaming": True,
            "isDefault": True,
            "realTimeFactor": None,
        }
    ]


async def test_a_port_in_use_is_named_in_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used_port:
        settings = ApiSettings(host="127.0.0.1", port=used_port.getsockname()[1])
        with pytest.raises(StartupError, match=rf"API port {settings.port} on .* cannot be opened .*: .*\[api\] port"):
            async with listen(web.Application(), settings):
                pass


async def test_port_0_binds_a_free_port_until_the_end() -> None:
    settings = ApiSettings(host="127.0.0.1", port=0)
    async with listen(web.Application(), settings) as port, ClientSession() as session:
        assert (await session.get(f"http://127.0.0.1:{port}/")).status == 404
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_a_certificate_that_cannot_be_loaded_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    settings = ApiSettings(host="127.0.0.1", port=0, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "cert.pem")
    with pytest.raises(StartupError, match=r"api\.tls_cert .*cert\.pem"):
        async with listen(web.Application(), settings):
            pass
