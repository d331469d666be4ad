"""The decoder of uploaded sounds: every accepted format is decoded, and untrusted files do no harm."""

from __future__ import annotations

import io
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from structlog.testing import capture_logs

from media.audio_port import Samples
from media.background import decoder
from media.background.decoder import decode, decode_in_process
from media.background.files import MAX_SECONDS, InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE
from tests.media.speech import tone

Sound = NDArray[np.float64]


class Kind(NamedTuple):
    """A format, a codec and a sample rate (Hz) by libsndfile's names."""

    format: str
    codec: str
    rate: int


KINDS: Final = [
    Kind("WAV", "PCM_U8", 8000), Kind("WAV", "PCM_16", 44100), Kind("WAV", "PCM_24", 96000),
    Kind("WAV", "FLOAT", 48000), Kind("WAV", "DOUBLE", 22050), Kind("WAV", "ULAW", 8000), Kind("WAV", "ALAW", 8000),
    Kind("WAVEX", "PCM_32", 192000), Kind("MP3", "MPEG_LAYER_III", 44100), Kind("MP3", "MPEG_LAYER_III", 16000),
    Kind("OGG", "VORBIS", 44100), Kind("OGG", "OPUS", 48000), Kind("FLAC", "PCM_S8", 16000),
    Kind("FLAC", "PCM_16", 44100), Kind("FLAC", "PCM_24", 4000),
]  # fmt: skip
LOSSY: Final = [Kind("MP3", "MPEG_LAYER_III", 16000), Kind("OGG", "VORBIS", 8000), Kind("OGG", "OPUS", 8000)]
WAV_16: Final = Kind("WAV", "PCM_16", SAMPLE_RATE)
WAV_FLOAT: Final = Kind("WAV", "FLOAT", SAMPLE_RATE)
FLAC: Final = Kind("FLAC", "PCM_16", 16000)


def name(kind: Kind) -> str:
    """The id of a parameter for pytest."""
    return "-".join(map(str, kind))


def encoded(sound: NDArray[np.generic], kind: Kind) -> bytes:
    """A file with this sound, `[frames]` or `[frames, channels]`."""
    data = io.BytesIO()
    channels = 1 if sound.ndim == 1 else sound.shape[1]
    with soundfile.SoundFile(data, "w", kind.rate, channels, kind.codec, format=kind.format) as file:
        # In pieces: libvorbis has no room for a long sound at once.
        for start in range(0, len(sound), 65536):
            file.write(sound[start : start + 65536])
    return data.getvalue()


def sine(seconds: float, rate: int, hertz: float = 440) -> Sound:
    wave_form: Sound = 0.25 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    return wave_form


def is_sine(samples: Samples, hertz: float, amplitude: float) -> bool:
    """True if nine tenths of the middle are this tone, with the level within 10 %."""
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(np.float64) / 32768
    turns = 2 * np.pi * hertz * np.arange(len(middle)) / SAMPLE_RATE
    measured = abs(np.exp(-1j * turns) @ middle) * 2 / len(middle)
    return bool(measured == pytest.approx(amplitude, rel=0.1) and measured**2 / 2 > 0.9 * np.mean(middle**2))


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_tone_is_preserved_in_every_format(kind: Kind, channels: int) -> None:
    samples = decode_in_process(encoded(np.tile(sine(1.0, kind.rate)[:, None], (1, channels)), kind))
    assert (samples.dtype, samples.ndim) == (np.int16, 1)
    # Lossy codecs add up to a few frames of silence.
    assert 1.0 <= len(samples) / SAMPLE_RATE < 1.15
    assert is_sine(samples, 440, 0.25)


def test_the_sandboxed_process_decodes_the_same() -> None:
    for kind in MUTATED:
        data = encoded(sine(0.2, kind.rate), kind)
        samples = decode(data)
        assert np.array_equal(samples, decode_in_process(data))
        assert samples.flags.writeable
    with pytest.raises(InvalidSound, match="The file is not WAV, MP3, Ogg or FLAC"):
        decode(b"%PDF-1.7")


def test_samples_in_the_target_format_are_unchanged() -> None:
    samples = tone(1000, SAMPLE_RATE)
    assert np.array_equal(decode_in_process(encoded(samples, WAV_16)), samples)


def test_channels_are_mixed_to_their_mean() -> None:
    left, right = sine(1.0, SAMPLE_RATE, 500), sine(1.0, SAMPLE_RATE, 1500)
    samples = decode_in_process(encoded(np.stack([left, right], axis=1), WAV_16))
    assert np.abs(samples - (left + right) / 2 * 32768).max() < 2


def test_downsampling_does_not_alias() -> None:
    samples = decode_in_process(encoded(sine(1.0, 48000, 440) + sine(1.0, 48000, 9000), Kind("WAV", "FLOAT", 48000)))
    power = np.abs(np.fft.rfft(samples[4000:12000].astype(np.float64))) ** 2
    assert power[3000:].max() < power.max() / 1e6


def test_a_dc_offset_is_removed() -> None:
    samples = decode_in_process(encoded(sine(1.0, SAMPLE_RATE) + 0.3, WAV_16))
    assert abs(samples.mean()) < 1
    assert is_sine(samples, 440, 0.25)


def test_audio_over_full_scale_is_scaled_without_distortion() -> None:
    for factor in (5, 32768, 2**31):
        samples = decode_in_process(encoded(sine(1.0, SAMPLE_RATE) * factor, WAV_FLOAT))
        assert np.abs(samples.astype(np.int32)).max() == 32767
        assert np.abs(samples - sine(1.0, SAMPLE_RATE) * 4 * 32767).max() < 60


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def float_wav_with(value: float) -> bytes:
    sound = sine(0.5, SAMPLE_RATE)
    sound[100] = value
    return encoded(sound, WAV_FLOAT)


HALF: Final = encoded(sine(0.5, SAMPLE_RATE), WAV_16)
RATE_AT: Final = 24
DAMAGED: Final = "The file is damaged or of a kind that cannot be decoded"
UNKNOWN: Final = "The file is not WAV, MP3, Ogg or FLAC"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "The file is empty"),
        (b"\0", UNKNOWN),
        (b"\xff", UNKNOWN),
        (b"no sound at all", UNKNOWN),
        (b"RIFF\0\0\0\0AVI LIST", UNKNOWN),
        (encoded(sine(0.1, 16000), Kind("AIFF", "PCM_16", 16000)), UNKNOWN),
        (encoded(sine(0.1, 16000), Kind("AU", "PCM_16", 16000)), UNKNOWN),
        (b"RIFF\0\0\0\0WAVE", DAMAGED),
        (b"OggS", DAMAGED),
        (b"fLaC", DAMAGED),
        (b"ID3", DAMAGED),
        (encoded(sine(0.1, 16000), Kind("WAV", "IMA_ADPCM", 16000)), "WAV with IMA_ADPCM is not supported"),
        (encoded(sine(0.1, 16000), Kind("WAV", "GSM610", 8000)), "WAV with GSM610 is not supported"),
        (patched(HALF, RATE_AT, struct.pack("<I", 0)), DAMAGED),
        (patched(HALF, RATE_AT, struct.pack("<I", 1)), "The sample rate must be 4000 to 192000 Hz, not 1"),
        (patched(HALF, RATE_AT, struct.pack("<I", 2**31 - 1)),
         "The sample rate must be 4000 to 192000 Hz, not 2147483647"),
        (encoded(np.zeros((100, 9)), WAV_16), "The sound has 9 channels, more than 8"),
        (encoded(np.zeros(0), WAV_16), "The file holds no sound"),
        (encoded(np.zeros(1), Kind("WAV", "PCM_16", 48000)), "The file holds no sound"),
        (float_wav_with(np.nan), "The file holds samples that are no numbers or beyond all measure"),
        (float_wav_with(np.inf), "The file holds samples that are no numbers or beyond all measure"),
        (float_wav_with(1e30), "The file holds samples that are no numbers or beyond all measure"),
        (float_wav_with(-np.inf), "The file holds samples that are no numbers or beyond all measure"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:4].hex(),
)  # fmt: skip
def test_unusable_files_are_rejected_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidSound) as refusal:
        decode_in_process(data)
    assert str(refusal.value) == reason


@pytest.mark.parametrize("magic", [b"RIFF\xff\xff\xff\x7fWAVE", b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0", b"OggS", b"fLaC",
                                   b"fLaC\0\0\0\x22", b"ID3", b"ID3\x04\0\0\x7f\x7f\x7f\x7f", b"\xff\xfb"])  # fmt: skip
def test_noise_after_a_valid_signature_is_rejected_or_decoded(magic: bytes) -> None:
    for seed in range(20):
        survives(magic + random.Random(seed).randbytes(5000))


def survives(data: bytes) -> Samples | None:
    """The samples, or None for a rejected file; any other error fails the test."""
    try:
        samples = decode_in_process(data)
    except InvalidSound:
        return None
    assert samples.dtype == np.int16
    assert 0 < len(samples) <= MAX_SECONDS * SAMPLE_RATE + 1
    return samples


MUTATED: Final = [
    WAV_16, WAV_FLOAT, Kind("WAV", "ULAW", 8000), Kind("MP3", "MPEG_LAYER_III", 22050), Kind("OGG", "VORBIS", 16000),
    Kind("OGG", "OPUS", 16000), FLAC,
]  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The file with some bytes changed, moved or duplicated, and perhaps truncated; mostly near its beginning."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 3, 20])):
        at = int(len(changed) * chance.random() ** chance.choice([1, 4]))
        some = changed[chance.randrange(len(changed)) :][: chance.randrange(40)]
        new = chance.choice(
            [bytes([chance.randrange(256)]), b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", some]
        )
        changed[at : at + chance.choice([0, len(new)])] = new
    return bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])])


@pytest.mark.parametrize("kind", MUTATED, ids=name)
def test_a_damaged_file_is_rejected_or_decoded(kind: Kind) -> None:
    sound = sine(0.3, kind.rate) + 0.05 * np.random.default_rng(0).standard_normal(int(0.3 * kind.rate))
    whole = encoded(sound, kind)
    answers = [survives(mutated(whole, random.Random(f"{kind} {seed}"))) for seed in range(300)]
    refused = sum(answer is None for answer in answers)
    assert 30 < refused < 300


@pytest.mark.parametrize("kind", [WAV_16, *LOSSY], ids=name)
def test_a_truncated_file_is_decoded_up_to_its_end(kind: Kind) -> None:
    noise = 0.02 * np.random.default_rng(0).standard_normal(16 * kind.rate)
    whole = encoded(sine(16.0, kind.rate) + noise, kind)
    samples = decode_in_process(whole[: len(whole) // 2])
    assert 4 < len(samples) / SAMPLE_RATE < 10
    assert is_sine(samples, 440, 0.25)


@pytest.mark.parametrize("claimed", [0, 1, 2**36 - 1])
def test_a_wrong_length_in_a_flac_header_is_ignored(claimed: int) -> None:
    data = encoded(sine(1.0, 16000), FLAC)
    # The low 36 bits of the 8 bytes that begin with the rate: RFC 9639, 8.2.
    facts = int.from_bytes(data[18:26]) >> 36 << 36 | claimed
    samples = decode_in_process(patched(data, 18, facts.to_bytes(8)))
    # 0 is what encoders write that cannot go back.
    assert len(samples) == (1 if claimed == 1 else SAMPLE_RATE)


def test_a_wrong_length_in_a_wav_header_is_ignored() -> None:
    for claimed in (0xFFFFFFFF, 0x7FFFFFFF, 16001):
        samples = decode_in_process(patched(HALF, 40, struct.pack("<I", claimed)))
        assert len(samples) == SAMPLE_RATE // 2


@pytest.mark.parametrize("kind", [FLAC, *LOSSY], ids=name)
def test_a_decompression_bomb_is_rejected_within_little_memory(kind: Kind) -> None:
    bomb = encoded(np.zeros(2 * MAX_SECONDS * kind.rate, np.float32), kind)
    assert len(bomb) < 1_300_000
    tracemalloc.start()
    with pytest.raises(InvalidSound, match=f"^The sound is longer than {MAX_SECONDS} seconds$"):
        decode_in_process(bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40 << 20


def test_the_maximum_duration_is_exact_to_the_frame() -> None:
    longest = np.zeros(MAX_SECONDS * 8000, np.int16)
    assert len(decode_in_process(encoded(longest, Kind("WAV", "PCM_16", 8000)))) == MAX_SECONDS * SAMPLE_RATE
    with pytest.raises(InvalidSound, match="longer"):
        decode_in_process(encoded(np.append(longest, longest[:1]), Kind("WAV", "PCM_16", 8000)))


@pytest.fixture
def decoder_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the decoder's process run these statements."""

    def run(code: str) -> None:
        monkeypatch.setattr(decoder, "_PROGRAM", (sys.executable, "-c", code))

    return run


@pytest.mark.parametrize("fatal", ["SIGSEGV", "SIGABRT", "SIGXCPU", "SIGKILL"])
def test_a_decoder_that_is_killed_rejects_the_file_and_is_logged(
    decoder_runs: Callable[[str], None], fatal: str
) -> None:
    decoder_runs(f"import os, signal; os.kill(os.getpid(), signal.{fatal})")
    with capture_logs() as logs, pytest.raises(InvalidSound, match="The file cannot be decoded"):
        decode(HALF)
    assert logs == [
        {"event": "sound.decoder_killed", "log_level": "warning", "signal": fatal, "bytes": len(HALF)},
    ]


EXPLOITED: Final = """
import os, socket, sys
from media.background import decoder
def decode_in_process(data, *limits):
    if data.startswith(b"RIFF"):
        return decoded(data)  # a sound of its own
    try:
        exec(data)
    except OSError as error:
        raise decoder.InvalidSound(type(error).__name__)
decoded, decoder.decode_in_process = decoder.decode_in_process, decode_in_process
sys.exit(decoder._main())
"""
"""The decoder with a codec that executes the file."""


@pytest.mark.parametrize("deed", ["open({!r}).read()", "open({!r}, 'w')", "os.fork()"])
def test_an_exploited_decoder_cannot_open_files_or_start_processes(
    decoder_runs: Callable[[str], None], deed: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.key"
    secret.write_text("a key")
    decoder_runs(EXPLOITED)
    with pytest.raises(InvalidSound, match=r"^(PermissionError|BlockingIOError)$"):
        decode(deed.format(str(secret)).encode())
    assert secret.read_text() == "a key"


@pytest.mark.parametrize("deed", [b"os.execv('/bin/true', ['true'])", b"socket.socket()"])
def test_an_exploited_decoder_is_killed_and_the_file_rejected(decoder_runs: Callable[[str], None], deed: bytes) -> None:
    decoder_runs(EXPLOITED)
    with (
        capture_logs() as logs,
        pytest.raises(InvalidSound, match=r"^Decoding was stopped: the file made the decoder do"),
    ):
        decode(deed)
    assert logs == [
        {"event": "sound.decoder_killed", "log_level": "warning", "signal": "SIGSYS", "bytes": len(deed)},
    ]


def test_a_decoder_that_hangs_is_killed(decoder_runs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_TIMEOUT_S", 0.5)
    decoder_runs("import time; time.sleep(600)")
    with pytest.raises(InvalidSound, match="The file takes too long to decode"):
        decode(HALF)


def test_an_internal_error_does_not_reject_the_file(decoder_runs: Callable[[str], None]) -> None:
    decoder_runs("import no_such_module")
    with pytest.raises(RuntimeError, match=r"status 1: (.|\n)*No module named 'no_such_module'"):
        decode(HALF)


def test_the_decoder_has_limits_of_memory_and_cpu_time(decoder_runs: Callable[[str], None]) -> None:
    decoder_runs(
        "import os, resource\n"
        "from media.background import decoder\n"
        "decoder._limit_resources()\n"
        "assert resource.getrlimit(resource.RLIMIT_CPU) == (20, 21)\n"
        "assert os.nice(0) >= 10\n"
        "kept = bytearray(150 << 20)\n"
        "try:\n"
        "    more = bytearray(150 << 20)\n"
        "except MemoryError:\n"
        "    print('refused', end='')\n"
        "    raise SystemExit(65)\n"
    )
    with pytest.raises(InvalidSound, match="refused"):
        decode(HALF)
