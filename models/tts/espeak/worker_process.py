"""The worker process of espeak-ng: started as a script by `models.tts.espeak.process_pool`, with the standard library
alone, so that it starts within a tenth of a second. `speak LIBRARY` synthesizes with the distribution's library,
`phonemes FOLDER` phonemizes with the library of the package piper-tts in that folder.

Some texts crash espeak-ng with a memory fault, others corrupt its state, and every sentence changes how the next
begins. So each is processed by a fork, which has the library in its initial state: that takes a millisecond, ends no
call, and the same text always has the same result.

Requests and responses are frames on standard input and output: two little-endian uint32, the lengths of the two parts;
a JSON object; bytes. The first response is a greeting, without a request, with what was loaded.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, BinaryIO

SONAME = "libespeak-ng.so.1"
LENGTHS = struct.Struct("<II")
_NICENESS = 5  # A lower priority than that of the audio threads.
_FORK_TIMEOUT_S = 10  # The kernel kills a fork that takes longer.
_SYNCHRONOUS, _BUFFER_MS = 2, 1000
_PHONEME_EVENTS, _DO_NOT_EXIT = 0x0001, 0x8000
_ANY_ENCODING, _UTF8, _IPA, _POSITION_IS_CHARACTER = 0, 1, 2, 1
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_LIST_END, _WORD, _PHONEME = 0, 1, 7
_DEFAULT_RANGE = 50
_PAUSES = (b"_", b"_:", b"_!", b"_::")  # Names of phonemes that are silence.


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("message", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("unused", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)  # int16 samples, their number, events up to one of type _LIST_END


class Espeak:
    """The library. Raises `OSError` when it or its data is missing."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        self.rate = self._library.espeak_Initialize(_SYNCHRONOUS, _BUFFER_MS, None, _PHONEME_EVENTS | _DO_NOT_EXIT)
        if self.rate <= 0:
            raise OSError(f"{library} does not find its data")
        self._samples = array.array("h")
        self._events: list[tuple[int, int, int, bytes]] = []
        self._callback = _Callback(self._on_samples)
        self._library.espeak_SetSynthCallback(self._callback)

    def languages(self) -> list[str]:
        """The first language tag of each voice, in the library's order, without voices of the folder mb/, whose data is
        not a part of espeak-ng."""
        voices, tags = self._library.espeak_ListVoices(None), []
        for index in range(1 << 16):
            if not voices[index]:
                break
            voice = voices[index].contents
            if not voice.identifier.startswith(b"mb/"):
                tags.append(ctypes.string_at(voice.languages + 1).decode())  # The byte before it is a priority.
        # It lists one tag in capitals that it does not accept.
        return list(dict.fromkeys(tag for tag in tags if tag.islower()))

    def data_folder(self) -> Path:
        """The folder of its voices and rules, which it reads when a language is selected."""
        folder = ctypes.c_char_p()
        self._library.espeak_Info.restype = ctypes.c_char_p
        self._library.espeak_Info(ctypes.byref(folder))
        return Path(os.fsdecode(folder.value or b""))

    def greeting(self) -> dict[str, Any]:
        """The sample rate and the languages."""
        return {"rate": self.rate, "languages": self.languages()}

    def handle(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Synthesize the text of a request. Raises `ValueError`."""
        sound, words = self.speak(
            request["text"], request["language"], request["words_per_minute"], request["pitch_range"]
        )
        return {"words": words}, sound

    def speak(
        self, text: str, language: str, words_per_minute: int, pitch_range: float
    ) -> tuple[bytes, list[list[int]]]:
        """Mono int16 at `rate`, and for each word the index of its first character and the sample after its last sound.
        `pitch_range` is the share of the voice's own pitch movement."""
        self._select_voice(language)
        # All of them each time, because parameters persist.
        for parameter, value in ((_RATE, words_per_minute), (_VOLUME, 100), (_PITCH, 50)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._library.espeak_SetParameter(_RANGE, round(_DEFAULT_RANGE * pitch_range), 0)
        del self._samples[:]
        self._events.clear()
        encoded = text.encode()
        status = self._library.espeak_Synth(encoded, len(encoded) + 1, 0, _POSITION_IS_CHARACTER, 0, _UTF8, None, None)
        if status:
            raise ValueError(f"espeak-ng's status is {status}")
        return self._samples.tobytes(), self._word_ends()

    def _select_voice(self, language: str) -> None:
        """Select a voice by the rule of the program espeak-ng: by name, else by language."""
        if self._library.espeak_SetVoiceByName(language.encode()) == 0:
            return
        tag = ctypes.create_string_buffer(language.encode())
        properties = _Voice(languages=ctypes.addressof(tag))
        if self._library.espeak_SetVoiceByProperties(ctypes.byref(properties)) != 0:
            raise ValueError(f"espeak-ng has no voice for {language}")

    def _on_samples(self, samples: Any, count: int, events: Any) -> int:
        """The library's callback with the next samples; 0 continues."""
        if samples and count > 0:
            self._samples.frombytes(ctypes.string_at(samples, 2 * count))
        index = 0
        while events[index].type != _LIST_END:
            event = events[index]
            if event.type in (_WORD, _PHONEME):
                name = bytes(event.name) if event.type == _PHONEME else b""
                if event.type == _PHONEME or event.length:  # A word without characters is the pause of a dash.
                    self._events.append((event.type, event.text_position - 1, event.sample, name))
            index += 1
        return 0

    def _word_ends(self) -> list[list[int]]:
        """A word ends where the next one begins, or the pause before that."""
        words: list[list[int]] = []
        sounding = False
        for kind, position, sample, name in self._events:
            if sounding and (kind == _WORD or name in _PAUSES):
                words[-1][1] = sample
                sounding = False
            if kind == _WORD:
                words.append([position, sample])
            elif words and name not in _PAUSES:
                sounding = True
        if sounding:
            words[-1][1] = len(self._samples)
        return words


class PiperPhonemizer:
    """Piper's own phonemizer: an extension module with an espeak-ng and data of its own
    (https://github.com/OHF-Voice/piper1-gpl). Raises `OSError` when it cannot be loaded."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        module = os.path.join(folder, "espeakbridge.so")
        try:
            spec = spec_from_file_location("espeakbridge", module)
            if spec is None or spec.loader is None:
                raise ImportError("it is not a module")
            self._bridge = module_from_spec(spec)
            spec.loader.exec_module(self._bridge)
            self._bridge.initialize(os.path.join(folder, "espeak-ng-data"))
            # The module does not return the source text of a clause; its library does.
            self._library = ctypes.CDLL(module)
            self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        except (ImportError, RuntimeError, AttributeError) as error:
            raise OSError(f"{module}: {error}") from error

    def data_folder(self) -> Path:
        """The folder of its voices and rules."""
        return self._folder

    def greeting(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def handle(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The clauses of a text: phonemes in IPA, the punctuation that ended it ("" for none), whether it ends a
        sentence, and the source text, which includes what had to be read to find its end. Raises `ValueError`."""
        text, language = request["text"], request["language"]
        try:
            self._bridge.set_voice(language)
        except RuntimeError as error:
            raise ValueError(f"espeak-ng has no voice for {language}") from error
        clauses = self._bridge.get_phonemes(text)
        return {
            "clauses": [[*clause, read] for clause, read in zip(clauses, self._source_texts(text), strict=True)]
        }, b""

    def _source_texts(self, text: str) -> list[str]:
        """The source text of each clause."""
        encoded = text.encode()
        buffer = ctypes.create_string_buffer(encoded)
        start = ctypes.addressof(buffer)
        position, before, clauses = ctypes.c_void_p(start), 0, []
        while position.value is not None:
            self._library.espeak_TextToPhonemes(ctypes.byref(position), _ANY_ENCODING, _IPA)
            end = len(encoded) if position.value is None else position.value - start
            clauses.append(encoded[before:end].decode(errors="ignore"))
            before = end
        return clauses


_ENGINES: dict[str, Callable[[str], Espeak | PiperPhonemizer]] = {"speak": Espeak, "phonemes": PiperPhonemizer}


def handle(espeak: Espeak | PiperPhonemizer, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Process a request; a `ValueError` becomes an error response."""
    try:
        return espeak.handle(request)
    except ValueError as error:
        return {"error": str(error)}, b""


def main() -> None:
    """Process requests until the input ends."""
    # Not the server's signals: speech continues while the server drains. The process ends with its input.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.nice(_NICENESS)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        espeak = _ENGINES[sys.argv[1]](sys.argv[2])
    except OSError as error:
        _write(answers, {"error": str(error)}, b"")
        return
    greeting = espeak.greeting()
    _enter_sandbox(espeak.data_folder())
    _write(answers, greeting, b"")
    while lengths := requests.read(LENGTHS.size):
        request = json.loads(requests.read(LENGTHS.unpack(lengths)[0]))
        fork = os.fork()
        if not fork:
            signal.alarm(_FORK_TIMEOUT_S)
            reply = handle(espeak, request)
            signal.alarm(0)
            _write(answers, *reply)
            os._exit(0)
        _, status = os.waitpid(fork, 0)
        if status:  # The fork has written no response.
            _write(answers, {"error": f"espeak-ng crashed over a sentence (status {status})"}, b"")


def _enter_sandbox(data_folder: Path) -> None:
    """Texts of callers and models are untrusted input to C code: from here on the process may read its voices, compute
    and fork."""
    sys.path.insert(0, str(Path(__file__).parents[3]))  # a script has no package path
    from config import sandbox

    sandbox.enter([data_folder], may_fork=True, read_all_without_landlock=True)


def _write(stream: BinaryIO, header: dict[str, Any], body: bytes) -> None:
    encoded = json.dumps(header).encode()
    stream.write(LENGTHS.pack(len(encoded), len(body)) + encoded + body)
    stream.flush()


if __name__ == "__main__":
    main()
