"""Someone who listens in to a call: both sides as stereo frames, on the event loop. Nothing that a listener does, or
does not do, reaches the call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

import numpy as np
import soxr

from calls.call_record.timeline import Timeline
from media.audio_port import Samples
from media.engine.call_audio import CallAudio

RATE: Final = 16000
"""Rate of the frames, Hz."""
FRAME_MS: Final = 20
CHANNELS: Final = 2
FRAME_BYTES: Final = RATE * FRAME_MS // 1000 * CHANNELS * 2
MAX_WAITING_MS: Final = 1000
"""Audio that waits for a listener; of more, the oldest is dropped."""
_BLOCKS: Final = MAX_WAITING_MS // FRAME_MS


class CallListener:
    """An `AudioTap`. `frames` yields the audio until the call has none any more; `close` ends it before."""

    def __init__(self, audio: CallAudio, timeline: Callable[[], Timeline | None] = lambda: None) -> None:
        """Begins to listen. `timeline` returns that of the call, if it has one yet. On the event loop."""
        self._audio = audio
        self._timeline = timeline
        self._end_session: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._blocks: deque[tuple[Samples, Samples]] = deque(maxlen=_BLOCKS)
        self._wake = asyncio.Event()
        self._is_over = False
        self._dropped = 0
        self._resampler = None
        if audio.rate != RATE:
            self._resampler = soxr.ResampleStream(audio.rate, RATE, CHANNELS, dtype="int16", quality="QQ")  # no delay
        audio.add_tap(self)

    @property
    def dropped_ms(self) -> int:
        """Audio that was dropped because the listener did not take it in time."""
        return self._dropped * FRAME_MS

    def on_audio(self, rx_audio: Samples, tx_audio: Samples) -> None:
        """See `AudioTap`."""
        self._dropped += len(self._blocks) == _BLOCKS
        self._blocks.append((rx_audio, tx_audio))
        self._wake_up()

    def on_end(self) -> None:
        """See `AudioTap`."""
        self._is_over = True
        self._wake_up()

    async def frames(self) -> AsyncIterator[bytes]:
        """Yields `FRAME_BYTES` of signed 16-bit little-endian stereo PCM each: the caller left, the agent right."""
        rest = b""
        while not self._is_over or self._blocks:
            await self._wake.wait()
            self._wake.clear()
            while self._blocks:
                rest += self._stereo(*self._blocks.popleft())
                for at in range(0, len(rest) - FRAME_BYTES + 1, FRAME_BYTES):
                    yield rest[at : at + FRAME_BYTES]
                rest = rest[len(rest) - len(rest) % FRAME_BYTES :]

    def enter_into_timeline(self, name: str) -> None:
        """The timeline of the call has from now on that a person of this name listens."""
        if (timeline := self._timeline()) is not None:
            self._end_session = partial(timeline.end_listening, timeline.begin_listening(name))

    def close(self) -> None:
        """Listen no longer. Idempotent. What lasted until the end of the call has no end of its own."""
        if self._end_session is not None and not self._is_over:
            self._end_session()
        self._audio.remove_tap(self)
        self.on_end()

    def _stereo(self, rx_audio: Samples, tx_audio: Samples) -> bytes:
        stereo = np.stack((rx_audio, tx_audio), axis=1)
        if self._resampler is not None:
            stereo = self._resampler.resample_chunk(stereo)
        return stereo.astype("<i2").tobytes()

    def _wake_up(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)
