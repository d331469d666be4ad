"""Models are chosen by name or id; what is missing stops the start with one clear line."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import models.flite_library
import models.pocketsphinx_library
import models.smart_turn
from config.errors import NotFound, StartupError
from models.catalogue import Catalogue, LanguageModelInfo, language_model_id, load, voice_id
from models.end_of_turn import LexicalEndOfTurn
from models.espeak_tts import EspeakTextToSpeech
from models.flite_tts import FliteTextToSpeech
from models.pocketsphinx_stt import PocketsphinxSpeechToText
from models.responder import ExtractiveResponder


@pytest.fixture(scope="module")
def catalogue(
    recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech, espeak: EspeakTextToSpeech
) -> Iterator[Catalogue]:
    model = ExtractiveResponder()
    info = LanguageModelInfo(language_model_id(model.name), model.name, "builtin", 32768, True)
    yield Catalogue(recognizer, {info: model}, [flite, espeak], LexicalEndOfTurn())


@pytest.mark.parametrize(
    ("language", "voice"),
    [
        (None, "flite/slt"),
        ("en", "flite/slt"),
        ("en-GB", "flite/slt"),
        ("de", "espeak-ng/de"),
        ("de-AT", "espeak-ng/de"),
        ("fr", "espeak-ng/fr-fr"),
        ("zh-CN", "espeak-ng/cmn"),
        ("pt-BR", "espeak-ng/pt-br"),
        ("xx", "flite/slt"),
    ],
)
def test_a_language_has_a_default_voice(catalogue: Catalogue, language: str | None, voice: str) -> None:
    synthesizer, name = catalogue.voice(None, language)
    assert name == voice and (name in synthesizer.voices())


def test_the_chosen_voice_wins_over_the_language(catalogue: Catalogue) -> None:
    assert catalogue.voice(voice_id("flite/rms"), "de")[1] == "flite/rms"


def test_every_listed_voice_and_model_can_be_chosen_by_its_id(catalogue: Catalogue) -> None:
    assert {catalogue.voice(voice.id, None)[1] for voice in catalogue.voices()} == {
        voice.name for voice in catalogue.voices()
    }
    for info in catalogue.language_models():
        assert catalogue.llm(info.id).name == info.name
    assert catalogue.llm(None).name == "extractive-responder"


def test_exactly_one_language_model_is_the_default(catalogue: Catalogue) -> None:
    assert [info.is_default for info in catalogue.language_models()] == [True]


def test_an_unknown_id_is_not_found(catalogue: Catalogue) -> None:
    for choose in (lambda: catalogue.llm(uuid.uuid4()), lambda: catalogue.voice(uuid.uuid4(), None)):
        with pytest.raises(NotFound):
            choose()


def test_ids_never_change() -> None:
    """Agents hold them."""
    assert str(voice_id("flite/slt")) == "6363e010-7b49-560f-b52b-4b5713e0ec61"
    assert str(language_model_id("extractive-responder")) == "614b775d-e343-57a9-a007-6754894076cb"


def test_loading_says_one_line_for_each_model(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", ["stt", "llm", "tts", "eot"])
def test_an_unknown_name_is_refused_with_what_there_is(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StartupError, match=rf"\[models\] {kind} = 'no-such' .* auto, "):
        load(tmp_path, **{"llm": "auto", kind: "no-such"})


def test_a_missing_library_stops_the_start_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_library = models.flite_library._load
    monkeypatch.setattr(models.flite_library, "_load", lambda soname: load_library(f"not-here-{soname}"))
    with pytest.raises(StartupError, match=r"not-here-libflite\.so\.1 .*libflite1"):
        load(tmp_path, tts="flite")


def test_without_flite_espeak_speaks_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_library = models.flite_library._load
    monkeypatch.setattr(models.flite_library, "_load", lambda soname: load_library(f"not-here-{soname}"))
    with capture_logs() as logs:
        catalogue = load(tmp_path)
    assert catalogue.voice(None, "en")[1] == "espeak-ng/en-us"
    assert [line["name"] for line in logs if line["event"] == "model.missing"] == ["flite"]
    catalogue.close()


def test_without_its_file_words_alone_tell_the_end_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.smart_turn, "_FOLDER", "pipecat/not/here")
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
    source = models.pocketsphinx_library.model_path()
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


def test_a_missing_program_stops_the_start() -> None:
    with pytest.raises(StartupError, match=r"no-such-program.*espeak-ng"):
        EspeakTextToSpeech("no-such-program")
