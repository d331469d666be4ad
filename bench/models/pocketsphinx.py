"""Speech to text by pocketsphinx: CPU per second of speech, latency of `end_turn`, lag of the event loop and stalls of
a 1 ms timer thread in the meantime (which a decoder that held the GIL would cause).

    python -m bench.models.pocketsphinx [--turns N] [CALLERS...]

Audio is fed in real time, 20 ms at a time, by a thread of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time

import numpy as np

from media.audio_port import Samples
from models.protocols import SpeechToTextStream, VoiceSettings
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.flite.text_to_speech import FliteTextToSpeech

SENTENCE = "i would like to make an appointment for tomorrow morning please"
TURNS = 5
FRAME = 160


class TimerThread:
    """Records the stalls of a thread that should run every millisecond, ms."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.stalls: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Ends the measurement."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._stop.wait(0.001):
            now = time.perf_counter()
            self.stalls.append((now - last) * 1000 - 1)
            last = now


def feed(streams: list[SpeechToTextStream], sound: Samples) -> None:
    """Feeds all streams in real time."""
    began = time.perf_counter()
    for number, start in enumerate(range(0, len(sound), FRAME)):
        time.sleep(max(0.0, began + number * 0.02 - time.perf_counter()))
        for stream in streams:
            stream.feed(sound[start : start + FRAME])


async def loop_lag(lags: list[float]) -> None:
    """Records the event loop's lag after each sleep of 5 ms, ms; runs until cancelled."""
    while True:
        due_s = time.perf_counter() + 0.005
        await asyncio.sleep(0.005)
        lags.append((time.perf_counter() - due_s) * 1000)


async def measure(callers: int, turns: int) -> dict[str, object]:
    """Measures `turns` turns in which `callers` callers say the sentence at the same time. Returns a row."""
    voice = FliteTextToSpeech()
    speech = await voice.synthesize(SENTENCE, VoiceSettings("flite/rms", 1.0, 0.5, 8000))
    sound = np.pad(speech.samples, 800)
    recognizer = await asyncio.to_thread(PocketsphinxSpeechToText)
    streams = [recognizer.open(rate=8000, language=None, on_words=lambda words: None) for _ in range(callers)]
    await asyncio.gather(*(stream.end_turn() for stream in streams))
    lags: list[float] = []
    lag = asyncio.create_task(loop_lag(lags))
    timer, latencies_ms, cpu_s = TimerThread(), [], time.process_time()
    for _ in range(turns):
        await asyncio.to_thread(feed, list(streams), sound)
        latencies_ms += await asyncio.gather(*(end_turn_latency(stream) for stream in streams))
    cpu_s = time.process_time() - cpu_s
    timer.stop()
    lag.cancel()
    await asyncio.to_thread(recognizer.close)
    voice.close()
    return {
        "callers": callers,
        "cores": os.cpu_count(),
        "sentence_s": round(len(sound) / 8000, 2),
        "cpu_s_per_s_of_speech": round(cpu_s / (turns * callers * len(sound) / 8000), 3),
        "end_turn_ms": percentiles(latencies_ms),
        "loop_lag_ms": percentiles(lags),
        "thread_stall_ms": percentiles(timer.stalls),
    }


async def end_turn_latency(stream: SpeechToTextStream) -> float:
    """Duration of `end_turn` after the last audio, ms."""
    began = time.perf_counter()
    await stream.end_turn()
    return (time.perf_counter() - began) * 1000


def percentiles(values: list[float]) -> dict[str, float]:
    """p50, p99 and maximum."""
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(max(values), 1)}


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("callers", nargs="*", type=int, default=(1, 4))
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    for callers in options.callers:
        print(json.dumps(asyncio.run(measure(callers, options.turns))))


if __name__ == "__main__":
    main()
