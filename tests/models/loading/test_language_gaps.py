"""What is said of agents whose language no installed model recognizes or speaks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from media.audio_port import Samples
from models.end_of_turn.lexical import LexicalEndOfTurn
from models.loading.catalogue import ANY, Catalogue, LanguageModelInfo, language_model_id, voice_id
from models.loading.language_gaps import LanguageGap, language_gaps
from models.protocols import SpeechToText, TextToSpeech
from models.rule_based.responder import ExtractiveResponder
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.fakes.scripted_call import ScriptedStt

ENGLISH_ONLY = "callers are recognized by pocketsphinx (en)"


class Recognizer(ScriptedStt):
    """A recognizer of these languages."""

    def __init__(self, name: str, languages: Sequence[str]) -> None:
        super().__init__()
        self.name = name
        self.languages = languages


def catalogue_of(stt: SpeechToText, voices: Sequence[TextToSpeech], **by_language: SpeechToText) -> Catalogue:
    model = ExtractiveResponder()
    info = LanguageModelInfo(language_model_id(model.name), model.name, "builtin", 32768, True)
    return Catalogue(stt, {info: model}, voices, LexicalEndOfTurn(), by_language)


@pytest.fixture(scope="module")
def built_in(recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech, espeak: EspeakTextToSpeech) -> Catalogue:
    return catalogue_of(recognizer, [flite, espeak])


@pytest.mark.parametrize("language", [None, "en", "en-GB", "EN-us"])
@pytest.mark.parametrize("voice", [None, "flite/slt"])
def test_an_english_agent_has_no_gap(built_in: Catalogue, language: str | None, voice: str | None) -> None:
    assert language_gaps(built_in, language, None if voice is None else voice_id(voice)) == []


def test_a_language_that_is_spoken_but_not_recognized_is_a_gap(built_in: Catalogue) -> None:
    text = f"No installed speech recognizer has the language de-AT: {ENGLISH_ONLY}"
    assert language_gaps(built_in, "de-AT", None) == [LanguageGap("language", text)]


def test_a_language_that_no_voice_has_is_a_gap(recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech) -> None:
    models = catalogue_of(recognizer, [flite], de=Recognizer("german", ["de"]))
    text = "No installed voice has the language de: the agent has the voice flite/slt (en)"
    assert language_gaps(models, "de", None) == [LanguageGap("language", text)]


def test_a_voice_of_another_language_than_the_agents_is_a_gap(built_in: Catalogue) -> None:
    assert LanguageGap("voice", "The voice flite/slt has the language en, not de") in language_gaps(
        built_in, "de", voice_id("flite/slt")
    )


def test_a_voice_whose_language_is_not_recognized_by_default_is_a_gap(built_in: Catalogue) -> None:
    text = f"The voice espeak-ng/de has the language de; without languageHint {ENGLISH_ONLY}"
    assert language_gaps(built_in, None, voice_id("espeak-ng/de")) == [LanguageGap("voice", text)]


@pytest.mark.parametrize(("language", "voice"), [("zh", None), ("cmn", None), ("zh-Hans", "espeak-ng/cmn")])
def test_two_tags_of_one_language_are_no_gap(
    built_in: Catalogue, flite: FliteTextToSpeech, espeak: EspeakTextToSpeech, language: str, voice: str | None
) -> None:
    models = catalogue_of(Recognizer("any", [ANY]), [flite, espeak])
    assert language_gaps(models, language, None if voice is None else voice_id(voice)) == []


def test_a_voice_that_is_no_longer_installed_is_replaced_by_the_default(built_in: Catalogue) -> None:
    assert language_gaps(built_in, "en", uuid.uuid4()) == []


def test_a_second_pass_adds_its_languages(flite: FliteTextToSpeech, espeak: EspeakTextToSpeech) -> None:
    class Whole(Recognizer):
        async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
            return ""

    both = TwoPassSpeechToText(Recognizer("first", ["en"]), Whole("second", ["de"]))
    assert both.languages == ("en", "de")
    assert language_gaps(catalogue_of(both, [flite, espeak]), "de", None) == []
    assert [gap.of for gap in language_gaps(catalogue_of(both, [flite, espeak]), "fr", None)] == ["language"]
