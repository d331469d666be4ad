"""The C interface of flite (libflite and its voice libraries), called through ctypes, which releases the GIL.

flite has global state: only one thread may use it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np

from config.errors import ModelError, StartupError
from media.audio_port import Samples

VOICES: Final = ("slt", "rms", "awb", "kal16")
"""Voices of Debian's libflite1 at 16 kHz, the best first."""
SAMPLE_RATE: Final = 16_000
"""Hz."""

_REMEDY: Final = "install the Debian package libflite1"
_PITCH_DEVIATION: Final = b"int_f0_target_stddev"
_WORD_END: Final = b"R:SylStructure.daughtern.daughtern.R:Segment.end"
"""The end of a word's last sound, s: from the word to its last syllable to that one's last segment."""


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


class _Voice(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("features", ctypes.c_void_p))


class _ClusterData(ctypes.Structure):
    """The beginning of `cst_cg_db`, which flite promises to extend only at its end."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("types", ctypes.c_void_p),
        ("num_types", ctypes.c_int),
        ("sample_rate", ctypes.c_int),
        ("f0_mean", ctypes.c_float),
        ("f0_stddev", ctypes.c_float),
    )


@dataclass(frozen=True)
class Token:
    """A token of the text (separated by white space): `name` without the `punctuation` after it, and the end of its
    last word, s; None for a token that is not spoken."""

    name: str
    punctuation: str
    end_s: float | None


@dataclass(frozen=True)
class Utterance:
    """flite's synthesis of a text: mono int16 at `rate` Hz, and the text's tokens in order."""

    samples: Samples
    rate: int
    tokens: list[Token]


_handle, _text, _float = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float
_SIGNATURES: Final[dict[str, tuple[object, list[object]]]] = {
    "flite_init": (ctypes.c_int, []),
    "flite_synth_text": (_handle, [_text, _handle]),
    "flite_feat_set_float": (None, [_handle, _text, _float]),
    "flite_get_param_float": (_float, [_handle, _text, _float]),
    "feat_val": (_handle, [_handle, _text]),
    "val_void": (_handle, [_handle]),
    "utt_wave": (ctypes.POINTER(_Wave), [_handle]),
    "utt_relation": (_handle, [_handle, _text]),
    "relation_head": (_handle, [_handle]),
    "item_next": (_handle, [_handle]),
    "item_daughter": (_handle, [_handle]),
    "item_last_daughter": (_handle, [_handle]),
    "flite_ffeature_string": (_text, [_handle, _text]),
    "flite_ffeature_float": (_float, [_handle, _text]),
    "delete_utterance": (None, [_handle]),
}


class FliteLibrary:
    """flite with its voices, for one thread."""

    def __init__(self) -> None:
        """Load the libraries and every installed voice. Raises `StartupError` when there is none."""
        self._library = _load("libflite.so.1")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype = result
            function.argtypes = arguments
        self._library.flite_init()
        self._voices = {voice: handle for voice in VOICES if (handle := _register(voice))}
        if not self._voices:
            raise StartupError(f"no flite voice can be loaded (libflite_cmu_us_slt.so.1): {_REMEDY}")
        self._deviations = {voice: self._pitch_deviation(handle) for voice, handle in self._voices.items()}

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the installed voices, the best first."""
        return tuple(self._voices)

    def speak(self, text: str, voice: str, stretch: float, pitch_range: float = 1.0) -> Utterance:
        """Synthesize ASCII `text`; `stretch` is a factor of the duration, `pitch_range` a factor of the pitch movement
        around its mean (without effect on `rms`, a voice of another kind). Raises `ModelError`."""
        handle = self._voices[voice]
        features = _features(handle)
        self._library.flite_feat_set_float(features, b"duration_stretch", stretch)
        self._library.flite_feat_set_float(features, _PITCH_DEVIATION, self._deviations[voice] * pitch_range)
        utterance = self._library.flite_synth_text(text.encode("ascii"), handle)
        if not utterance:
            raise ModelError("flite could not synthesize a sentence")
        try:
            wave = self._library.utt_wave(utterance).contents
            samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).astype(np.int16)
            return Utterance(samples, wave.sample_rate, self._tokens(utterance))
        finally:
            self._library.delete_utterance(utterance)

    def _pitch_deviation(self, handle: int) -> float:
        """The standard deviation of a voice's pitch, Hz: from its data, or a feature of an older kind of voice."""
        features = _features(handle)
        data = self._library.feat_val(features, b"cg_db")
        if data:
            cluster = ctypes.cast(self._library.val_void(data), ctypes.POINTER(_ClusterData)).contents
            return float(cluster.f0_stddev)
        return float(self._library.flite_get_param_float(features, _PITCH_DEVIATION, 0.0))

    def _tokens(self, utterance: int) -> list[Token]:
        tokens = []
        item = self._library.relation_head(self._library.utt_relation(utterance, b"Token"))
        while item:
            word = self._library.item_last_daughter(item)
            end = self._library.flite_ffeature_float(word, b"R:Word." + _WORD_END) if word else 0.0
            name, punctuation = self._string(item, b"name"), self._string(item, b"punc")
            # A feature that is not set reads "0".
            tokens.append(Token(name, "" if punctuation == "0" else punctuation, end or None))
            item = self._library.item_next(item)
        return tokens

    def _string(self, item: int, feature: bytes) -> str:
        text: bytes | None = self._library.flite_ffeature_string(item, feature)
        return "" if text is None else text.decode("ascii", "replace")


def _features(handle: int) -> int | None:
    """The features of a voice."""
    features: int | None = ctypes.cast(handle, ctypes.POINTER(_Voice)).contents.features
    return features


def _load(soname: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(soname)
    except OSError as error:
        raise StartupError(f"{soname} cannot be loaded: {_REMEDY}") from error


def _register(voice: str) -> int | None:
    """The handle of a voice, None if its library is not installed."""
    try:
        library = ctypes.CDLL(f"libflite_cmu_us_{voice}.so.1")
    except OSError:  # The voice is not installed.
        return None
    register = getattr(library, f"register_cmu_us_{voice}")
    register.restype = ctypes.c_void_p
    register.argtypes = [ctypes.c_char_p]
    handle: int | None = register(None)
    return handle
