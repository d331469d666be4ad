"""Speech to text for many calls by a Zipformer of real shape (`bench.models.random_zipformer`): real-time factor by
batch size and search, and the latency of a turn's text while other callers speak, batched and unbatched."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.models import random_zipformer
from models.stt.sherpa.chunk_timing import measure_chunk_timing
from models.stt.sherpa.load_check import noise
from models.stt.sherpa.recognizer_config import ENGINES, recognizer_config
from models.stt.sherpa.speed_measurement import streaming_speed
from models.stt.sherpa.stream import SherpaStream
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.sherpa.tokens import Tokens, read_tokens

TICK_S: Final = 0.02
CALL_RATE: Final = 8000
TURN_S: Final = 2.56

Row = dict[str, Any]


async def run(quick: bool) -> list[Row]:
    """The rows of the table. Takes a minute; with `quick` some seconds."""
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        path = Path(folder)
        await asyncio.to_thread(random_zipformer.write, path)
        rows = await asyncio.to_thread(_real_time_factors, path, quick)
        recognizer, tokens = await asyncio.to_thread(_recognizer, path, True), read_tokens(path / "tokens.txt")
        for most in (None, 1):
            model = await asyncio.to_thread(_loaded, recognizer, tokens, most)
            for calls in (4, 16) if quick else (1, 4, 8, 16, 32):
                rows.append(
                    await _turns(model, calls, "unbatched" if most else "batched", TURN_S / 4 if quick else TURN_S)
                )
            await asyncio.to_thread(model.close)
    return rows


def _loaded(recognizer: Any, tokens: Tokens, most: int | None) -> SherpaSpeechToText:
    return SherpaSpeechToText(
        "zipformer", recognizer, tokens, languages=("en",), supports_hotwords=False, threads=1, max_batch=most
    )


def _recognizer(folder: Path, beam: bool) -> Any:
    engine = ENGINES["zipformer"]
    paths = {role: str(folder / ("tokens.txt" if role == "tokens" else f"{role}.onnx")) for role in engine.files}
    vocabulary = folder / "bpe.vocab"
    tokens = read_tokens(folder / "tokens.txt")
    vocabulary.write_text("".join(f"{symbol}\t{-index}\n" for index, symbol in enumerate(tokens.symbols)))
    return recognizer_config(engine, paths, 1, (tokens.unit, str(vocabulary)) if beam else None).create()


def _real_time_factors(folder: Path, quick: bool) -> list[Row]:
    """Real-time factors on one core per stream, by batch size."""
    rows = []
    for search, beam in (("greedy", False), ("beam", True)):
        recognizer = _recognizer(folder, beam)
        speed = streaming_speed(
            recognizer, measure_chunk_timing(recognizer), (1, 4, 16) if quick else (1, 2, 4, 8, 16, 32)
        )
        for count, factor in speed.real_time_factor.items():
            row = {"what": "real-time factor", "search": search, "batch": count, "real_time_factor": round(factor, 4)}
            rows.append(row)
    return rows


async def _turns(model: SherpaSpeechToText, calls: int, batching: str, turn_s: float) -> Row:
    """All callers speak at the same time for `turn_s`, and end their turns one after the other."""
    streams = [model.open(rate=CALL_RATE, language=None, on_words=lambda words: None) for _ in range(calls)]
    began = time.process_time()
    latencies_s = await _speak(streams, turn_s)
    cpu_s = time.process_time() - began
    for stream in streams:
        stream.close()
    return {
        "what": "text after a turn's end",
        "calls": calls,
        "batch": batching,
        "p50_ms": round(float(np.percentile(latencies_s, 50)) * 1000),
        "p95_ms": round(float(np.percentile(latencies_s, 95)) * 1000),
        "cpu_s_per_s": round(cpu_s / turn_s / calls, 3),
    }


async def _speak(streams: Sequence[SherpaStream], turn_s: float) -> list[float]:
    """Feeds audio in real time, 20 ms of each stream every 20 ms. Returns the latency of each text, s."""
    sound = (noise(turn_s * 2)[: int(turn_s * CALL_RATE * 2)] * 20000).astype(np.int16)
    frame, ticks = int(CALL_RATE * TICK_S), int(turn_s / TICK_S)
    turn_ended = [threading.Event() for _ in streams]

    def feed_all() -> None:
        began = time.monotonic()
        for number in range(ticks + len(streams)):
            for start, stream in enumerate(streams):
                if start <= number < start + ticks:
                    stream.feed(sound[(number - start) * frame : (number - start + 1) * frame])
                elif number == start + ticks:
                    turn_ended[start].set()
            time.sleep(max(0.0, began + (number + 1) * TICK_S - time.monotonic()))
        for event in turn_ended:
            event.set()

    async def end_turn(stream: SherpaStream, ended: threading.Event) -> float:
        await asyncio.to_thread(ended.wait)
        began = time.monotonic()
        await stream.end_turn()
        return time.monotonic() - began

    thread = threading.Thread(target=feed_all)
    thread.start()
    latencies_s = await asyncio.gather(*map(end_turn, streams, turn_ended))
    await asyncio.to_thread(thread.join)
    return list(latencies_s)


def main() -> None:
    """Prints the rows."""
    for row in asyncio.run(run(quick=False)):
        print(row)


if __name__ == "__main__":
    main()
