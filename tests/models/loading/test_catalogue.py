"""Lookup of models by id, name and language."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from config.errors import NotFound
from models.end_of_turn.lexical import LexicalEndOfTurn
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id, voice_id
from models.rule_based.responder import ExtractiveResponder
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech


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


def test_a_chosen_voice_overrides_the_language(catalogue: Catalogue) -> None:
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
    """Agents store them."""
    assert str(voice_id("flite/slt")) == "6363e010-7b49-560f-b52b-4b5713e0ec61"
    assert str(language_model_id("extractive-responder")) == "614b775d-e343-57a9-a007-6754894076cb"


def test_voices_tell_their_language_engine_and_rate(catalogue: Catalogue) -> None:
    voices = {each.name: each for each in catalogue.voices()}
    english, german = voices["flite/slt"], voices["espeak-ng/de"]
    assert (english.language, english.engine, english.sample_rate) == ("en", "flite", 16000)
    assert (german.language, german.engine, german.sample_rate) == ("de", "espeak-ng", 22050)


def test_a_recognizer_tells_its_engine_and_languages(catalogue: Catalogue) -> None:
    [recognizer] = catalogue.speech_recognizers()
    assert (recognizer.engine, recognizer.languages, recognizer.is_default) == ("pocketsphinx", ("en",), True)
    assert recognizer.streaming
