"""Speech output: normalized text is synthesized, and the transcript has the original text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from threading import get_ident

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calls.call_record.transcript import played_text
from calls.conversation.speech_output import SpeechOutput
from media.playout import Playout
from models.protocols import SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from models.tts.text_normalization import NormalizedText, normalize_for_speech
from tests.fakes.fake_audio_port import ArrayPort
from tests.fakes.scripted_call import ScriptedTts

RATE = 8000
MIXED = "Your **order 4711-A2** costs $12.50; call +49 30 1234567 \U0001f600 by Nov. 21."
MESSY = [
    " ",
    " ",
    "  ",
    "\n",
    "5",
    "%",
    "**",
    "-",
    "--",
    "\u20ac",
    "$12.50",
    "4711-A2",
    "a",
    "word",
    "<br>",
    "&amp;",
    "|",
]
MESSY += [
    "#",
    "3:15",
    "pm",
    "1/2",
    "\u2026",
    ",",
    ".",
    "11/21",
    "2-4",
    "kg",
    "_x_",
    "[a](b)",
    "\U0001f600",
    "+",
    "x@y.de",
]
"""What sentences are put together from."""


@pytest.fixture(scope="module")
def flite() -> Iterator[FliteTextToSpeech]:
    tts = FliteTextToSpeech()
    yield tts
    tts.close()


@pytest.fixture(scope="module")
def espeak() -> Iterator[EspeakTextToSpeech]:
    tts = EspeakTextToSpeech()
    yield tts
    tts.close()


def speech_output(voice: TextToSpeech, name: str = "scripted/one", language: str | None = None) -> SpeechOutput:
    """A speech output at `RATE`."""
    port = ArrayPort()
    return SpeechOutput(voice, VoiceSettings(name, 1.0, 0.5, RATE), Playout(port, port.open(RATE)), language)


def played_prefixes(speech: SynthesizedSpeech) -> list[str]:
    """Yields the played text after each word."""
    length = len(speech.samples)
    return list(dict.fromkeys(played_text(speech, heard) for heard in (*range(0, length, 8), length)))


async def test_the_voice_gets_words_and_the_speech_has_the_original_text() -> None:
    voice = ScriptedTts()
    speech = await speech_output(voice).synthesize("It is **5 km**.")
    assert voice.spoken == ["It is five kilometers."]
    assert speech.text == "It is **5 km**."
    assert played_prefixes(speech) == ["", "It", "It is", "It is **5 km**."]


async def test_a_text_of_plain_words_is_synthesized_unchanged() -> None:
    voice = ScriptedTts()
    said = speech_output(voice)
    await said.synthesize("Hello, how are you?")
    assert voice.spoken == ["Hello, how are you?"]


@pytest.mark.parametrize("text", ["**", "---", "\U0001f600\U0001f600", "```", "# ", "|"])
async def test_a_text_of_markup_alone_has_no_samples(text: str) -> None:
    voice = ScriptedTts()
    speech = await speech_output(voice).synthesize(text)
    assert (speech.text, len(speech.samples), voice.spoken) == (text, 0, [])


@pytest.mark.parametrize(
    ("name", "language", "said"),
    [
        ("scripted/one", "de", "Das sind drei Euro fünfzig."),
        ("scripted/one", "de-CH", "Das sind drei Euro fünfzig."),
        ("scripted/de", None, "Das sind drei Euro fünfzig."),
        ("scripted/de", "fr", "Das sind trois euros cinquante."),
        ("scripted/en", None, "Das sind three euros and fifty cents."),
        ("scripted/pl", None, "Das sind 3,50 €."),
    ],
)
async def test_figures_are_normalized_in_the_hinted_language_else_the_voices(
    name: str, language: str | None, said: str
) -> None:
    voice = ScriptedTts()
    await speech_output(voice, name, language).synthesize("Das sind 3,50 €.")
    assert voice.spoken == [said]


@pytest.mark.parametrize(("name", "language"), [("flite/slt", "en"), ("espeak-ng/de", "de"), ("espeak-ng/fr-fr", "fr")])
async def test_the_played_text_grows_word_by_word_in_order(
    flite: FliteTextToSpeech, espeak: EspeakTextToSpeech, name: str, language: str
) -> None:
    voice: TextToSpeech = flite if name.startswith("flite") else espeak
    speech = await speech_output(voice, name, language).synthesize(MIXED)
    heard = played_prefixes(speech)
    assert speech.text == MIXED and heard[-1] == MIXED
    for shorter, longer in pairwise(heard):
        assert longer.startswith(shorter)
        assert longer == MIXED[: len(longer)] and MIXED[len(longer) :][:1] in ("", " ")
    assert {"Your", "Your **order 4711-A2**"} <= set(heard)
    assert any(text.endswith("$12.50;") for text in heard)
    assert any(text.endswith("+49 30") for text in heard), "the groups of a telephone number are words of their own"


@pytest.mark.parametrize(("length", "on_the_loop"), [(60, True), (61, False)])
async def test_a_long_text_is_normalized_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, length: int, on_the_loop: bool
) -> None:
    at_work, rewrite = list[int](), normalize_for_speech

    def watched(text: str, language: str | None) -> NormalizedText:
        at_work.append(get_ident())
        return rewrite(text, language)

    monkeypatch.setattr("calls.conversation.speech_output.normalize_for_speech", watched)
    voice = ScriptedTts()
    text = "It is 5 km" + "." * (length - 10)
    assert (await speech_output(voice).synthesize(text)).text == text
    assert voice.spoken[0].startswith("It is five kilometers")
    assert [thread == get_ident() for thread in at_work] == [on_the_loop]


@given(st.lists(st.sampled_from(MESSY)).map("".join), st.sampled_from(["en", "de", "fr", "pl"]))
async def test_word_ends_are_in_ascending_order(text: str, language: str) -> None:
    speech = await speech_output(ScriptedTts(), language=language).synthesize(text)
    ends = [word.char_end for word in speech.words]
    assert all(one < other for one, other in pairwise(ends))


async def test_a_long_number_counts_as_played_at_its_last_spoken_word(flite: FliteTextToSpeech) -> None:
    """In spoken form, "4711-A2" is most of the sentence."""
    speech = await speech_output(flite, "flite/slt", "en").synthesize("Take order 4711-A2 now")
    ends = [word.sample_end / len(speech.samples) for word in speech.words]
    assert [speech.text[: word.char_end] for word in speech.words][-2:] == [
        "Take order 4711-A2",
        "Take order 4711-A2 now",
    ]
    assert ends[1] < 0.45 and ends[2] > 0.75


async def test_speech_at_another_rate_is_an_error() -> None:
    class WrongRate(ScriptedTts):
        async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
            return SynthesizedSpeech(text, np.zeros(10, np.int16), RATE * 2)

    with pytest.raises(Exception, match="16000 Hz instead of 8000 Hz"):
        await speech_output(WrongRate()).synthesize("Hello 5.")
