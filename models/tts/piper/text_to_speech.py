"""Text to speech with Piper's voices: natural speech, several times faster than real time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import soxr
import structlog

from config.errors import LoadCheckError, ModelError, ModelFileError, StartupError
from media.audio_port import Samples
from models.model_files.known_models import KnownModel
from models.model_files.load_checker import LoadChecker, log_left_out
from models.model_files.store import ModelStore, sha256_of
from models.protocols import CostSource, SynthesizedSpeech, VoiceDescription, VoiceSettings
from models.runtime.cpu_memory_limits import available_cores
from models.runtime.thread_priority import lower_thread_priority
from models.tts.piper.load_check import voice_candidate
from models.tts.piper.phoneme_ids import PhonemeIds, SentencePhonemes
from models.tts.piper.phonemizer import Phonemizer
from models.tts.piper.voice import CancellableRun, NetworkOutput, Scales, VitsNetwork, check_network
from models.tts.piper.voice_config import VoiceConfig, read_config
from models.tts.piper.vowel_restoration import diacritize, hebrew_clause
from models.tts.piper.word_timing import SentenceAudio, word_timings
from models.tts.prosody import pitch_range
from models.tts.speed import TtsSpeed
from models.tts.trimming import trim_silence

NAME: Final = "piper"
MAX_LOADED_NETWORKS: Final = 4
"""Maximum number of networks in memory, 100 MB each; the least recently used is evicted."""
_NICENESS: Final = 5
"""Synthesis has a lower priority than the audio threads."""
_PEAK: Final = 0.9
"""Peak of each sentence as a share of full scale: Piper normalizes the level too; the rest is headroom for
resampling."""
_MIN_PEAK: Final = 0.01
"""A more silent sentence is amplified as if it had this peak."""
_TEST_SENTENCE: Final = "One moment please, I will have a look."

_ARABIC: Final = "ar"
"""espeak-ng's voice for which Piper restores vowels."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class _Voice:
    """A voice's files; `version` changes when they do."""

    path: Path
    settings: Path
    config: VoiceConfig
    ids: PhonemeIds
    version: str


class PiperTextToSpeech:
    """All Piper voices for all calls. Voice names are `piper/MODEL`, of a model with several speakers
    `piper/MODEL/SPEAKER`; MODEL is the model's name without a leading `piper-`."""

    cost_source: CostSource = "measured on load"

    name = NAME

    def __init__(
        self, voices: dict[str, tuple[Path, Path]], threads: int | None = None, load_checker: LoadChecker | None = None
    ) -> None:
        """`voices` are network and settings by model name, the best first. `threads` sentences are synthesized in
        parallel, by default one for each core but one. A voice with invalid files is left out, with a line in the log.
        The first one is loaded and timed now, which takes seconds; the others on demand. `load_checker` checks each
        before it is loaded. Raises `StartupError` when none is left, `LoadCheckError` when one of them failed its load
        check."""
        self._load_checker = load_checker
        self._load_check_error: LoadCheckError | None = None
        self._voices, self._failures = _read_voices(voices)
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {model: threading.Lock() for model in self._voices}
        self._networks: OrderedDict[str, VitsNetwork] = OrderedDict()
        self._concurrency = threads or max(1, int(available_cores()) - 1)
        self._phonemizer = Phonemizer(min(2, self._concurrency))
        self._threads = ThreadPoolExecutor(
            self._concurrency, thread_name_prefix=NAME, initializer=lower_thread_priority, initargs=(_NICENESS,)
        )
        try:
            self.speed: Final = self._measure_first_voice()
        except StartupError:
            self.close()
            raise
        self._names = _names(self._voices)

    def voices(self) -> Sequence[str]:
        """The installed voices, the best first."""
        return tuple(self._names)

    def language_of(self, voice: str) -> str | None:
        """The BCP 47 tag in the voice's settings."""
        known = self._names.get(voice)
        return self._voices[known[0]].config.language_tag if known else None

    def describe(self, voice: str) -> VoiceDescription:
        """See `DescribesVoices`: the quality and the rate in the voice's settings."""
        known = self._names.get(voice)
        if known is None:
            return VoiceDescription(NAME)
        audio = self._voices[known[0]].config.audio
        return VoiceDescription(NAME, audio.quality, audio.sample_rate)

    def voice_version(self, voice: str) -> str:
        """The SHA-256 of the voice's files; see `DiskCacheable`."""
        known = self._names.get(voice)
        return self._voices[known[0]].version if known else ""

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Synthesize one or several sentences. Cancelled, it stops within a few milliseconds. Raises `ModelError`."""
        if settings.voice not in self._names:
            raise ModelError(f"there is no voice {settings.voice}")
        if not any(character.isalnum() for character in text):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        run = CancellableRun()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._speak, text, settings, run)
        except asyncio.CancelledError:
            run.stop()
            raise

    def close(self) -> None:
        """Cancel queued texts; the threads end with their current sentences. Does not wait. Idempotent."""
        if self._load_checker is not None:
            self._load_checker.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._phonemizer.close()
        with self._lock:
            self._networks.clear()

    def _speak(self, text: str, settings: VoiceSettings, run: CancellableRun) -> SynthesizedSpeech:
        model, speaker = self._names[settings.voice]
        voice = self._voices[model]
        network = self._network(model)
        rate = voice.config.audio.sample_rate
        pieces = [
            SentenceAudio(_normalize_peak(sound), rate, sentence, sound.id_samples)
            for sentence in self._sentences(voice, text, model)
            if (sound := self._run_network(network, sentence, voice.config, settings, speaker, run)) is not None
        ]
        if not pieces:
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        samples = np.concatenate([piece.samples for piece in pieces])
        part = trim_silence(samples, rate)
        samples = samples[part]
        if len(samples) and rate != settings.rate:
            samples = soxr.resample(samples, rate, settings.rate)
        return SynthesizedSpeech(
            text, samples, settings.rate, word_timings(text, pieces, part.start, samples, settings.rate)
        )

    def _run_network(
        self,
        network: VitsNetwork,
        sentence: SentencePhonemes,
        config: VoiceConfig,
        settings: VoiceSettings,
        speaker: int,
        run: CancellableRun,
    ) -> NetworkOutput | None:
        """The network's output for a sentence; None if the run was cancelled."""
        if run.stopped:
            return None
        defaults, movement = config.inference, pitch_range(settings.stability)
        scales = Scales(
            defaults.noise_scale * movement, defaults.length_scale / settings.speed, defaults.noise_w * movement
        )
        return network.speak(sentence.ids, scales, speaker, run)

    def _sentences(self, voice: _Voice, text: str, model: str) -> list[SentencePhonemes]:
        unknown = len(voice.ids.unknown)
        sentences = prepare_sentences(text, voice.config, voice.ids, self._phonemizer)
        if len(voice.ids.unknown) > unknown:
            _log.warning("voice.phonemes_unknown", voice=model, phonemes=sorted(voice.ids.unknown))
        return sentences

    def _network(self, model: str) -> VitsNetwork:
        """The network, loaded now if necessary, without delaying other voices. Raises `ModelError`."""
        with self._loading[model]:
            with self._lock:
                if model in self._networks:
                    self._networks.move_to_end(model)
                    return self._networks[model]
            began = time.monotonic()
            voice = self._voices[model]
            self._check_load(model, voice)
            network = VitsNetwork(voice.path, voice.config, 1)
            _log.info("voice.loaded", voice=model, seconds=round(time.monotonic() - began, 2))
            with self._lock:
                self._networks[model] = network
                while len(self._networks) > MAX_LOADED_NETWORKS:
                    dropped, _ = self._networks.popitem(last=False)
                    _log.info("voice.dropped", voice=dropped)
            return network

    def _check_load(self, model: str, voice: _Voice) -> None:
        """Raises `ModelError` for a voice that this process must not load."""
        if self._load_checker is None:
            return
        try:
            self._load_checker.require(voice_candidate(voice.path, voice.settings, model))
        except StartupError as error:
            if isinstance(error, LoadCheckError):
                self._load_check_error = error
            raise ModelError(error.message) from error

    def _measure_first_voice(self) -> TtsSpeed:
        """Leave out voices that fail, and time the first that works. Raises `StartupError`."""
        for model, voice in [*self._voices.items()]:
            try:
                self._sentences(voice, _TEST_SENTENCE, model)
            except ModelError as error:
                self._leave_out(model, error)
        while self._voices:
            model = next(iter(self._voices))
            try:
                return self._measure(model)
            except ModelError as error:
                self._leave_out(model, error)
        if self._load_check_error is not None:
            raise self._load_check_error
        raise StartupError("; ".join(self._failures) or "there is no Piper voice: run `trunkline models pull`")

    def _leave_out(self, model: str, error: ModelError) -> None:
        del self._voices[model]
        self._failures.append(f"the voice {model} cannot speak ({error.message}): `trunkline models verify {model}`")
        if isinstance(error.__cause__, LoadCheckError):
            log_left_out("tts", error.__cause__)
        else:
            _log.warning("voice.unusable", voice=model, error=error.message)

    def _measure(self, model: str) -> TtsSpeed:
        """Time a voice with the second of two sentences, because the first one warms it up."""
        self._names = _names({model: self._voices[model]})
        settings = VoiceSettings(self.voices()[0], 1.0, 0.5, 8000)
        took, seconds = 0.0, 1.0
        for _ in range(2):
            began = time.perf_counter()
            speech = self._threads.submit(self._speak, _TEST_SENTENCE, settings, CancellableRun()).result()
            took, seconds = time.perf_counter() - began, max(0.1, len(speech.samples) / speech.rate)
        return TtsSpeed(took / seconds, took * 1000, self._concurrency)


def prepare_sentences(
    text: str, config: VoiceConfig, ids: PhonemeIds, phonemizer: Phonemizer
) -> list[SentencePhonemes]:
    """The network's input for a text, prepared as Piper does for the voice's phoneme type. Raises `ModelError`."""
    if config.phoneme_type == "text":
        return ids.character_sentences(text)
    if config.phoneme_type == "hebrew":
        return ids.sentences(text, [hebrew_clause(text)])
    if config.espeak.voice != _ARABIC:
        return ids.sentences(text, phonemizer.clauses(text, config.espeak.voice))
    with_vowels = diacritize(text)
    return [
        SentencePhonemes(each.ids, [replace(word, char_end=with_vowels.origin[word.char_end]) for word in each.words])
        for each in ids.sentences(with_vowels.text, phonemizer.clauses(with_vowels.text, _ARABIC))
    ]


def open_piper(store: ModelStore, models: Sequence[KnownModel]) -> PiperTextToSpeech:
    """The installed Piper voices as one synthesizer. Raises `StartupError`."""
    try:
        return PiperTextToSpeech(
            {model.name: (store.path(model, "model"), store.path(model, "config")) for model in models},
            load_checker=LoadChecker(store.directory),
        )
    except ModelFileError as error:
        raise StartupError(error.message) from error


def _read_voices(voices: dict[str, tuple[Path, Path]]) -> tuple[dict[str, _Voice], list[str]]:
    """The voices with valid files, and the errors of the others."""
    readable: dict[str, _Voice] = {}
    failures: list[str] = []
    for model, (network, settings) in voices.items():
        try:
            config = read_config(settings)
            check_network(network, config)
            version = f"{sha256_of(network).hexdigest()} {sha256_of(settings).hexdigest()}"
        except ValueError as error:
            failures.append(str(error))
            _log.warning("voice.unusable", voice=model, error=str(error))
        else:
            readable[model] = _Voice(
                network, settings, config, PhonemeIds(config.phoneme_id_map, config.vowel_clusters or ()), version
            )
    return readable, failures


def _names(voices: dict[str, _Voice]) -> dict[str, tuple[str, int]]:
    """Models and speaker ids by voice name."""
    return {
        "/".join([NAME, _short_name(model, voices), *([speaker] if speaker else [])]): (model, number)
        for model, voice in voices.items()
        for speaker, number in (voice.config.speakers or {"": 0}).items()
    }


def _short_name(model: str, models: Collection[str]) -> str:
    """The model's part of its voices' names: without the prefix, if no other model has that name."""
    plain = model.removeprefix(f"{NAME}-")
    return model if plain in models else plain


def _normalize_peak(sound: NetworkOutput) -> Samples:
    peak = max(_MIN_PEAK, float(np.abs(sound.samples).max(initial=0)))
    normalized: Samples = np.rint(sound.samples * (_PEAK * 32767 / peak)).astype(np.int16)
    return normalized
