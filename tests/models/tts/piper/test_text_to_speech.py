"""Piper's synthesizer on tiny voices whose audio reveals their input."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from config.errors import ModelError, StartupError
from media.audio_port import Samples
from models.loading.loader import load
from models.model_files.store import Manifest, ModelStore, sha256_of
from models.protocols import SynthesizedSpeech, VoiceDescription, VoiceSettings
from models.tts.piper import text_to_speech
from models.tts.piper.phoneme_ids import PhonemeIds, SentencePhonemes, Word
from models.tts.piper.text_to_speech import PiperTextToSpeech
from models.tts.piper.voice import VitsNetwork
from tests.models.model_files.tiny_model_files import model_of
from tests.models.tts.piper.tiny_voice import SPEAKERS_APART, write_voice

NORMAL = VoiceSettings("piper/one", 1.0, 0.5, 16000)
TEXT = "Hello, my friend, we are open from nine to five."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="module")
def piper(folder: Path) -> Iterator[PiperTextToSpeech]:
    tts = PiperTextToSpeech(
        {
            "one": write_voice(folder, "one"),
            "piper-two": write_voice(
                folder, "two", speakers=("low", "high"), rate=16000, language="de_DE", espeak="de"
            ),
            "spelled": write_voice(folder, "spelled", phoneme_type="text", has_durations=True),
        },
        threads=2,
    )
    yield tts
    tts.close()


async def test_voices_have_names_and_languages(piper: PiperTextToSpeech) -> None:
    assert list(piper.voices()) == ["piper/one", "piper/two/low", "piper/two/high", "piper/spelled"]
    assert [piper.language_of(voice) for voice in piper.voices()] == ["en-US", "de-DE", "de-DE", "en-US"]
    assert piper.language_of("piper/three") is None
    assert piper.describe("piper/one") == VoiceDescription("piper", "medium", 22050)
    assert piper.describe("piper/two/low") == VoiceDescription("piper", "medium", 16000)
    for voice in piper.voices():
        assert len((await piper.synthesize(TEXT, replace(NORMAL, voice=voice))).samples) > 8000


def test_models_whose_names_differ_by_the_prefix_alone_keep_it(tmp_path: Path) -> None:
    files = write_voice(tmp_path)
    tts = PiperTextToSpeech({"piper-one": files, "one": files}, threads=1)
    assert list(tts.voices()) == ["piper/piper-one", "piper/one"]
    tts.close()


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 48000])
async def test_speech_has_the_requested_rate_with_the_same_length_and_pitch(
    piper: PiperTextToSpeech, rate: int
) -> None:
    requested, own = [await piper.synthesize("aaah", replace(even(NORMAL), rate=each)) for each in (rate, 22050)]
    assert (requested.rate, requested.samples.dtype, requested.samples.ndim) == (rate, np.int16, 1)
    assert len(requested.samples) / rate == pytest.approx(len(own.samples) / 22050, rel=0.4)
    assert pitch(requested) == pytest.approx(pitch(own), rel=0.05)


async def test_speed_divides_the_duration(piper: PiperTextToSpeech) -> None:
    slow, normal, fast = [
        len((await piper.synthesize(TEXT, replace(NORMAL, speed=speed))).samples) for speed in (0.6, 1.0, 1.5)
    ]
    assert slow / normal == pytest.approx(1 / 0.6, rel=0.15)
    assert fast / normal == pytest.approx(1 / 1.5, rel=0.15)


async def test_a_stable_voice_has_less_noise_in_its_sound_and_its_lengths(piper: PiperTextToSpeech) -> None:
    hiss, spread = [], []
    for stability in (0.0, 0.5, 1.0):
        speeches = [await piper.synthesize("Yes, he may.", replace(NORMAL, stability=stability)) for _ in range(10)]
        hiss.append(np.mean([silence_after_comma(speech) for speech in speeches]))
        ends = [[word.sample_end for word in speech.words] for speech in speeches]
        spread.append(np.std(np.diff(ends, axis=1), axis=0).mean())
    assert hiss[0] > 1.2 * hiss[1] > 1.2 * 1.2 * hiss[2]
    assert spread[0] > 1.5 * spread[2]


async def test_speakers_of_one_voice_have_their_own_sound_and_one_network(piper: PiperTextToSpeech) -> None:
    low, high = [
        await piper.synthesize("aaah", replace(even(NORMAL), voice=f"piper/two/{who}")) for who in ("low", "high")
    ]
    assert pitch(high) == pytest.approx(SPEAKERS_APART * pitch(low), rel=0.1)


@pytest.mark.parametrize("voice", ["piper/one", "piper/spelled"])
async def test_words_end_where_their_last_phoneme_does(piper: PiperTextToSpeech, voice: str) -> None:
    """Pauses after commas are silence: the word before has ended when they begin."""
    text = "stop, wait a moment, stop - now. Then go!"
    speech = await piper.synthesize(text, replace(even(NORMAL), voice=voice))
    assert [text[: word.char_end] for word in speech.words] == [
        "stop,", "stop, wait", "stop, wait a", "stop, wait a moment,", "stop, wait a moment, stop -",
        "stop, wait a moment, stop - now.", "stop, wait a moment, stop - now. Then", text
    ]  # fmt: skip
    ends = [word.sample_end for word in speech.words]
    assert ends == sorted(set(ends)) and ends[-1] <= len(speech.samples)
    if voice == "piper/one":
        for end in (ends[0], ends[3], ends[5]):
            before, behind = speech.samples[end - 800 : end], speech.samples[end + 160 : end + 1600]
            assert level(before) > 4 * level(behind)


async def test_words_without_a_phoneme_boundary_share_the_time_of_the_clause(piper: PiperTextToSpeech) -> None:
    """espeak-ng makes five words of the number."""
    text = "It costs 4237 euros, yes."
    speech = await piper.synthesize(text, even(NORMAL))
    ends = [word.sample_end for word in speech.words]
    assert [text[: word.char_end] for word in speech.words][-2:] == ["It costs 4237 euros,", text]
    assert level(speech.samples[ends[3] - 800 : ends[3]]) > 4 * level(speech.samples[ends[3] + 160 : ends[3] + 1600])


async def test_without_durations_word_ends_are_estimated(
    piper: PiperTextToSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VitsNetwork, "_samples_of_ids", lambda *_: None)
    speech = await piper.synthesize(TEXT, NORMAL)
    assert [word.char_end for word in speech.words][-1] == len(TEXT)


@pytest.mark.parametrize("text", ["", " ", "...", "\u2014", "\U0001f600"])
async def test_a_text_without_words_has_no_audio(piper: PiperTextToSpeech, text: str) -> None:
    speech = await piper.synthesize(text, NORMAL)
    assert len(speech.samples) == 0 and not speech.words


async def test_the_peak_is_normalized_without_overflow(piper: PiperTextToSpeech) -> None:
    speech = await piper.synthesize(TEXT, even(NORMAL))
    assert 24000 < np.abs(speech.samples.astype(np.int32)).max() < 32767


async def test_an_unknown_voice_raises_a_model_error(piper: PiperTextToSpeech) -> None:
    for voice in ("piper/none", "piper/two", "piper/two/none", "flite/slt"):
        with pytest.raises(ModelError, match=voice):
            await piper.synthesize("Hello", replace(NORMAL, voice=voice))


async def test_calls_are_synthesized_in_parallel_with_their_own_words(
    piper: PiperTextToSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    speak = VitsNetwork.speak

    def together(*arguments: object) -> object:
        both.wait(10)
        return speak(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(VitsNetwork, "speak", together)
    texts = [f"{word} please" for word in ("one", "two", "three", "four", "five", "six")]
    speeches = await asyncio.gather(*(piper.synthesize(text, NORMAL) for text in texts))
    assert [speech.text for speech in speeches] == texts
    assert len({speech.samples.tobytes() for speech in speeches}) == len(texts)


async def test_a_cancelled_sentence_stops_in_the_middle(
    piper: PiperTextToSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()
    speak, outcomes = VitsNetwork.speak, []

    def watched(self: VitsNetwork, ids: object, scales: object, speaker: object, run: object) -> object:
        begun.set()
        try:
            for _ in range(10_000):  # So long does a sentence take that is not stopped.
                speak(self, ids, scales, speaker, run)  # type: ignore[arg-type]
        except ModelError as error:
            outcomes.append(error.message)
        finally:
            ended.set()
        raise ModelError("stopped")

    monkeypatch.setattr(VitsNetwork, "speak", watched)
    task = asyncio.create_task(piper.synthesize(TEXT, NORMAL))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 30)
    assert outcomes and "terminate" in outcomes[0].lower()


async def test_an_error_of_a_voice_fails_its_text_alone(
    piper: PiperTextToSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        beyond = SentencePhonemes((1, 99_999, 2), (Word(5, 2),))
        patched.setattr(PhonemeIds, "sentences", lambda *_: [beyond])
        with pytest.raises(ModelError, match=r"the voice failed: .*99999"):
            await piper.synthesize(TEXT, NORMAL)
    assert len((await piper.synthesize(TEXT, NORMAL)).samples) > 8000


async def test_the_speed_is_measured_at_the_start(piper: PiperTextToSpeech) -> None:
    assert 0 < piper.speed.real_time_factor < 10 and piper.speed.first_sentence_ms > 0 and piper.speed.concurrency == 2


def test_the_number_of_loaded_networks_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_to_speech, "MAX_LOADED_NETWORKS", 2)
    files = write_voice(tmp_path)
    with capture_logs() as logs:
        tts = PiperTextToSpeech(dict.fromkeys(("first", "second", "third"), files), threads=1)
        for voice in ("first", "second", "first", "third", "first", "second"):
            speech = asyncio.run(tts.synthesize("Hello", replace(NORMAL, voice=f"piper/{voice}")))
            assert len(speech.samples) > 2000
    tts.close()
    assert [(line["event"].removeprefix("voice."), line["voice"]) for line in logs] == [
        ("loaded", "first"), ("loaded", "second"), ("loaded", "third"), ("dropped", "second"), ("loaded", "second"),
        ("dropped", "third"),
    ]  # fmt: skip


def _damaged(folder: Path, what: str) -> tuple[Path, Path]:
    network, settings = write_voice(folder, what.split(" ")[0])
    made = json.loads(settings.read_text())
    match what:
        case "cut network":
            network.write_bytes(network.read_bytes()[:-100])
        case "other network":
            network.write_bytes(b"no network at all")
        case "empty network":
            network.write_bytes(b"")
        case "missing network":
            network.unlink()
        case "no json":
            settings.write_text("{")
        case "ids beyond":
            settings.write_text(json.dumps(made | {"num_symbols": 3}))
        case "no marks":
            settings.write_text(json.dumps(made | {"phoneme_id_map": {"a": [1]}}))
        case "pinyin phonemes":
            settings.write_text(json.dumps(made | {"phoneme_type": "pinyin"}))
        case "speakers without":
            settings.write_text(json.dumps(made | {"num_speakers": 3}))
    return network, settings


WRONG = [
    "cut network", "other network", "empty network", "missing network", "no json", "ids beyond", "no marks",
    "pinyin phonemes", "speakers without"
]  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_voice_with_invalid_files_is_a_one_line_error(tmp_path: Path, what: str) -> None:
    with pytest.raises(StartupError) as raised:
        PiperTextToSpeech({"bad": _damaged(tmp_path, what)})
    assert str(tmp_path) in raised.value.message and "trunkline models verify" in raised.value.message
    assert "\n" not in raised.value.message


def test_an_invalid_voice_leaves_the_others_available(tmp_path: Path) -> None:
    with capture_logs() as logs:
        tts = PiperTextToSpeech(
            {"bad": _damaged(tmp_path, "no json"), "good": write_voice(tmp_path, "good")}, threads=1
        )
    assert list(tts.voices()) == ["piper/good"]
    assert [line["voice"] for line in logs if line["event"] == "voice.unusable"] == ["bad"]
    tts.close()


def test_a_failing_voice_leaves_the_others_available(tmp_path: Path) -> None:
    network, settings = write_voice(tmp_path, "unknown", espeak="xx-none")
    broken, its_settings = write_voice(tmp_path, "broken")
    content = bytearray(broken.read_bytes())
    at = content.index(b"RandomNormalLike")
    content[at : at + 16] = b"NoSuchOperation!"
    broken.write_bytes(content)
    voices = {"unknown": (network, settings), "broken": (broken, its_settings)}
    with pytest.raises(StartupError, match=r"the voice unknown cannot speak .*; the voice broken cannot speak"):
        PiperTextToSpeech(voices, threads=1)
    with capture_logs() as logs:
        tts = PiperTextToSpeech({**voices, "good": write_voice(tmp_path, "good")}, threads=1)
    assert list(tts.voices()) == ["piper/good"]
    assert [line["voice"] for line in logs if line["event"] == "voice.unusable"] == ["unknown", "broken"]
    tts.close()


def test_a_closed_synthesizer_rejects_texts(tmp_path: Path) -> None:
    tts = PiperTextToSpeech({"one": write_voice(tmp_path)}, threads=1)
    tts.close()
    tts.close()
    with pytest.raises(RuntimeError):
        asyncio.run(tts.synthesize("Hello", NORMAL))


def test_an_installed_voice_is_the_default_of_its_language(tmp_path: Path) -> None:
    network, settings = write_voice(tmp_path, "thorsten", language="de_DE", espeak="de")
    files = {"model.onnx": network.read_bytes(), "config.json": settings.read_bytes()}
    model = model_of(files, name="piper-our-voice", kind="tts", engine="piper", languages=["de-DE"])
    (tmp_path / "models").mkdir()
    (tmp_path / "models/known_models.json").write_text(json.dumps([model.model_dump(mode="json")]))
    _install(ModelStore(tmp_path / "models", [model]), files)
    catalogue = load(tmp_path / "models", stt="pocketsphinx", eot="lexical-end-of-turn")
    voice, name = catalogue.voice(None, "de")
    assert name == "piper/our-voice"
    speech = asyncio.run(voice.synthesize("Guten Tag", VoiceSettings(name, 1.0, 0.5, 8000)))
    assert len(speech.samples) > 2000
    assert catalogue.voice(None, "fr")[1].startswith("espeak-ng/")
    catalogue.close()


def _install(store: ModelStore, files: dict[str, bytes]) -> None:
    """As `trunkline models import` does."""
    (model,) = store.known
    store.folder(model).mkdir(parents=True)
    records = {}
    for name, content in files.items():
        path = store.folder(model) / name
        path.write_bytes(content)
        records[name] = {"size": len(content), "sha256": sha256_of(path).hexdigest(), "origin": "list"}
    manifest = Manifest.model_validate({"model": model.name, "files": records})
    (store.folder(model) / "manifest.json").write_text(manifest.model_dump_json())


def even(settings: VoiceSettings) -> VoiceSettings:
    """With as little noise as possible."""
    return replace(settings, stability=1.0)


def pitch(speech: SynthesizedSpeech) -> float:
    """Hz of the loudest tone."""
    spectrum = np.abs(np.fft.rfft(speech.samples * np.hanning(len(speech.samples))))
    return float(np.argmax(spectrum)) * speech.rate / len(speech.samples)


def level(samples: Samples) -> float:
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))


def silence_after_comma(speech: SynthesizedSpeech) -> float:
    end = speech.words[0].sample_end
    return level(speech.samples[end + 320 : end + 1600])
