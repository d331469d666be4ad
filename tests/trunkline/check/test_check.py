"""`trunkline check` says what is missing, whatever it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from config.errors import StartupError
from config.settings import Settings
from sipcore.dialogs.leg import Leg
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from tests.models.model_files.faulty_trials import break_trials
from trunkline.check import check
from trunkline.check.models import Models

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def _waits_for_ever(leg: Leg) -> None:
    await leg.ended


@pytest.mark.parametrize(
    ("owner", "verb", "instead"),
    [(check.Endpoint, "set_sources", lambda *_: None), (Leg, "connected", _waits_for_ever)],
    ids=["the call does not come in", "there is no sound"],
)
async def test_a_call_to_ourselves_that_is_not_answered_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, verb: str, instead: Any
) -> None:
    monkeypatch.setattr(check, "AUDIO_WAIT_S", 0.5)
    monkeypatch.setattr(owner, verb, instead)
    with pytest.raises(OSError, match=r"was not answered within 0\.5 s: is a firewall"):
        await check._audio_path(Settings(data_dir=tmp_path))


async def test_the_models_speed_and_memory_are_told_and_how_many_calls_they_hold(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    wanted = {"models": {"tts": "flite", "eot": "lexical-end-of-turn"}, "limits": {"max_calls": 3}}
    settings, models = Settings(data_dir=tmp_path).with_changes(wanted), Models()
    lines = (await asyncio.to_thread(models.measured, settings, {})).splitlines()
    assert lines[0].startswith("pocketsphinx, tiny, ")
    [read] = [line for line in lines if line.startswith("tiny reads ")]
    assert "1 / 4 / 16 at once" in read
    [memory] = [line for line in lines if line.startswith("tiny takes ")]
    assert "remembers the talk of 3 calls, 4,096 tokens of each" in memory
    held = (await models.capacity(settings)).splitlines()
    assert [line.split(" within ")[1][:5] for line in held[:3]] == ["0.5 s", "1 s, ", "2 s, "]
    assert "a turn every 8 s" in held[3]


async def test_models_that_are_not_there_hold_no_calls(tmp_path: Path) -> None:
    settings, models = Settings(data_dir=tmp_path).with_changes({"models": {"llm": "no-such"}}), Models()
    with pytest.raises(StartupError, match="no-such"):
        await asyncio.to_thread(models.measured, settings, {})
    with pytest.raises(StartupError, match="not known without models"):
        await models.capacity(settings)


async def test_a_model_that_fails_its_trial_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would start, with the responder in its place."""
    (tmp_path / "models").mkdir()
    for name in ("tiny", "spare"):
        write_tiny_gguf(tmp_path / "models" / f"{name}.gguf")
    break_trials(monkeypatch, tmp_path / "path", {"tiny": "SIGSEGV"})
    wanted = {"models": {"llm": "tiny", "tts": "flite", "eot": "lexical-end-of-turn"}}
    settings, models = Settings(data_dir=tmp_path).with_changes(wanted), Models()
    lines = (await asyncio.to_thread(models.measured, settings, {})).splitlines()
    assert lines[0].startswith("pocketsphinx, extractive-responder, ")
    with pytest.raises(StartupError, match=r"the model tiny \(.*tiny\.gguf\) is left out: .* SIGSEGV: choose another"):
        await models.trials(settings)
    (tmp_path / "models/tiny.gguf").unlink()
    assert "by 1 language models in files" in await Models().trials(settings)


async def test_what_the_log_says_of_models_that_are_left_out_fails_the_check(tmp_path: Path) -> None:
    models = Models()
    models.capture_log(None, "error", {"event": "model.left_out", "name": "our", "error": "the voice our is left out"})
    with pytest.raises(StartupError, match="the voice our is left out"):
        await models.trials(Settings(data_dir=tmp_path))
