"""espeak-ng in worker processes: a sentence does not affect any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from config.errors import ModelError
from config.sandbox import landlock
from models.protocols import VoiceSettings
from models.tts.espeak import worker_process
from models.tts.espeak.process_pool import EspeakPool
from models.tts.espeak.text_to_speech import PROCESSES, EspeakTextToSpeech
from models.tts.trimming import trim_silence

GERMAN = VoiceSettings("espeak-ng/de", 1.0, 0.5, 22050)


@pytest.fixture(scope="module")
def processes() -> Iterator[EspeakPool]:
    pool = EspeakPool(2)
    yield pool
    pool.close()


def test_every_listed_language_can_be_synthesized(processes: EspeakPool) -> None:
    assert len(processes.languages) > 100 and {"de", "en-gb", "fr-fr", "cmn"} <= set(processes.languages)
    for language in processes.languages:
        assert len(processes.speak("1 hello", language, 165).samples) > 2000, language


def test_a_word_ends_where_the_next_begins_or_the_pause_before_it(processes: EspeakPool) -> None:
    text = "Ja, es sind 4237 mal so viele \u2013 genau."
    utterance = processes.speak(text, "de", 165)
    starts = [start for start, _ in utterance.words]
    begins = [text[start : start + 2] for start in sorted(set(starts))]
    assert begins == ["Ja", "es", "si", "42", "23", "ma", "so", "vi", "ge"]
    ends = [end for _, end in utterance.words]
    assert ends == sorted(ends)
    rate, sound = utterance.rate, np.abs(utterance.samples.astype(np.int32))
    yes, lots = ends[0], ends[-2]
    for end in (yes, lots):
        assert sound[end - rate // 20 : end].max() > 500
        assert sound[end + rate // 100 : end + rate // 10].max() < 100


async def test_a_number_is_one_word_and_ends_with_its_last_sound(espeak: EspeakTextToSpeech) -> None:
    text = "Es kostet 4237 Euro - ja."
    speech = await espeak.synthesize(text, GERMAN)
    assert [text[: word.char_end] for word in speech.words] == [
        "Es", "Es kostet", "Es kostet 4237", "Es kostet 4237 Euro -", text
    ]  # fmt: skip
    seconds = np.diff([0, *(word.sample_end for word in speech.words)]) / speech.rate
    assert seconds[2] > 1.5 and seconds[3] < 0.8


async def test_synthesis_does_not_depend_on_earlier_sentences(espeak: EspeakTextToSpeech) -> None:
    """The library itself begins each sentence in the state after the last one."""
    text = "Guten Tag, wie geht es Ihnen?"
    first = await espeak.synthesize(text, GERMAN)
    for other in (replace(GERMAN, speed=1.5), replace(GERMAN, stability=0), replace(GERMAN, voice="espeak-ng/eu")):
        for _ in range(PROCESSES):
            assert not np.array_equal((await espeak.synthesize(text, other)).samples, first.samples)
        assert np.array_equal((await espeak.synthesize(text, GERMAN)).samples, first.samples)


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EspeakPool]:
    """A process that has a memory fault over "Bruch"."""
    script = tmp_path / "fragile.py"
    script.write_text(_FRAGILE.format(path=worker_process.__file__))
    monkeypatch.setattr("models.tts.espeak.process_pool._SCRIPT", script)
    pool = EspeakPool(1)
    yield pool
    pool.close()


_FRAGILE = """
import importlib.util, os, signal
spec = importlib.util.spec_from_file_location("speaker", {path!r})
speaker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speaker)
handle = speaker.handle
def breaking(espeak, request):
    if request["text"] == "Bruch":
        os.kill(os.getpid(), signal.SIGSEGV)
    return handle(espeak, request)
speaker.handle = breaking
speaker.main()
"""


def test_a_sentence_that_crashes_the_library_fails_alone(fragile: EspeakPool) -> None:
    for _ in range(3):
        with pytest.raises(ModelError, match="crashed"):
            fragile.speak("Bruch", "de", 165)
        assert len(fragile.speak("Hallo", "de", 165).samples) > 2000


def test_a_sentence_survives_the_kill_of_its_process() -> None:
    before = _speakers()
    pool = EspeakPool(1)
    (child,) = set(_speakers()) - set(before)
    speeches: list[int] = []
    killer = threading.Timer(0.05, os.kill, (child, signal.SIGKILL))
    killer.start()
    while killer.is_alive() or len(speeches) < 3:
        speeches.append(len(pool.speak("Guten Tag. " * 20, "de", 165).samples))
    speeches.append(len(pool.speak("Guten Tag. " * 20, "de", 165).samples))  # it may have ended after the last one
    assert child not in _speakers()
    pool.close()
    assert min(speeches) > 0.9 * max(speeches)


def test_the_worker_ignores_the_signals_that_end_the_server() -> None:
    before = _speakers()
    pool = EspeakPool(1)
    (child,) = set(_speakers()) - set(before)
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGINT)
    assert len(pool.speak("Hallo", "de", 165).samples) > 2000
    assert child in _speakers()
    pool.close()


def test_a_killed_server_leaves_no_process_behind() -> None:
    script = (
        "import sys; from models.tts.espeak.process_pool import EspeakPool;"
        "pool = EspeakPool(1); print(flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        children = _children(server.pid)
        server.kill()
    assert len(children) == 1
    deadline = time.monotonic() + 10
    while Path(f"/proc/{children[0]}").exists() and _state(children[0]) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_closed_pool_rejects_texts_and_leaves_no_process() -> None:
    before = _speakers()
    pool = EspeakPool(2)
    pool.close()
    pool.close()
    with pytest.raises(ModelError, match="closed"):
        pool.speak("Hallo", "de", 165)
    assert _speakers() == before


def test_closing_the_pool_ends_a_sentence_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_it = tmp_path / "at it"
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS.format(path=worker_process.__file__, at_it=str(at_it)))
    monkeypatch.setattr("models.tts.espeak.process_pool._SCRIPT", script)
    os.mkfifo(at_it)
    pool = EspeakPool(1)
    failures: list[ModelError] = []

    def speak() -> None:
        try:
            pool.speak("Hallo", "de", 165)
        except ModelError as error:
            failures.append(error)

    speaker = threading.Thread(target=speak)
    speaker.start()
    with at_it.open() as pipe:
        assert pipe.read(7) == "endless"  # it has begun
    began = time.monotonic()
    pool.close()
    speaker.join()
    assert time.monotonic() - began < 5 and len(failures) == 1


_ENDLESS = """
import importlib.util, os, time
told = os.open({at_it!r}, os.O_RDWR)  # while it still may open a file to write
spec = importlib.util.spec_from_file_location("speaker", {path!r})
speaker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speaker)
def endless(espeak, request):
    os.write(told, b"endless")
    while True:
        time.sleep(1)
speaker.handle = endless
speaker.main()
"""


def test_an_exploited_espeak_cannot_open_files_or_start_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.key").write_text("a key")
    script = tmp_path / "exploited.py"
    script.write_text(_EXPLOITED.format(path=worker_process.__file__, secret=str(tmp_path / "secret.key")))
    monkeypatch.setattr("models.tts.espeak.process_pool._SCRIPT", script)
    with closing(EspeakPool(1)) as pool:
        for deed, outcome in (
            ("read", "PermissionError"), ("write", "PermissionError"),
            ("execute", f"crashed .*{signal.SIGSYS:d}"), ("connect", f"crashed .*{signal.SIGSYS:d}"),
        ):  # fmt: skip
            if landlock.is_available() or deed != "read":
                with pytest.raises(ModelError, match=outcome):
                    pool.speak(deed, "de", 165)


_EXPLOITED = """
import importlib.util, os, socket
spec = importlib.util.spec_from_file_location("speaker", {path!r})
speaker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speaker)
def exploited(espeak, request):
    try:
        {{"read": lambda: open({secret!r}).read(), "write": lambda: open({secret!r}, "w"),
          "execute": lambda: os.execv("/bin/true", ["true"]), "connect": socket.socket}}[request["text"]]()
    except OSError as error:
        return {{"error": type(error).__name__}}, b""
    return {{"error": "done"}}, b""
speaker.handle = exploited
speaker.main()
"""


def test_unencodable_characters_are_replaced(processes: EspeakPool) -> None:
    whole = processes.speak("Guten Tag", "de", 165)
    odd = processes.speak("Guten\0Tag \ud800", "de", 165)
    assert len(odd.samples) > 0.9 * len(whole.samples)


def test_an_unknown_language_is_a_model_error_and_the_process_survives(processes: EspeakPool) -> None:
    before = _speakers()
    with pytest.raises(ModelError, match="no voice for xx-none"):
        processes.speak("Hello", "xx-none", 165)
    assert _speakers() == before


def test_the_library_puts_silence_at_the_edges_that_is_trimmed(processes: EspeakPool) -> None:
    utterance = processes.speak("Hallo.", "de", 165)
    part = trim_silence(utterance.samples, utterance.rate)
    assert utterance.words[-1][1] <= part.stop


def _speakers() -> list[int]:
    script = Path(worker_process.__file__).name
    return [child for child in _children(os.getpid()) if script in Path(f"/proc/{child}/cmdline").read_text()]


def _children(process: int) -> list[int]:
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return sorted(int(child) for each in lists for child in each.read_text().split())


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
