"""The C interface of the pocketsphinx wheel, called through ctypes.

The wheel's Python binding holds the GIL while it decodes (up to 80 ms for 250 ms of audio). Its shared object exports
the whole C interface, and ctypes releases the GIL for each call: so decoding runs beside Python."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from config.errors import ModelError, StartupError
from media.audio_port import Samples

RATE: Final = 16000
"""Sample rate of the acoustic model, Hz."""

_REMEDY: Final = "install the Python package pocketsphinx 5 (set [models] stt to another recognizer to do without)"
_MODEL_FILES: Final = (
    *("en-us.lm.bin", "cmudict-en-us.dict", "en-us/mdef", "en-us/means", "en-us/variances", "en-us/sendump"),
    *("en-us/transition_matrices", "en-us/noisedict", "en-us/feat.params"),
)
_NON_WORD: Final = re.compile(r"^(<.*>|\[.*\]|\+\+.*\+\+)$")
_ALTERNATE: Final = re.compile(r"\(\d+\)$")

_handle, _text, _int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_int_pointer = ctypes.POINTER(ctypes.c_int)
_FRAMES_PER_S: Final = 100
_SIGNATURES: Final[dict[str, tuple[object, list[object]]]] = {
    "err_set_loglevel_str": (_text, [_text]),
    "ps_config_init": (_handle, [_handle]),
    "ps_config_set_str": (_handle, [_handle, _text, _text]),
    "ps_config_free": (_int, [_handle]),
    "ps_init": (_handle, [_handle]),
    "ps_free": (_int, [_handle]),
    "ps_reinit_feat": (_int, [_handle, _handle]),
    "ps_start_utt": (_int, [_handle]),
    "ps_process_raw": (_int, [_handle, _handle, ctypes.c_size_t, _int, _int]),
    "ps_end_utt": (_int, [_handle]),
    "ps_get_hyp": (_text, [_handle, _handle]),
    "ps_seg_iter": (_handle, [_handle]),
    "ps_seg_next": (_handle, [_handle]),
    "ps_seg_word": (_text, [_handle]),
    "ps_seg_frames": (None, [_handle, _int_pointer, _int_pointer]),
    "ps_get_cmn": (_text, [_handle, _int]),
    "ps_set_cmn": (_int, [_handle, _text]),
}


def clean_words(hypothesis: str) -> str:
    """The spoken words alone: without `<sil>`, `[NOISE]` or `++UM++`, and `the` for the dictionary's `the(2)`."""
    return " ".join(_ALTERNATE.sub("", word) for word in hypothesis.split() if not _NON_WORD.match(word))


def load_library() -> ctypes.CDLL:
    """The wheel's shared object with typed functions. Raises `StartupError` when it is missing or incompatible."""
    try:
        import pocketsphinx._pocketsphinx as extension
    except ImportError as error:
        raise StartupError(f"pocketsphinx cannot be loaded ({error}): {_REMEDY}") from error
    library = ctypes.CDLL(extension.__file__)
    for name, (result, arguments) in _SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise StartupError(f"this build of pocketsphinx does not export {name}: {_REMEDY}") from error
        function.restype = result
        function.argtypes = arguments
    library.err_set_loglevel_str(b"FATAL")
    return library


def model_path() -> Path:
    """Folder of the US English models in the wheel. Raises `StartupError` when a file is missing or has the wrong size,
    over which the library would exit the process without a message."""
    import pocketsphinx

    folder = Path(pocketsphinx.get_model_path()) / "en-us"
    sizes = _sizes_as_installed()
    for name in _MODEL_FILES:
        file = folder / name
        if not file.is_file():
            raise StartupError(f"pocketsphinx's model file {file} is missing: {_REMEDY}")
        if sizes.get(name, file.stat().st_size) != file.stat().st_size:
            raise StartupError(f"pocketsphinx's model file {file} is damaged: {_REMEDY}")
    return folder


def _sizes_as_installed() -> dict[str, int]:
    """The model files' sizes by the wheel's file list, bytes; empty without a list."""
    marker = "model/en-us/"
    files = importlib.metadata.files("pocketsphinx") or []
    return {
        str(file).partition(marker)[2]: file.size for file in files if marker in str(file) and file.size is not None
    }


class Decoder:
    """One recognizer for mono int16 audio at `RATE`. For one thread at a time; every call releases the GIL."""

    def __init__(self, library: ctypes.CDLL, options: Mapping[str, str]) -> None:
        """`options` are pocketsphinx's own settings. Loading takes about 0.25 s. Raises `StartupError`."""
        self._library = library
        self._handle: int | None = None
        config = library.ps_config_init(None)
        for key, value in options.items():
            if not library.ps_config_set_str(config, key.encode(), value.encode()):
                library.ps_config_free(config)
                raise StartupError(f"pocketsphinx does not know the setting {key}: {_REMEDY}")
        # ps_init owns the configuration from now on: ps_free frees it.
        self._handle = library.ps_init(config)
        if self._handle is None:
            raise StartupError(f"pocketsphinx could not load its models: {_REMEDY}")

    def start(self, channel_mean: str | None) -> None:
        """Begin an utterance; `channel_mean` is the last `channel_mean()` of the same caller, None for a new one. No
        state of the caller before stays."""
        # A new front end: the old one's estimate of the background noise outlives the utterance.
        self._check(self._library.ps_reinit_feat(self._handle, None), "reset its front end")
        if channel_mean is not None:
            self._check(self._library.ps_set_cmn(self._handle, channel_mean.encode()), "set the channel's mean")
        self._check(self._library.ps_start_utt(self._handle), "start an utterance")

    def continue_utterance(self) -> None:
        """Begin the next utterance of the same caller, directly after the last one. Raises `ModelError`."""
        self._check(self._library.ps_start_utt(self._handle), "start an utterance")

    def process(self, samples: Samples) -> None:
        """Decode `int16[n]` at `RATE`. Raises `ModelError`."""
        block = np.ascontiguousarray(samples, dtype=np.int16)
        done = self._library.ps_process_raw(self._handle, block.ctypes.data, len(block), 0, 0)
        self._check(done, "decode")

    def end(self) -> None:
        """End the utterance, which makes `hypothesis` final. Raises `ModelError`."""
        self._check(self._library.ps_end_utt(self._handle), "end an utterance")

    def hypothesis(self) -> str:
        """The words so far, cleaned; "" for none."""
        text: bytes | None = self._library.ps_get_hyp(self._handle, None)
        return clean_words(text.decode()) if text else ""

    def word_starts_s(self) -> list[float]:
        """The beginnings of the words of `hypothesis`, s after the first sample of the utterance, once it has ended.
        Takes 0.3 ms for a sentence."""
        starts: list[float] = []
        first, last = ctypes.c_int(), ctypes.c_int()
        segment: int | None = self._library.ps_seg_iter(self._handle)
        while segment is not None:  # the iterator frees itself at its end
            self._library.ps_seg_frames(segment, first, last)
            if clean_words(self._library.ps_seg_word(segment).decode()):
                starts.append(first.value / _FRAMES_PER_S)
            segment = self._library.ps_seg_next(segment)
        return starts

    def channel_mean(self) -> str:
        """The running cepstral mean (13 numbers), which characterizes the caller's line and microphone."""
        text: bytes = self._library.ps_get_cmn(self._handle, 0)
        return text.decode()

    def free(self) -> None:
        """Free the memory (90 MB). Idempotent."""
        if self._handle is not None:
            self._library.ps_free(self._handle)
            self._handle = None

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result < 0:
            raise ModelError(f"pocketsphinx could not {what}")
