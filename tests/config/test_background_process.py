"""The processes of the server get no variable that may be a secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config import background_process
from media.background import decoder
from models.tts.espeak.process_pool import EspeakPool

SECRETS = {"TRUNKLINE_DATABASE__URL": "postgresql+psycopg://a:b@c/d", "PGPASSWORD": "b", "AWS_SECRET_ACCESS_KEY": "b"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set in the environment of the server."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_processes_that_read_what_users_send_get_known_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib")
    found = background_process.environment()
    assert found["LD_LIBRARY_PATH"] == "/lib"
    assert not SECRETS.keys() & found.keys()


def test_processes_that_load_models_get_no_settings_and_no_password_of_postgresql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = background_process.environment_without_secrets()
    assert found["CUDA_VISIBLE_DEVICES"] == "0"
    assert not {"TRUNKLINE_DATABASE__URL", "PGPASSWORD"} & found.keys()


def test_the_decoder_of_uploaded_sounds_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys; sys.stdout.buffer.write(str(sorted(os.environ)).ljust(9999).encode()[:9998])"
    monkeypatch.setattr(decoder, "_PROGRAM", (sys.executable, "-c", program))
    names = decoder.decode(b"").tobytes().decode()
    assert "OPENBLAS_NUM_THREADS" in names
    assert not [each for each in SECRETS if each in names]


def test_processes_that_speak_have_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    pool = EspeakPool(1)
    try:
        (process,) = started
        variables = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert not [each for each in SECRETS if each.encode() in variables]
    finally:
        pool.close()
