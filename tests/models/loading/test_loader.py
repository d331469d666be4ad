"""Loading of the models in the settings; a missing one stops the start with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import models.end_of_turn.smart_turn
import models.stt.pocketsphinx.bindings
import models.tts.flite.bindings
from config.errors import StartupError
from models.loading.loader import load
from models.tts.espeak.text_to_speech import EspeakTextToSpeech


def test_loading_logs_one_line_for_each_model(tmp_path: Path) -> None:
    with capture_logs() as logs:
        load(tmp_path).close()
    loaded = [(line["kind"], line["name"]) for line in logs if line["event"] == "model.loaded"]
    assert sorted(loaded) == [
        ("eot", "smart-turn-v3"),
        ("llm", "extractive-responder"),
        ("stt", "pocketsphinx"),
        ("tts", "espeak-ng"),
        ("tts", "flite"),
    ]
    assert all(line["seconds"] >= 0 for line in logs if line["event"] == "model.loaded")


@pytest.mark.parametrize("kind", ["stt", "stt_second", "llm", "tts", "eot", "embedding"])
def test_an_unknown_name_raises_with_the_choices(tmp_path: Path, kind: str) -> None:
    names: dict[str, Any] = {"llm": "auto", kind: "no-such"}
    with pytest.raises(StartupError, match=rf"\[models\] {kind} = 'no-such' .* auto, "):
        load(tmp_path, **names)


def test_a_missing_library_stops_the_start_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_library = models.tts.flite.bindings._load
    monkeypatch.setattr(models.tts.flite.bindings, "_load", lambda soname: load_library(f"not-here-{soname}"))
    with pytest.raises(StartupError, match=r"not-here-libflite\.so\.1 .*libflite1"):
        load(tmp_path, tts="flite")


def test_without_flite_espeak_speaks_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_library = models.tts.flite.bindings._load
    monkeypatch.setattr(models.tts.flite.bindings, "_load", lambda soname: load_library(f"not-here-{soname}"))
    with capture_logs() as logs:
        catalogue = load(tmp_path)
    assert catalogue.voice(None, "en")[1] == "espeak-ng/en-us"
    assert [line["name"] for line in logs if line["event"] == "model.missing"] == ["flite"]
    catalogue.close()


def test_without_its_file_the_lexical_end_of_turn_model_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.end_of_turn.smart_turn, "_FOLDER", "pipecat/not/here")
    with capture_logs() as logs:
        catalogue = load(tmp_path)
    assert catalogue.eot.name == "lexical-end-of-turn"
    missing = [(line["kind"], line["name"]) for line in logs if line["event"] == "model.missing"]
    assert missing == [("eot", "smart-turn-v3")]
    catalogue.close()
    with pytest.raises(StartupError, match="end-of-turn model is missing"):
        load(tmp_path, eot="smart-turn-v3")


def _copied_models(folder: Path) -> Path:
    """The recognizer's model folder, as links that can be replaced."""
    source = models.stt.pocketsphinx.bindings.model_path()
    for file in source.rglob("*"):
        if file.is_file():
            link = folder / "en-us" / file.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    return folder / "en-us"


@pytest.mark.parametrize("name", ["en-us/mdef", "en-us.lm.bin", "cmudict-en-us.dict"])
def test_a_missing_model_file_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (_copied_models(tmp_path) / name).unlink()
    monkeypatch.setattr("pocketsphinx.get_model_path", lambda: str(tmp_path))
    with pytest.raises(StartupError, match=f"{name} is missing: install"):
        load(tmp_path, stt="pocketsphinx")


@pytest.mark.parametrize("name", ["en-us/mdef", "en-us/means", "en-us.lm.bin"])
def test_a_damaged_model_file_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = _copied_models(tmp_path) / name
    start = file.read_bytes()[:1000]
    file.unlink()
    file.write_bytes(start)
    monkeypatch.setattr("pocketsphinx.get_model_path", lambda: str(tmp_path))
    with pytest.raises(StartupError, match=f"{name} is damaged: install"):
        load(tmp_path, stt="pocketsphinx")


def test_a_missing_espeak_library_stops_the_start() -> None:
    with pytest.raises(StartupError, match=r"no-such-library.*install the Debian package libespeak-ng1"):
        EspeakTextToSpeech("no-such-library.so.1")
