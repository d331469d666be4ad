"""Decodes uploaded sound files to samples, by libsndfile, in a process of its own.

What strangers send is parsed by C code. A fault in it ends a process that carries no calls; the kernel bounds its
memory and its time, and lets it open, send and start nothing (`config.sandbox`); what the codecs print to standard
error stays out of our log.
The process: `python -m media.background.decoder`, the file on standard input, int16 samples on standard output. With
exit status _REFUSED the output is the sentence for the one who sent the file.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
from typing import Final

import numpy as np
import soundfile
import soxr
import structlog
from numpy.typing import NDArray

from config import sandbox
from config.sandbox import rlimits
from media.audio_port import Samples
from media.background.files import MAX_SECONDS, InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE

RATES: Final = range(4_000, 192_001)
"""Sample rates that are taken, Hz."""
MAX_CHANNELS: Final = 8
"""They are mixed down to one."""

_CODECS: Final = {
    "WAV": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "WAVEX": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "MP3": {"MPEG_LAYER_III", "MPEG_LAYER_II"},
    "OGG": {"VORBIS", "OPUS"},
    "FLAC": {"PCM_S8", "PCM_16", "PCM_24"},
}
"""By libsndfile's names. It knows twenty more formats; nobody needs them here, and each is more that can break."""
_LOUDEST: Final = 2.0**31
"""Full scale is 1; floating point files exist that hold integers."""
_BLOCK_SAMPLES: Final = 1 << 19
"""Decoded at once, all channels together."""
_ROOM_BYTES: Final = 256 << 20
"""Memory that decoding may take."""
_PROCESSOR_S: Final = 20
_OPEN_FILES: Final = 16
_WARM_UP_FRAMES: Final = 100
_DEADLINE_S: Final = 60.0
_REFUSED: Final = 65
_FATAL_SIGNALS: Final = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU, signal.SIGKILL,
}  # fmt: skip
_PROGRAM: Final = (sys.executable, "-P", "-m", "media.background.decoder")
_log = structlog.get_logger()


def decode(data: bytes) -> Samples:
    """The sound of a WAV, MP3, Ogg (Vorbis, Opus) or FLAC file as mono int16 at SAMPLE_RATE: without its mean, and,
    where it is louder than full scale, brought down as a whole.

    Blocks (0.3 s for a short file, up to _DEADLINE_S): call it on a thread; it waits without the interpreter lock. Each
    call takes a process of up to 200 MB: bound how many run at once. Raises `InvalidSound`.
    """
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        # A group of its own: Ctrl-C begins to drain the server, the upload is finished.
        done = subprocess.run(
            _PROGRAM,
            input=data,
            capture_output=True,
            timeout=_DEADLINE_S,
            env=environment,
            process_group=0,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidSound("The file takes too long to decode") from error
    if done.returncode == 0:
        return np.frombuffer(done.stdout, np.int16).copy()
    if done.returncode == _REFUSED:
        raise InvalidSound(done.stdout.decode())
    if done.returncode == -signal.SIGSYS:
        _log.warning("sound.decoder_killed", signal="SIGSYS", bytes=len(data))
        raise InvalidSound("Decoding was stopped: the file made the decoder do what it may not")
    if -done.returncode in _FATAL_SIGNALS:
        _log.warning("sound.decoder_killed", signal=signal.Signals(-done.returncode).name, bytes=len(data))
        raise InvalidSound("The file cannot be decoded")
    last_words = done.stderr[-2000:].decode(errors="replace").strip()
    raise RuntimeError(f"the sound decoder ended with status {done.returncode}: {last_words}")


def read(data: bytes) -> Samples:
    """`decode` in this process, without bounds on time and memory other than MAX_SECONDS of sound."""
    if not data:
        raise InvalidSound("The file is empty")
    if not _has_known_signature(data):
        raise InvalidSound("The file is not WAV, MP3, Ogg or FLAC")
    try:
        with _Stream(io.BytesIO(data)) as file:
            _check(file)
            return _normalized(_resampled(file))
    except soundfile.SoundFileError as error:
        raise InvalidSound("The file is damaged or of a kind that cannot be decoded") from error


class _Stream(soundfile.SoundFile):  # type: ignore[misc]  # the library has no types
    """A file that is read once from beginning to end. `soundfile` seeks after each read where a file says that it can,
    and libsndfile cannot in a FLAC file whose header leaves the length open."""

    def seekable(self) -> bool:
        return False


def _has_known_signature(data: bytes) -> bool:
    """True if the first bytes are those of one of our formats, so that no other parser of libsndfile sees them."""
    if data.startswith(b"RIFF"):
        return data[8:12] == b"WAVE"
    # An MPEG frame begins with eleven ones.
    mpeg = len(data) > 1 and data[0] == 0xFF and data[1] >= 0xE0
    return mpeg or data.startswith((b"ID3", b"OggS", b"fLaC"))


def _check(file: _Stream) -> None:
    """Raises `InvalidSound` for what the header alone forbids."""
    if file.subtype not in _CODECS.get(file.format, ()):
        raise InvalidSound(f"{file.format} with {file.subtype} is not supported")
    if file.samplerate not in RATES:
        raise InvalidSound(f"The sample rate must be {RATES[0]} to {RATES[-1]} Hz, not {file.samplerate}")
    if file.channels > MAX_CHANNELS:
        raise InvalidSound(f"The sound has {file.channels} channels, more than {MAX_CHANNELS}")


def _resampled(file: _Stream) -> NDArray[np.float64]:
    """Everything in the file, mixed down, at SAMPLE_RATE. Headers lie about the length: what comes out is counted."""
    stream = soxr.ResampleStream(file.samplerate, SAMPLE_RATE, 1, dtype="float32")
    parts: list[NDArray[np.float32]] = []
    frames = 0
    while len(block := file.read(_BLOCK_SAMPLES // file.channels, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > MAX_SECONDS * file.samplerate:
            raise InvalidSound(f"The sound is longer than {MAX_SECONDS} seconds")
        # Not a number is not less either.
        if not np.abs(block).max() <= _LOUDEST:
            raise InvalidSound("The file holds samples that are no numbers or beyond all measure")
        parts.append(stream.resample_chunk(block.mean(axis=1)))
    parts.append(stream.resample_chunk(np.zeros(0, np.float32), last=True))
    return np.concatenate(parts).astype(np.float64)


def _normalized(sound: NDArray[np.float64]) -> Samples:
    """Without what no ear hears but a start or an end turns into a thump; at most full scale, without distortion."""
    if len(sound) == 0:
        raise InvalidSound("The file holds no sound")
    sound -= sound.mean()
    loudest = float(np.abs(sound).max())
    return np.rint(sound * min(32768.0, 32767 / max(loudest, 1e-9))).astype(np.int16)


def _bound_resources() -> None:
    """From here on the kernel refuses memory over _ROOM_BYTES more than now and ends the process after _PROCESSOR_S of
    computing; calls go first."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    rlimits.set_rlimits(now + _ROOM_BYTES, _PROCESSOR_S, _OPEN_FILES)


def _warm_up() -> None:
    """Decode a sound of our own: what C calls back lies in executable memory, which is made with the first one
    and which nobody gets later."""
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(_WARM_UP_FRAMES, np.int16), RATES[0], format="WAV")
    read(silence.getvalue())


def _main() -> int:
    _bound_resources()
    _warm_up()
    sandbox.enter()
    try:
        answer, status = read(sys.stdin.buffer.read()).tobytes(), 0
    except InvalidSound as refusal:
        answer, status = str(refusal).encode(), _REFUSED
    except MemoryError:
        answer, status = b"The file takes too much memory to decode", _REFUSED
    sys.stdout.buffer.write(answer)
    return status


if __name__ == "__main__":
    sys.exit(_main())
