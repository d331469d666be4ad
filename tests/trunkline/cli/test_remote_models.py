"""`trunkline models remote`: remote models are added, listed, tested and removed; their keys are never shown."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web

from config import secrets
from config.errors import Conflict, NotFound, StartupError
from config.settings import Settings
from models.remote.config import DEFAULT_TIMEOUTS, RemoteModel, RemoteVoice
from models.remote.wav import encode_wav
from tests.calls.http_server import serving
from tests.media.speech import speech
from trunkline.check import remote_models
from trunkline.cli.framework.commands import Invocation, usage_error_line
from trunkline.cli.main import command_line
from trunkline.wiring.models.remote_models import local_model_settings, open_and_read_remote_models

KEY = "sk-hush-hush-of-the-gpu-box"
LOOPBACK = {"egress": {"allow": ["127.0.0.0/8"]}}


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


async def remote(settings: Settings, *arguments: str) -> int:
    """Run a command in this process; returns its status."""
    command = command_line().main(
        ["models", "remote", *arguments], "trunkline", standalone_mode=False, obj=Invocation(settings)
    )
    status: int = await command
    return status


def llm(url: str = "http://10.1.2.3:8000/v1", name: str = "gpu") -> tuple[str, ...]:
    return ("add", name, "--kind", "llm", "--url", url, "--model", "qwen3-8b")


def tts() -> tuple[str, ...]:
    return ("add", "voice", "--kind", "tts", "--url", "http://10.1.2.3", "--model", "kokoro")


async def test_a_model_is_added_listed_and_removed_and_its_key_is_encrypted_and_never_shown(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    limits = ("--first-timeout", "2.5", "--gap-timeout", "1")
    more = ("--context", "32768", "--extra", '{"temperature": 0.3}', *limits)
    assert await remote(settings, *llm(), "--key-stdin", *more) == 0
    voice = ("--voice", "af_heart=en-US", "--voice", "other")
    assert (
        await remote(settings, "add", "voice", "--kind", "tts", "--url", "http://10.1.2.3", "--model", "k", *voice) == 0
    )
    assert await remote(settings, "list") == 0
    out, err = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()[-3:]]
    assert rows == [
        "KIND NAME URL MODEL KEY MORE",
        "llm gpu http://10.1.2.3:8000/v1 qwen3-8b yes 32768 tokens, first 2.5 s, gap 1 s",
        "tts voice http://10.1.2.3/v1 k - voice af_heart (en-US), voice other",
    ]
    assert "are sent unencrypted: use https" in err

    def stored() -> list[str]:
        with closing(sqlite3.connect(settings.data_dir / "trunkline.db")) as conn:
            return ["\n".join(conn.iterdump())]

    (dump,) = await asyncio.to_thread(stored)
    assert "qwen3-8b" in dump
    assert KEY not in dump + out + err
    model, other = await open_and_read_remote_models(settings)
    assert model == RemoteModel(
        "gpu", "llm", "http://10.1.2.3:8000/v1", "qwen3-8b", KEY,
        DEFAULT_TIMEOUTS["llm"].__class__(first_word_s=2.5, between_words_s=1), 32_768, extra={"temperature": 0.3},
    )  # fmt: skip
    assert KEY not in repr(model)
    assert other.voices == (RemoteVoice("af_heart", "en-US"), RemoteVoice("other"))
    assert (other.key, other.timeouts) == (None, DEFAULT_TIMEOUTS["tts"])

    with pytest.raises(Conflict):
        await remote(settings, *llm())
    assert await remote(settings, "remove", "gpu") == 0
    with pytest.raises(NotFound):
        await remote(settings, "remove", "gpu")
    assert [each.name for each in await open_and_read_remote_models(settings)] == ["voice"]


async def test_a_missing_or_wrong_secret_key_is_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(KEY))
    await remote(settings, *llm(), "--key-stdin")
    await asyncio.to_thread(settings.secret_key_path.unlink)
    with pytest.raises(StartupError, match="is missing, and the database holds secrets that were encrypted with it"):
        await open_and_read_remote_models(settings)
    assert not settings.secret_key_path.exists()
    await asyncio.to_thread(secrets.load_or_create, settings.secret_key_path)
    with pytest.raises(StartupError, match="is not the one that the stored secrets were encrypted with"):
        await open_and_read_remote_models(settings)


@pytest.mark.parametrize(
    ("url", "note"),
    [
        ("http://127.0.0.1:11434/v1", 'allow = ["127.0.0.1/32"]'),
        ("http://localhost:11434/v1", 'allow = ["127.0.0.1/32"]'),
        ("http://[::1]:11434/v1", 'allow = ["::1/128"]'),
        ("http://192.168.1.20:11434/v1", None),
        ("https://gpu.example.com/v1", None),
    ],
)
async def test_a_refused_address_prints_a_note_with_the_setting(
    settings: Settings, capsys: pytest.CaptureFixture[str], url: str, note: str | None
) -> None:
    assert await remote(settings, *llm(url)) == 0
    err = capsys.readouterr().err
    assert (note in err) if note else ("note:" not in err)
    await remote(settings.with_changes({"egress": {"allow": ["127.0.0.0/8", "::1/128"]}}), *llm(url, "allowed"))
    assert "refused" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        llm("http://ada:hush@gpu/v1"),
        llm(name="../gpu"),
        llm(name="auto"),
        llm(name="off"),
        ("add", "x", "--kind", "cat", "--url", "http://gpu/v1", "--model", "m"),
        (*llm(), "--context", "0"),
        (*llm(), "--context", "8k"),
        (*llm(), "--first-timeout", "2s"),
        (*llm(), "--first-timeout", "nan"),
        (*llm(), "--extra", "[1]"),
        (*llm(), "--first-timeout", "0"),
        (*llm(), "--whole-timeout", "601"),
        (*llm(), "--extra", "{"),
        (*llm(), "--extra", '{"temperature": NaN}'),
        (*llm(), "--voice", "heart"),
        (*tts(), "--voice", "a b"),
        (*tts(), "--voice", "a/b"),
        (*tts(), "--voice", "a=klingon"),
        (*tts(), "--voice", "a", "--voice", "a=en"),
        (*tts(), "--voice", "a", "--context", "8192"),
    ],
)
async def test_invalid_arguments_are_rejected_without_printing_a_password(
    settings: Settings, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(click.UsageError) as raised:
        await remote(settings, *arguments)
    err = usage_error_line(raised.value)
    assert "hush" not in err and "invalid _" not in err
    assert "(see `trunkline models remote add --help`)" in err


async def test_an_error_names_the_option(settings: Settings) -> None:
    for arguments, line in (
        (llm(name="auto"), "NAME: must be another name"),
        (llm("http://ada:hush@gpu/v1"), "--url: the address must have no user and no password"),
        ((*llm(), "--first-timeout", "0"), "--first-timeout: must be greater than or equal to 0.01"),
        ((*tts(), "--voice", "a", "--voice", "b=klingon"), "--voice: must be a known language"),
        ((*tts(), "--voice", "a", "--context", "8192"), "--context: only an llm has a context length"),
    ):
        with pytest.raises(click.UsageError) as raised:
            await remote(settings, *arguments)
        assert usage_error_line(raised.value).startswith(f"trunkline: models remote add: {line}")


async def test_the_removal_of_a_model_that_a_setting_names_prints_a_note(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for llm_setting, is_noted in (("auto", False), ("gpu", True)):
        await remote(settings, *llm())
        await remote(settings.with_changes({"models": {"llm": llm_setting}}), "remove", "gpu")
        assert ("does not start without it. The settings name it: [models] llm" in capsys.readouterr().err) is is_noted


async def test_a_key_for_a_loopback_server_prints_no_note_about_encryption(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(KEY))
    await remote(settings, *llm("http://127.0.0.1:11434/v1"), "--key-stdin")
    assert "unencrypted" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pocketsphinx", "extractive-responder", "qwen3-0.6b-q4_0", "piper"])
async def test_the_name_of_a_local_model_is_rejected(settings: Settings, name: str) -> None:
    with pytest.raises(Conflict, match="local model"):
        await remote(settings, *llm(name=name))


@pytest.mark.parametrize(("line", "why"), [("", "one line"), ("with a blank", "printable"), ("smör", "printable")])
async def test_an_invalid_key_is_rejected(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    with pytest.raises(click.UsageError, match=f"--key-stdin: .*{why}") as raised:
        await remote(settings, *llm(), "--key-stdin")
    assert not line or line not in usage_error_line(raised.value)


async def test_a_tts_model_without_a_voice_is_rejected(settings: Settings) -> None:
    with pytest.raises(click.UsageError, match="--voice: a tts model needs at least one voice"):
        await remote(settings, "add", "voice", "--kind", "tts", "--url", "http://gpu/v1", "--model", "m")


async def fake_model_server(request: web.Request) -> web.StreamResponse:
    """A server with a model of each kind, which requires the key."""
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return web.json_response({"error": {"message": "no key"}}, status=401)
    answers: dict[str, Any] = {
        "/v1/models": {"data": [{"id": "m"}, {"id": "n"}]},
        "/v1/chat/completions": {"choices": [{"message": {"content": "Good morning."}, "finish_reason": "stop"}]},
        "/v1/audio/transcriptions": {"text": "good morning"},
        "/v1/embeddings": {"data": [{"embedding": [1, 0]}, {"embedding": [0.6, 0.8]}]},
    }
    if request.path == "/v1/audio/speech":
        return web.Response(body=encode_wav(speech("good morning"), 8000))
    return web.json_response(answers[request.path])


async def test_each_kind_of_model_is_tested_and_run_checks(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.with_changes(LOOPBACK)
    async with serving(fake_model_server) as origin:
        for kind in ("llm", "stt", "tts", "embedding"):
            monkeypatch.setattr("sys.stdin", io.StringIO(KEY))
            voice = ("--voice", "heart=en") if kind == "tts" else ()
            arguments = ("--kind", kind, "--url", origin, "--model", "m" if kind != "stt" else "gone")
            await remote(settings, "add", f"my-{kind}", *arguments, "--key-stdin", *voice)
        await remote(settings, "add", "keyless", "--kind", "llm", "--url", origin, "--model", "m")
        capsys.readouterr()
        statuses = [await remote(settings, "test", f"my-{kind}") for kind in ("llm", "stt", "tts", "embedding")]
        lines_out = capsys.readouterr().out.splitlines()
        assert statuses == [0, 0, 0, 0], lines_out
        assert [line.split(":")[0] for line in lines_out] == ["my-llm", "my-stt", "my-tts", "my-embedding"]
        expected = ("ms: Good morning.", "ms: good morning", "s of speech in", "2 vectors of 2 numbers")
        assert all(part in line for part, line in zip(expected, lines_out, strict=True)), lines_out
        assert await remote(settings, "test", "keyless") == 1
        assert capsys.readouterr().out.startswith("FAIL  keyless answered with status 401 (no key)")
        lines = dict(await _run_checks(settings))
    assert lines["my-llm"] == ("remote llm", f"my-llm (m at {origin}/v1)")
    assert lines["my-stt"] == ("remote stt", f"my-stt: {origin}/v1 has no model 'gone': it has m, n")
    assert KEY not in json.dumps(lines)
    (gone,) = [line for name, line in await _run_checks(settings) if name == "my-llm"]
    assert "cannot be reached" in gone[1]


async def _run_checks(settings: Settings) -> list[tuple[str, tuple[str, str]]]:
    """Run the checks; returns the model's name, the line's name and the text of each."""
    lines = []
    for name, look in await remote_models.checks(settings):
        try:
            text = await look(settings)
        except Exception as error:  # noqa: BLE001 - what the command prints of it
            text = str(error)
        lines.append((text.split(" ")[0].removesuffix(":"), (name, text)))
    return lines


async def test_a_setting_that_names_a_remote_model_loads_the_default_local_model(settings: Settings) -> None:
    await remote(settings, *llm())
    named = settings.with_changes({"models": {"llm": "gpu", "stt": "pocketsphinx"}})
    here = (await local_model_settings(named)).models
    assert (here.llm, here.stt, here.stt_second) == ("auto", "pocketsphinx", "auto")
    await remote(settings, "add", "ear", "--kind", "stt", "--url", "http://10.1.2.3", "--model", "m")
    for changes in ({"stt": "ear"}, {"stt_second": "ear"}):
        here = (await local_model_settings(settings.with_changes({"models": changes}))).models
        assert (here.stt, here.stt_second) == ("auto", "off"), "there is one second pass"
    assert await local_model_settings(settings) is settings
