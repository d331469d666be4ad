"""Speech to text for many calls by a Zipformer of the real shape (`bench.models.random_zipformer`): decoded in batches
and one by one, with the two searches, and how long a caller waits for the text of a turn when others speak."""

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
    """The rows of the table. A minute; `quick`: half of that."""
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        path = Path(folder)
        await asyncio.to_thread(random_zipformer.write, path)
        rows = await asyncio.to_thread(_factors, path, quick)
        recognizer, tokens = await asyncio.to_thread(_recognizer, path, True), read_tokens(path / "tokens.txt")
        for most in (None, 1):
            model = await asyncio.to_thread(_loaded, recognizer, tokens, most)
            for calls in (4, 16) if quick else (1, 4, 8, 16, 32):
                rows.append(await _turns(model, calls, "one by one" if most else "together"))
            await asyncio.to_thread(model.close)
    return rows


def _loaded(recognizer: Any, tokens: Tokens, most: int | None) -> SherpaSpeechToText:
    return SherpaSpeechToText("zipformer", recognizer, tokens, languages=("en",), biased=False, threads=1, most=most)


def _recognizer(folder: Path, beam: bool) -> Any:
    make = ENGINES["zipformer"]
    paths = {role: str(folder / ("tokens.txt" if role == "tokens" else f"{role}.onnx")) for role in make.files}
    vocabulary = folder / "bpe.vocab"
    tokens = read_tokens(folder / "tokens.txt")
    vocabulary.write_text("".join(f"{symbol}\t{-place}\n" for place, symbol in enumerate(tokens.symbols)))
    return recognizer_config(make, paths, 1, (tokens.unit, str(vocabulary)) if beam else None).recognizer()


def _factors(folder: Path, quick: bool) -> list[Row]:
    """Seconds of a core for a second of a caller's sound, by the number of streams in a batch."""
    rows = []
    for search, beam in (("greedy", False), ("beam", True)):
        recognizer = _recognizer(folder, beam)
        speed = streaming_speed(
            recognizer, measure_chunk_timing(recognizer), (1, 4, 16) if quick else (1, 2, 4, 8, 16, 32)
        )
        for count, factor in speed.real_time_factor.items():
            rows.append({"what": "real-time factor", "search": search, "batch": count, "factor": round(factor, 4)})
    return rows


async def _turns(model: SherpaSpeechToText, calls: int, how: str) -> Row:
    """All callers speak at once for some seconds, and end their turns one after another."""
    streams = [model.open(rate=CALL_RATE, language=None, on_words=lambda words: None) for _ in range(calls)]
    began = time.process_time()
    waits = await _speak(streams)
    took = time.process_time() - began
    for stream in streams:
        stream.close()
    return {
        "what": "text after a turn's end",
        "calls": calls,
        "batch": how,
        "p50_ms": round(float(np.percentile(waits, 50)) * 1000),
        "p95_ms": round(float(np.percentile(waits, 95)) * 1000),
        "core_s_per_s": round(took / TURN_S / calls, 3),
    }


async def _speak(streams: Sequence[SherpaStream]) -> list[float]:
    """How long each waits for its text, in s. Sound comes as it does in calls: 20 ms of each, every 20 ms."""
    sound = (noise(TURN_S * 2)[: int(TURN_S * CALL_RATE * 2)] * 20000).astype(np.int16)
    frame = int(CALL_RATE * TICK_S)
    over = [threading.Event() for _ in streams]

    def tick() -> None:
        began = time.monotonic()
        for number in range(int(TURN_S / TICK_S) + len(streams)):
            for at, stream in enumerate(streams):
                if at <= number < at + int(TURN_S / TICK_S):
                    stream.feed(sound[(number - at) * frame : (number - at + 1) * frame])
                elif number == at + int(TURN_S / TICK_S):
                    over[at].set()
            time.sleep(max(0.0, began + (number + 1) * TICK_S - time.monotonic()))
        for event in over:
            event.set()

    async def turn(stream: SherpaStream, ended: threading.Event) -> float:
        await asyncio.to_thread(ended.wait)
        began = time.monotonic()
        await stream.end_turn()
        return time.monotonic() - began

    thread = threading.Thread(target=tick)
    thread.start()
    waits = await asyncio.gather(*(turn(stream, ended) for stream, ended in zip(streams, over, strict=True)))
    await asyncio.to_thread(thread.join)
    return list(waits)


def main() -> None:
    """Print the rows."""
    for row in asyncio.run(run(quick=False)):
        print(row)


if __name__ == "__main__":
    main()
