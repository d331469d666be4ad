"""Signs of listening are distinguished from speech that takes the turn."""

from __future__ import annotations

import pytest

from models.end_of_turn.backchannels import is_backchannel

LISTENING = {
    "en": ["mm-hmm", "Mhm.", "uh-huh", "uh huh", "Yeah, yeah.", "okay", "OK", "right", "I see.", "oh, got it", "hmm"],
    "de": ["ja", "Ja ja, genau.", "mhm", "ach so", "Alles klar!", "ähm", "hm hm", "verstehe, okay"],
    "fr": ["oui", "oui oui d'accord", "d\u2019accord", "ah bon", "euh", "très bien", "C'est ça."],
    "es": ["sí", "sí, claro", "ajá", "vale vale", "ya", "de acuerdo", "claro que sí"],
    "it": ["sì", "sì sì certo", "va bene", "ho capito", "eh", "ah ecco"],
    "nl": ["ja", "oké", "ja precies", "uhm", "ik snap het", "dat klopt"],
    "pt": ["sim", "tá bom", "pois é", "aham", "uhum", "isso mesmo", "é"],
}
SPEAKING = {
    "en": ["no", "wait", "stop", "hello", "yes please", "okay but what about monday", "i see a problem", "right now"],
    "de": ["nein", "moment", "ja aber", "stopp", "ich verstehe nicht", "gut morgen"],
    "fr": ["non", "attendez", "oui mais", "d'accord mais quand", "très cher"],
    "es": ["no", "espere", "sí pero", "claro que no", "un momento"],
    "it": ["no", "aspetti", "sì ma", "ho una domanda"],
    "nl": ["nee", "wacht", "ja maar", "ik snap er niets van"],
    "pt": ["não", "espere", "sim mas", "tá errado"],
}


@pytest.mark.parametrize(("language", "text"), [(tag, text) for tag, texts in LISTENING.items() for text in texts])
def test_signs_of_listening_are_backchannels(language: str, text: str) -> None:
    assert is_backchannel(text, language)


@pytest.mark.parametrize(("language", "text"), [(tag, text) for tag, texts in SPEAKING.items() for text in texts])
def test_anything_else_is_not_a_backchannel(language: str, text: str) -> None:
    assert not is_backchannel(text, language)


@pytest.mark.parametrize("text", ["", " ... ", "[NOISE]", "<sil>", "++COUGH++ um", "(coughs)", "*sighs*", "♪ ♪"])
def test_noise_marks_do_not_count_as_words(text: str) -> None:
    assert is_backchannel(text, "en")


@pytest.mark.parametrize("text", ["the", "the okay", "m m h m", "there are there", "ack ack", "oh", "yeah i", "i'm"])
def test_misrecognized_hums_and_coughs_are_not_speech_yet(text: str) -> None:
    """As pocketsphinx hears hums, coughs and the first sound of words over a telephone."""
    assert is_backchannel(text, "en")


@pytest.mark.parametrize(
    "text", ["yeah i want", "so what", "are you there", "it is", "you have", "back", "the other", "2"]
)
def test_function_words_count_only_with_others(text: str) -> None:
    assert not is_backchannel(text, "en")


def test_a_tag_selects_its_language_and_none_selects_english() -> None:
    assert is_backchannel("tá bom", "pt-BR")
    assert is_backchannel("got it", None) and is_backchannel("got it", "en-GB")
    assert not is_backchannel("genau", None)


def test_a_language_without_a_list_has_only_the_sounds() -> None:
    assert is_backchannel("mhm okay", "fi")
    assert not is_backchannel("joo", "fi")
