"""The disk cache of speech: persistent, within its limit, private, and never a reason for an error."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from models.protocols import SynthesizedSpeech, VoiceSettings, WordTiming
from models.tts import disk_cache
from models.tts.cache import CachingTextToSpeech, SpeechCache, SpeechOrigin
from models.tts.disk_cache import SpeechDiskCache

SETTINGS = VoiceSettings("slow/one", 1.0, 0.5, 8000)
TEXT = "Your balance is 12 euros."


def speech_of(text: str, samples: int = 1000) -> SynthesizedSpeech:
    sound = np.random.RandomState(len(text)).randint(-9000, 9000, samples).astype(np.int16)
    return SynthesizedSpeech(text, sound, 8000, (WordTiming(4, 200), WordTiming(len(text), samples)))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., SpeechDiskCache]]:
    """Opens the same folder, any number of times."""
    made: list[SpeechDiskCache] = []

    def open_files(limit: int = 1_000_000) -> SpeechDiskCache:
        made.append(SpeechDiskCache(tmp_path / "speech", limit))
        return made[-1]

    yield open_files
    for files in made:
        files.close()


def cached(
    files: SpeechDiskCache, text: str, settings: VoiceSettings = SETTINGS, version: str = "v1"
) -> SynthesizedSpeech | None:
    return asyncio.run(files.get(version, text, settings))


def put(files: SpeechDiskCache, *speeches: SynthesizedSpeech) -> None:
    """Write them, and wait for it."""
    for speech in speeches:
        files.put("v1", speech, SETTINGS)
    files.close()


def named(folder: Path) -> list[Path]:
    return sorted((folder / "speech").glob("*.speech"))


def test_cached_speech_survives_a_restart_unchanged(opened: Callable[..., SpeechDiskCache]) -> None:
    speech = speech_of(TEXT)
    put(opened(), speech)
    found = cached(opened(), TEXT)
    assert found is not None and (found.text, found.rate, tuple(found.words)) == (TEXT, 8000, tuple(speech.words))
    assert np.array_equal(found.samples, speech.samples) and found.samples.dtype == np.int16


@pytest.mark.parametrize(
    "other",
    [replace(SETTINGS, speed=1.1), replace(SETTINGS, stability=0.4), replace(SETTINGS, rate=16000),
     replace(SETTINGS, voice="slow/two")],
)  # fmt: skip
def test_other_settings_or_another_voice_version_are_another_entry(
    opened: Callable[..., SpeechDiskCache], other: VoiceSettings
) -> None:
    put(opened(), speech_of(TEXT))
    files = opened()
    assert cached(files, TEXT, other) is None and cached(files, TEXT, version="v2") is None
    assert cached(files, TEXT + " ") is None


def test_the_least_recently_used_is_evicted_first(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    """Also when the use was before a restart."""
    texts = ["one", "two", "three", "four"]
    put(opened(), *(speech_of(text) for text in texts))
    for path in named(tmp_path):
        os.utime(path, (time.time() - 60, time.time() - 60))
    earlier = opened()
    assert cached(earlier, "one") is not None and cached(earlier, "three") is not None
    files = opened(limit=9000)
    assert cached(files, "two") is not None
    put(files, speech_of("five five"))
    again = opened()
    assert files.size <= 9000 and again.size == files.size
    assert [text for text in (*texts, "five five") if cached(again, text)] == ["one", "two", "three", "five five"]


def test_a_smaller_limit_applies_from_the_start(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    put(opened(), *(speech_of("a" * number) for number in range(1, 9)))
    assert len(named(tmp_path)) == 8
    assert opened(limit=5000).size <= 5000 and len(named(tmp_path)) == 2


def test_a_piece_larger_than_a_quarter_is_not_cached(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    put(opened(limit=10_000), speech_of(TEXT, samples=1300))
    assert not named(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other", "gone", "folder"])
def test_a_damaged_file_is_a_cache_miss(opened: Callable[..., SpeechDiskCache], tmp_path: Path, damage: str) -> None:
    put(opened(), speech_of(TEXT))
    files = opened()
    (path,) = named(tmp_path)
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-10])
        case "changed":
            path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
        case "empty":
            path.write_bytes(b"")
        case "other":
            path.write_bytes(os.urandom(len(content)))
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
    with capture_logs() as logs:
        assert cached(files, TEXT) is None and cached(files, TEXT) is None
    assert [line["event"] for line in logs] == ["speech_files.unreadable"] and files.size == 0
    assert damage == "folder" or not named(tmp_path)
    if damage != "folder":
        put(files := opened(), speech_of(TEXT))
        assert cached(opened(), TEXT) is not None


def test_files_are_private_and_their_names_opaque(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    put(opened(), speech_of(TEXT))
    folder = tmp_path / "speech"
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert set(modes.values()) == {0o600} and folder.stat().st_mode & 0o777 == 0o700
    (path,) = named(tmp_path)
    assert b"balance" not in path.read_bytes()
    other_cache = SpeechDiskCache(tmp_path / "other", 1_000_000)
    put(other_cache, speech_of(TEXT))
    assert {each.name for each in (tmp_path / "other").glob("*.speech")} != {path.name}


_WRITER = """
import sys, numpy as np
from pathlib import Path
from models.protocols import SynthesizedSpeech, VoiceSettings
from models.tts.disk_cache import SpeechDiskCache
files = SpeechDiskCache(Path(sys.argv[1]), 10**9)
print("ready", flush=True)
for number in range(10**6):
    speech = SynthesizedSpeech(str(number), np.full(20000, number % 30000, np.int16), 8000)
    files._write(files._name("v1", speech.text, VoiceSettings("slow/one", 1.0, 0.5, 8000)), speech)
"""


def test_a_server_killed_during_a_write_leaves_complete_files(
    opened: Callable[..., SpeechDiskCache], tmp_path: Path
) -> None:
    for pause in (0.02, 0.05):
        command = [sys.executable, "-c", _WRITER, str(tmp_path / "speech")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(pause)
            writer.send_signal(signal.SIGKILL)
        files = opened(limit=10**9)
        there = {path.name for path in (tmp_path / "speech").iterdir()}
        assert all(name.endswith(".speech") or name == ".key" for name in there)
        with capture_logs() as logs:
            found = [speech for number in range(len(there)) if (speech := cached(files, str(number)))]
        assert len(found) >= len(there) - 1 and not logs
        assert all(int(speech.text) % 30000 == speech.samples[0] for speech in found)


def test_a_full_disk_pauses_writes_and_evicts_half_of_the_files(
    opened: Callable[..., SpeechDiskCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(opened(), *(speech_of("a" * number) for number in range(1, 9)))
    files = opened()
    before = files.size

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(disk_cache, "_create", full)
        put(files, speech_of(TEXT))
    assert [line["event"] for line in logs] == ["speech_files.not_written"]
    assert 0 < files.size <= before // 2 and cached(opened(), TEXT) is None


def test_an_unusable_folder_is_logged_and_disables_the_cache(tmp_path: Path) -> None:
    (tmp_path / "speech").write_text("a file")
    with capture_logs() as logs:
        files = SpeechDiskCache(tmp_path / "speech", 1000)
    assert [line["event"] for line in logs] == ["speech_files.unusable"]
    assert cached(files, TEXT) is None
    put(files, speech_of(TEXT))


def test_a_closed_cache_stores_nothing(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    files = opened()
    files.close()
    files.close()
    files.put("v1", speech_of(TEXT), SETTINGS)
    assert not named(tmp_path)


class FastTts:
    """A fast synthesizer, without `voice_version`."""

    name = "fast"

    def __init__(self) -> None:
        self.requests: list[str] = []

    def voices(self) -> Sequence[str]:
        return ("slow/one",)

    def language_of(self, voice: str) -> str | None:
        return "en"

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        self.requests.append(text)
        return speech_of(text)


class SlowTts(FastTts):
    """A synthesizer whose speech is cached on disk."""

    def voice_version(self, voice: str) -> str:
        return f"{voice} 1"


def test_a_phrase_is_synthesized_once_and_then_read_from_disk_and_memory(
    opened: Callable[..., SpeechDiskCache],
) -> None:
    origins: list[SpeechOrigin] = []
    for _ in range(2):
        voice, files = SlowTts(), opened()
        remembering = CachingTextToSpeech(voice, SpeechCache(on_use=origins.append, disk_cache=files))
        for _ in range(2):
            assert asyncio.run(remembering.synthesize(TEXT, SETTINGS)).text == TEXT
        remembering.close()
    assert origins == ["made", "cache", "disk", "cache"] and not voice.requests


def test_a_fast_voice_does_not_use_the_disk(opened: Callable[..., SpeechDiskCache], tmp_path: Path) -> None:
    remembering = CachingTextToSpeech(FastTts(), SpeechCache(disk_cache=opened()))
    asyncio.run(remembering.synthesize(TEXT, SETTINGS))
    remembering.close()
    assert not named(tmp_path)
