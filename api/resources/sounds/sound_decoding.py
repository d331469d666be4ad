"""Decoding of sound files of users: few at a time, so that it leaves memory and processor time to calls."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final

from calls.fair_semaphore import FairSemaphore
from media.audio_port import Samples
from media.background import decoder

MAX_DECODING: Final = 3
_DECODING: Final = ThreadPoolExecutor(MAX_DECODING, thread_name_prefix="sound-decoding")
"""Each of its threads waits for one decoding process, also after the client has disconnected, which limits the number
of processes."""
_DECODE_SLOTS: Final = FairSemaphore(MAX_DECODING)
"""An organization gets at most two of them, so that the first sound of another one is decoded at once."""


async def decode_sound(owner: str, content: bytes, max_seconds: int) -> Samples:
    """Decode a file of an organization, as `media.background.decoder.decode` does. Raises `InvalidSound`."""
    async with _DECODE_SLOTS.slot(owner):
        work = partial(copy_context().run, decoder.decode, content, max_seconds)
        return await asyncio.get_running_loop().run_in_executor(_DECODING, work)
