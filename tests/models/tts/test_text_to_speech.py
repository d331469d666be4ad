"""Conformance of synthesizers, and the specifics of flite and espeak-ng."""

from __future__ import annotations

import asyncio
import ctypes
from dataclasses import replace

import numpy as np
import pytest

from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.bindings import FliteLibrary
from models.tts.flite.text_to_speech import FliteTextToSpeech, to_ascii
from models.tts.prosody import pitch_range
from models.tts.trimming import trim_silence

SENTENCES = [
    "We are open from nine to five.",
    "It costs $42.50, or 40 euros; call +1 555 0100!",
    "Mr. Smith\u2019s \u201coffice\u201d \u2013 caf\u00e9 M\u00fcller \u2013 is closed\u2026 isn't it?",
    "one  two\tthree\nfour",
    "--- well - yes",
]


@pytest.fixture(params=["flite/slt", "flite/rms", "espeak-ng/de"])
def voice(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def synthesizer(voice: str, flite: FliteTextToSpeech, espeak: EspeakTextToSpeech) -> TextToSpeech:
    return flite if voice.startswith("flite") else espeak


def speak(tts: TextToSpeech, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
    return asyncio.run(tts.synthesize(text, settings))


def normal(voice: str, rate: int = 8000) -> VoiceSettings:
    return VoiceSettings(voice, 1.0, 0.5, rate)


def test_a_listed_voice_can_be_used(synthesizer: TextToSpeech, voice: str) -> None:
    assert voice in synthesizer.voices()


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_speech_is_mono_int16_at_the_requested_rate(synthesizer: TextToSpeech, voice: str, rate: int) -> None:
    speech = speak(synthesizer, "Hello, how are you?", normal(voice, rate))
    assert (speech.rate, speech.samples.dtype, speech.samples.ndim) == (rate, np.int16, 1)
    assert 0.5 < len(speech.samples) / rate < 3.0
    assert np.abs(speech.samples).max() > 3000


@pytest.mark.parametrize("text", SENTENCES)
def test_word_ends_ascend_within_text_and_audio(synthesizer: TextToSpeech, voice: str, text: str) -> None:
    speech = speak(synthesizer, text, normal(voice))
    ends = [word.char_end for word in speech.words]
    samples = [word.sample_end for word in speech.words]
    assert ends == sorted(set(ends)) and ends[0] > 0 and ends[-1] == len(text)
    assert samples == sorted(samples) and samples[0] >= 0 and samples[-1] <= len(speech.samples)


@pytest.mark.parametrize("text", ["", " ", "...", "\u2014", "\U0001f600"])
def test_a_text_without_words_has_no_audio(synthesizer: TextToSpeech, voice: str, text: str) -> None:
    speech = speak(synthesizer, text, normal(voice))
    assert len(speech.samples) == 0 and not speech.words


def test_silence_is_trimmed_to_a_short_pause_at_the_end(synthesizer: TextToSpeech, voice: str) -> None:
    speech = speak(synthesizer, "Hello there.", normal(voice))
    part = trim_silence(speech.samples, speech.rate)
    assert part.start <= 0.02 * speech.rate
    assert len(speech.samples) - part.stop <= 0.02 * speech.rate


def test_speed_changes_the_length(synthesizer: TextToSpeech, voice: str) -> None:
    text = "We are open from nine to five on all days of the week."
    lengths = [len(speak(synthesizer, text, replace(normal(voice), speed=speed)).samples) for speed in (0.6, 1.0, 1.5)]
    assert lengths[0] > 1.25 * lengths[1] and lengths[1] > 1.25 * lengths[2]


def test_an_unknown_voice_is_a_model_error(synthesizer: TextToSpeech) -> None:
    with pytest.raises(ModelError):
        speak(synthesizer, "Hello", normal("flite/nobody"))


def test_many_calls_speak_at_the_same_time(synthesizer: TextToSpeech, voice: str) -> None:
    async def all_at_once() -> list[SynthesizedSpeech]:
        texts = [f"Number {number} please." for number in range(12)]
        return await asyncio.gather(*(synthesizer.synthesize(text, normal(voice)) for text in texts))

    speeches = asyncio.run(all_at_once())
    assert [speech.text for speech in speeches] == [f"Number {number} please." for number in range(12)]
    assert len({speech.samples.tobytes() for speech in speeches}) == 12


def test_flite_word_ends_are_where_the_audio_becomes_quiet(flite: FliteTextToSpeech) -> None:
    """There is a pause between words that a comma separates: each word ends where its sound has just ended."""
    speech = speak(flite, "stop, stop, stop, stop.", normal("flite/rms", 16000))
    assert [word.char_end for word in speech.words] == [5, 11, 17, 23]
    for word in speech.words[:-1]:
        before = _level(speech.samples, word.sample_end - 3200, word.sample_end)
        behind = _level(speech.samples, word.sample_end + 320, word.sample_end + 1600)
        assert before > 8 * behind


def test_espeak_clause_ends_are_where_the_audio_becomes_quiet(espeak: EspeakTextToSpeech) -> None:
    """Clauses of unequal length in letters and in audio."""
    text = "Ja, wirklich, das geht auch morgen, gut."
    speech = speak(espeak, text, normal("espeak-ng/de", 16000))
    ends = {word.char_end: word.sample_end for word in speech.words}
    for comma in (3, 13, 35):
        before = _level(speech.samples, ends[comma] - 1600, ends[comma])
        behind = _level(speech.samples, ends[comma] + 160, ends[comma] + 1120)
        assert before > 8 * behind, text[:comma]


@pytest.mark.parametrize(("voice", "least"), [("flite/slt", 1.5), ("flite/awb", 1.5), ("espeak-ng/de", 1.5)])
def test_a_stable_voice_moves_its_pitch_less(
    flite: FliteTextToSpeech, espeak: EspeakTextToSpeech, voice: str, least: float
) -> None:
    tts: TextToSpeech = flite if voice.startswith("flite") else espeak
    text = "We are open from nine to five on all days of the week, and you may call us whenever you like."
    lively, as_it_is, even = (
        _pitch_deviation(speak(tts, text, replace(normal(voice, 16000), stability=stability)).samples)
        for stability in (0.0, 0.5, 1.0)
    )
    assert lively > 1.25 * as_it_is > 1.25 * least * even


@pytest.mark.parametrize("voice", ["slt", "rms", "awb", "kal16"])
def test_a_stability_of_one_half_leaves_the_flite_voice_unchanged(voice: str) -> None:
    """Compared with its own function, without settings."""
    library = FliteLibrary()
    if voice not in library.voices:
        pytest.fail(f"the voice {voice} is not installed")
    text = "As it is, and nothing else."
    ctypes.CDLL(None).srand(1)
    untouched = FliteLibrary().speak(text, voice, 1.0, pitch_range(0.5)).samples
    ctypes.CDLL(None).srand(1)
    handle = library._voices[voice]
    utterance = library._library.flite_synth_text(text.encode(), handle)
    wave = library._library.utt_wave(utterance).contents
    assert np.array_equal(untouched, np.ctypeslib.as_array(wave.samples, (wave.num_samples,)))
    library._library.delete_utterance(utterance)


def test_a_number_of_several_words_ends_with_the_last_of_them(flite: FliteTextToSpeech) -> None:
    speech = speak(flite, "about 4237 people", normal("flite/slt"))
    assert [speech.text[: word.char_end] for word in speech.words] == ["about", "about 4237", "about 4237 people"]
    about, number, people = (word.sample_end for word in speech.words)
    assert number - about > 2 * (people - number)


def test_to_ascii_keeps_the_positions_of_all_characters() -> None:
    text = "\u201cCaf\u00e9\u201d \u2013 na\u00efve\u2026 \u4f60\u597d \U0001f600 \t\x00\u00a0!"
    plain = to_ascii(text)
    assert len(plain) == len(text) and plain.isascii()
    assert plain.startswith('"Cafe" - naive. ')


def test_closing_flite_cancels_queued_sentences() -> None:
    tts = FliteTextToSpeech()

    async def close_meanwhile() -> list[object]:
        tasks = [asyncio.ensure_future(tts.synthesize(f"Sentence {n}.", normal("flite/slt"))) for n in range(5)]
        await asyncio.sleep(0)
        tts.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(close_meanwhile())
    assert any(isinstance(result, asyncio.CancelledError) for result in results)
    tts.close()


def _level(samples: Samples, start: int, stop: int) -> float:
    return float(np.sqrt(np.mean(samples[start:stop].astype(np.float64) ** 2)))


def _pitch_deviation(samples: Samples) -> float:
    """The standard deviation of the pitch relative to its mean, by autocorrelation of 40 ms every 10 ms at 16 kHz."""
    pitches = []
    for start in range(0, len(samples) - 640, 160):
        frame = samples[start : start + 640].astype(np.float64)
        frame -= frame.mean()
        likeness = np.correlate(frame, frame, "full")[639:]
        lag = 40 + int(np.argmax(likeness[40:266]))
        if np.sqrt(np.mean(frame**2)) > 500 and likeness[lag] > 0.6 * likeness[0]:
            pitches.append(16000 / lag)
    return float(np.std(pitches) / np.mean(pitches))
