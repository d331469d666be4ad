"""Decodes sound files of users to samples, by libsndfile, in a sandboxed process.

They are untrusted input to C code. A fault in it ends a process that carries no calls; the kernel limits its memory and
CPU time, and denies it opening, sending and starting anything (`config.sandbox`); what the codecs print to standard
error stays out of our log.
The process: `python -m media.background.decoder MAX_SECONDS`, the file on standard input, int16 samples on standard
output. With exit status _EXIT_INVALID the output is an error message for the client."""

from __future__ import annotations

import io
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

from config import background_process, sandbox
from config.sandbox import rlimits
from media.audio_port import Samples
from media.background.files import MAX_SECONDS, InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE

RATES: Final = range(4_000, 192_001)
"""Sample rates that are accepted, Hz."""
MAX_CHANNELS: Final = 8
"""Channels are mixed down to one."""

_CODECS: Final = {
    "WAV": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "WAVEX": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "MP3": {"MPEG_LAYER_III", "MPEG_LAYER_II"},
    "OGG": {"VORBIS", "OPUS"},
    "FLAC": {"PCM_S8", "PCM_16", "PCM_24"},
}
"""Codecs that are accepted for each container, by libsndfile's names. It knows twenty more formats; each would be
further attack surface without a use here."""
_MAX_AMPLITUDE: Final = 2.0**31
"""Largest absolute sample value. Full scale is 1; some floating point files hold integers."""
_BLOCK_SAMPLES: Final = 1 << 19
"""Samples decoded at once, all channels together."""
_MEMORY_LIMIT_BYTES: Final = 256 << 20
"""Memory that decoding may take in addition to that of the idle process."""
_CPU_LIMIT_S: Final = 20
_MAX_OPEN_FILES: Final = 16
_WARM_UP_FRAMES: Final = 100
_TIMEOUT_S: Final = 60.0
_EXIT_INVALID: Final = 65
_FATAL_SIGNALS: Final = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU, signal.SIGKILL,
}  # fmt: skip
_PROGRAM: Final = (sys.executable, "-P", "-m", "media.background.decoder")
_log = structlog.get_logger()


def decode(data: bytes, max_seconds: int = MAX_SECONDS) -> Samples:
    """The audio of a WAV, MP3, Ogg (Vorbis, Opus) or FLAC file as mono int16 at SAMPLE_RATE, without its DC offset, and
    scaled down if it exceeds full scale; `max_seconds` of it at most.

    Blocks (0.3 s for a short file, up to _TIMEOUT_S) without the interpreter lock: call it on a thread. Each call takes
    a process of up to 200 MB: limit the number of concurrent calls. Raises `InvalidSound`."""
    try:
        # A process group of its own: Ctrl-C starts the drain of the server, and this upload still completes.
        done = subprocess.run(
            (*_PROGRAM, str(max_seconds)),
            input=data,
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=background_process.environment() | {"OPENBLAS_NUM_THREADS": "1"},
            process_group=0,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidSound("The file takes too long to decode") from error
    if done.returncode == 0:
        return np.frombuffer(done.stdout, np.int16).copy()
    if done.returncode == _EXIT_INVALID:
        raise InvalidSound(done.stdout.decode())
    if done.returncode == -signal.SIGSYS:
        _log.warning("sound.decoder_killed", signal="SIGSYS", bytes=len(data))
        raise InvalidSound("Decoding was stopped: the file made the decoder do what it may not")
    if -done.returncode in _FATAL_SIGNALS:
        _log.warning("sound.decoder_killed", signal=signal.Signals(-done.returncode).name, bytes=len(data))
        raise InvalidSound("The file cannot be decoded")
    stderr_tail = done.stderr[-2000:].decode(errors="replace").strip()
    raise RuntimeError(f"the sound decoder ended with status {done.returncode}: {stderr_tail}")


def decode_in_process(data: bytes, max_seconds: int = MAX_SECONDS) -> Samples:
    """`decode` in this process, without a sandbox; the only limit is `max_seconds` of audio."""
    if not data:
        raise InvalidSound("The file is empty")
    if not _has_known_signature(data):
        raise InvalidSound("The file is not WAV, MP3, Ogg or FLAC")
    try:
        with _Stream(io.BytesIO(data)) as file:
            _check_header(file)
            return _normalized(_resampled(file, max_seconds))
    except soundfile.SoundFileError as error:
        raise InvalidSound("The file is damaged or of a kind that cannot be decoded") from error


class _Stream(soundfile.SoundFile):  # type: ignore[misc]  # the library has no types
    """A file that is read once from beginning to end. `soundfile` seeks after each read of a file that claims to be
    seekable; libsndfile cannot seek in a FLAC file whose header leaves the length open."""

    def seekable(self) -> bool:
        return False


def _has_known_signature(data: bytes) -> bool:
    """True if the first bytes are those of an accepted format, so that libsndfile's other parsers are not reached."""
    if data.startswith(b"RIFF"):
        return data[8:12] == b"WAVE"
    # An MPEG frame begins with eleven ones.
    mpeg = len(data) > 1 and data[0] == 0xFF and data[1] >= 0xE0
    return mpeg or data.startswith((b"ID3", b"OggS", b"fLaC"))


def _check_header(file: _Stream) -> None:
    """Raises `InvalidSound` for a format, rate or number of channels that is not accepted."""
    if file.subtype not in _CODECS.get(file.format, ()):
        raise InvalidSound(f"{file.format} with {file.subtype} is not supported")
    if file.samplerate not in RATES:
        raise InvalidSound(f"The sample rate must be {RATES[0]} to {RATES[-1]} Hz, not {file.samplerate}")
    if file.channels > MAX_CHANNELS:
        raise InvalidSound(f"The sound has {file.channels} channels, more than {MAX_CHANNELS}")


def _resampled(file: _Stream, max_seconds: int) -> NDArray[np.float32]:
    """The whole file, mixed down, at SAMPLE_RATE. A header may state a wrong length: the decoded frames are counted."""
    stream = soxr.ResampleStream(file.samplerate, SAMPLE_RATE, 1, dtype="float32")
    parts: list[NDArray[np.float32]] = []
    frames = 0
    while len(block := file.read(_BLOCK_SAMPLES // file.channels, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > max_seconds * file.samplerate:
            raise InvalidSound(f"The sound is longer than {max_seconds} seconds")
        # "not <=" instead of ">", because every comparison with NaN is False.
        if not np.abs(block).max() <= _MAX_AMPLITUDE:
            raise InvalidSound("The file holds samples that are no numbers or beyond all measure")
        parts.append(stream.resample_chunk(block.mean(axis=1)))
    parts.append(stream.resample_chunk(np.zeros(0, np.float32), last=True))
    return np.concatenate(parts)


def _normalized(sound: NDArray[np.float32]) -> Samples:
    """Without the DC offset, which would thump at the start and the end; at most full scale, without distortion."""
    if len(sound) == 0:
        raise InvalidSound("The file holds no sound")
    sound -= np.float32(sound.mean(dtype=np.float64))
    loudest = max(float(sound.max()), -float(sound.min()))
    sound *= np.float32(min(32768.0, 32767 / max(loudest, 1e-9)))
    return np.rint(sound, out=sound).astype(np.int16)


def _limit_resources() -> None:
    """From here on the kernel refuses memory beyond the present size plus _MEMORY_LIMIT_BYTES, and ends the process
    after _CPU_LIMIT_S of CPU time; calls have priority."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    rlimits.set_rlimits(now + _MEMORY_LIMIT_BYTES, _CPU_LIMIT_S, _MAX_OPEN_FILES)


def _warm_up() -> None:
    """Decode a silent WAV file: C callbacks need executable memory, which is allocated with the first one and cannot be
    allocated inside the sandbox."""
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(_WARM_UP_FRAMES, np.int16), RATES[0], format="WAV")
    decode_in_process(silence.getvalue())


def _main() -> int:
    _limit_resources()
    _warm_up()
    sandbox.enter()
    try:
        output, status = decode_in_process(sys.stdin.buffer.read(), int(sys.argv[1])).tobytes(), 0
    except InvalidSound as refusal:
        output, status = str(refusal).encode(), _EXIT_INVALID
    except MemoryError:
        output, status = b"The file takes too much memory to decode", _EXIT_INVALID
    sys.stdout.buffer.write(output)
    return status


if __name__ == "__main__":
    sys.exit(_main())
