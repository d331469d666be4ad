"""Recognizers and second passes by language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.errors import StartupError
from models.loading.catalogue import ANY
from models.loading.stt_loader import load_recognizers
from models.model_files.store import ModelStore
from models.protocols import SpeechToText
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.models.stt.sherpa import tiny_models
from tests.models.stt.sherpa.conftest import installed

ENGINES = {
    "english": ("sherpa-onnx/zipformer", ["en"], tiny_models.write_transducer),
    "german": ("sherpa-onnx/zipformer", ["de-DE"], tiny_models.write_transducer),
    "turns": ("sherpa-onnx/sense-voice", ["en", "zh"], tiny_models.write_sense_voice),
    "turns-any": ("sherpa-onnx/sense-voice", ["*"], tiny_models.write_sense_voice),
}


class Place:
    """A folder of models; loaded ones are closed at the end."""

    def __init__(self, directory: Path, opened: ExitStack) -> None:
        self.directory = directory
        self.opened = opened

    def store(self, *names: str) -> ModelStore:
        models = []
        for name in names:
            engine, languages, write = ENGINES[name]
            if not (self.directory / name).exists():
                (self.directory / name).mkdir()
                write(self.directory / name)
            models.append(installed(self.directory, name, engine, languages)[1])
        return ModelStore(self.directory, models)

    def names(self, store: ModelStore, wanted: str = "auto", second: str = "auto") -> dict[str, str]:
        ears: dict[str, SpeechToText] = load_recognizers(store, wanted, second, self.opened)
        return {language: ear.name for language, ear in ears.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all tests, because a model is load checked once per folder."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(PocketsphinxSpeechToText, "__init__", lambda self: None)  # its loading is not what is shown
    monkeypatch.setattr(PocketsphinxSpeechToText, "close", lambda self: None)
    with ExitStack() as opened:
        yield Place(folder, opened)


def test_without_files_the_built_in_recognizer_serves_all_languages(place: Place) -> None:
    assert place.names(place.store()) == {ANY: "pocketsphinx", "en": "pocketsphinx"}


def test_each_language_has_the_first_model_for_it(place: Place) -> None:
    store = place.store("german", "english")
    assert place.names(store) == {ANY: "english", "en": "english", "de": "german"}


def test_english_without_a_file_has_the_built_in_recognizer(place: Place) -> None:
    assert place.names(place.store("german")) == {ANY: "pocketsphinx", "en": "pocketsphinx", "de": "german"}


def test_an_offline_model_is_the_second_pass(place: Place) -> None:
    assert place.names(place.store("english", "turns")) == {
        ANY: "english+turns", "en": "english+turns", "zh": "turns"
    }  # fmt: skip


def test_an_offline_model_alone_serves_languages_without_a_streaming_model(place: Place) -> None:
    assert place.names(place.store("turns-any", "german")) == {
        ANY: "turns-any", "en": "pocketsphinx+turns-any", "de": "german+turns-any"
    }  # fmt: skip


def test_the_second_pass_can_be_switched_off_and_chosen(place: Place) -> None:
    store = place.store("english", "turns", "turns-any")
    assert place.names(store, second="off") == {ANY: "english", "en": "english"}
    assert place.names(store, second="turns-any") == {ANY: "turns-any", "en": "english+turns-any"}


def test_a_model_named_by_the_setting_serves_all_languages(place: Place) -> None:
    store = place.store("english", "german", "turns")
    assert place.names(store, "german", "off") == {ANY: "german"}
    assert place.names(store, "german") == {ANY: "german", "en": "german+turns", "zh": "german+turns"}
    assert set(place.names(store, "turns").values()) == {"turns"}
    assert place.names(store, "pocketsphinx", "off") == {ANY: "pocketsphinx"}


@pytest.mark.parametrize("second", ["english", "no-such"])
def test_a_second_pass_with_a_streaming_model_stops_the_start(place: Place, second: str) -> None:
    with pytest.raises(StartupError, match=rf"\[models\] stt_second = '{second}' .*auto, off, turns"):
        place.names(place.store("english", "turns"), second=second)


def test_a_model_that_does_not_load_is_skipped(place: Place, tmp_path: Path) -> None:
    place.directory = tmp_path
    store = place.store("english", "turns")
    (place.directory / "english" / "encoder.onnx").write_bytes(
        bytes((place.directory / "english" / "encoder.onnx").stat().st_size)
    )
    assert place.names(store) == {ANY: "pocketsphinx+turns", "en": "pocketsphinx+turns", "zh": "turns"}
    with pytest.raises(StartupError, match=r"encoder\.onnx is not an ONNX file"):
        place.names(store, "english")
