"""Recordings: received and sent audio, whatever happens to the process or the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from structlog.testing import capture_logs

from media.engine.engine import AudioEngine
from media.recording import WAV_HEADER_BYTES, Recording, RecordingResult, RecordingWriter
from media.turn_taking.events import TurnEnded
from tests.fakes.fake_audio_port import ArrayPort, FakeEventLoop
from tests.media.engine_harness import NO_MODEL, Listener
from tests.media.speech import silence, speech, tone
from tests.trunkline.small_disk import filled, tiny_disk


def recorded(path: Path) -> tuple[int, np.ndarray[tuple[int, int], np.dtype[np.int16]]]:
    """The rate and the samples `int16[n, 2]` of a finished or unfinished recording."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (2, 2)
        return file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)


def close(recording: Recording, ends: SimpleQueue[RecordingResult]) -> RecordingResult:
    recording.close()
    return ends.get(timeout=10)


def test_the_caller_is_left_and_the_agent_right_sample_by_sample(tmp_path: Path) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    writer = RecordingWriter()
    writer.start()
    port, loop, listener = ArrayPort(), FakeEventLoop(), Listener()
    engine = AudioEngine(port, loop.post, lambda: port.now_ms * 1_000_000)
    caller = np.concatenate([silence(500, 16000), speech("hello there", 16000), silence(3000, 16000)])
    path = tmp_path / "deep" / "call.wav"
    slot = port.open(16000, caller)
    call = engine.add(slot, NO_MODEL, listener, writer.open(path, rate=16000, call_id="c", on_closed=ends.put))
    engine.tick()
    call.playout.begin("tone")
    call.playout.write(tone(700, 16000))
    for i in range(150):
        port.step()
        if i % 7 == 0:
            engine.tick()
    engine.tick()
    engine.remove(slot)
    engine.tick()
    end = ends.get(timeout=10)
    writer.close()
    rate, samples = recorded(path)
    assert (rate, end.frames, end.complete) == (16000, 3000 * 16, True)
    assert np.array_equal(samples[:, 0], caller[: 3000 * 16])
    assert np.array_equal(samples[: 700 * 16, 1], tone(700, 16000))
    assert not samples[700 * 16 :, 1].any()


def test_only_the_server_user_can_read_a_recording_whatever_the_umask(tmp_path: Path) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    writer = RecordingWriter()
    before = os.umask(0)
    try:
        writer.start()
        end = close(writer.open(tmp_path / "2026/11/c.wav", rate=8000, call_id="c", on_closed=ends.put), ends)
        writer.close()
    finally:
        os.umask(before)
    assert end.complete
    modes = [path.stat().st_mode & 0o777 for path in (end.path, end.path.parent, end.path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_recording_never_replaces_another(tmp_path: Path) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    (tmp_path / "c.wav").write_text("first")
    writer = RecordingWriter()
    writer.start()
    end = close(writer.open(tmp_path / "c.wav", rate=8000, call_id="c", on_closed=ends.put), ends)
    writer.close()
    assert (end.complete, end.error) == (False, "File exists")
    assert (tmp_path / "c.wav").read_text() == "first"


def test_a_killed_process_leaves_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "killed.wav"
    program = f"""
import time, numpy as np
from pathlib import Path
from media.recording import RecordingWriter
writer = RecordingWriter()
writer.start()
recording = writer.open(Path({str(path)!r}), rate=8000, call_id="c")
piece = np.arange(4000, dtype=np.int16)
while True:
    recording.append(piece, -piece)
    print("x", flush=True)
    time.sleep(0.001)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    rate, samples = recorded(path)
    assert rate == 8000
    assert len(samples) >= 4000 and len(samples) % 4000 == 0
    assert np.array_equal(samples[:4000, 0], np.arange(4000)) and np.array_equal(samples[:, 0], -samples[:, 1])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_logged_once_and_reported_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    real_open = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: real_open(Path("/dev/full"), "wb", buffering=0))
    writer = RecordingWriter()
    with capture_logs() as lines:
        writer.start()
        recording = writer.open(tmp_path / "full.wav", rate=8000, call_id="c", on_closed=ends.put)
        for _ in range(3):
            recording.append(tone(500), tone(500))
        end = close(recording, ends)
        writer.close()
    assert (end.complete, end.frames, end.error) == (False, 0, "No space left on device")
    assert [line["event"] for line in lines] == ["recording.broken"]


def test_a_recording_on_a_disk_that_fills_up_keeps_its_beginning(tmp_path: Path) -> None:
    """A limit on the file's size simulates a disk that fills up during a call."""
    path = tmp_path / "short.wav"
    program = f"""
import resource, signal, numpy as np
from pathlib import Path
from media.recording import RecordingWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
writer = RecordingWriter()
writer.start()
recording = writer.open(Path({str(path)!r}), rate=8000, call_id="c", on_closed=lambda end: print(end.frames, end.error))
for _ in range(6):
    recording.append(np.full(2000, 7, np.int16), np.full(2000, 8, np.int16))
recording.close()
writer.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "8000 File too large"
    _, samples = recorded(path)
    assert samples.tolist() == [[7, 8]] * 8000
    assert path.stat().st_size == WAV_HEADER_BYTES + 8000 * 4


def test_an_error_of_a_recording_does_not_affect_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    writer = RecordingWriter()
    writer.start()
    port, loop, listener = ArrayPort(), FakeEventLoop(), Listener()
    engine = AudioEngine(port, loop.post, lambda: port.now_ms * 1_000_000)
    slot = port.open(8000, np.concatenate([silence(500), speech("hello there"), silence(1000)]))
    path = tmp_path / "file" / "no-folder.wav"
    engine.add(slot, NO_MODEL, listener, writer.open(path, rate=8000, call_id="c", on_closed=ends.put))
    engine.tick()
    for _ in range(100):
        port.step()
        engine.tick()
        loop.run()
    engine.close()
    assert len(listener.of(TurnEnded)) == 1
    assert not ends.get(timeout=10).complete
    writer.close()


def test_after_a_full_disk_a_recording_continues_in_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.recording.RETRY_S", 0.0)
    path, ends = tmp_path / "disk" / "call.wav", SimpleQueue[RecordingResult]()
    tones = [np.full(4000, value, np.int16) for value in (1, 2, 3)]
    with tiny_disk(path.parent, "1m"), capture_logs() as lines:
        writer = RecordingWriter()
        writer.start()
        recording = writer.open(path, rate=8000, call_id="c", on_closed=ends.put)
        recording.append(tones[0], tones[0])
        until(lambda: path.exists() and path.stat().st_size > 4000)
        with filled(path.parent):
            recording.append(tones[1], tones[1])
            until(lambda: any(line["event"] == "recording.broken" for line in lines))
        recording.append(tones[2], tones[2])
        end = close(recording, ends)
        writer.close()
        rate, samples = recorded(path)
    assert (end.complete, end.frames, rate) == (False, 12000, 8000)
    assert [(line["event"], line.get("lost_s")) for line in lines] == [
        ("recording.broken", None), ("recording.goes_on", 0.5),
    ]  # fmt: skip
    assert [samples[at, 0] for at in (0, 3999, 4000, 7999, 8000, 11999)] == [1, 1, 0, 0, 3, 3]


def until(holds: Callable[[], bool]) -> None:
    """Wait for the writer thread."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_silence_since_time_0_comes_before_the_first_audio_if_there_is_any(tmp_path: Path) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    writer = RecordingWriter()
    writer.start()
    paths = [tmp_path / "call.wav", tmp_path / "nothing.wav"]
    recordings = [writer.open(path, rate=8000, call_id="c", on_closed=ends.put, zero_ms=1000.0) for path in paths]
    for recording in recordings:
        recording.begin(1037.5)
    for _ in range(2):
        recordings[0].append(np.full(160, 7, np.int16), np.full(160, 9, np.int16))
    assert close(recordings[0], ends).frames == 620
    assert close(recordings[1], ends).frames == 0
    writer.close()
    _, sound = recorded(paths[0])
    assert not sound[:300].any()
    assert (sound[300:] == [7, 9]).all()
