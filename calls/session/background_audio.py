"""Background sounds of calls."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from calls.session.audio_loop_cache import AudioLoopCache
from media.background.files import read_wav
from storage.background_sounds.sounds import path_of

DUCKED_VOLUME: Final = 10 ** (-10 / 20)
"""The factor of a sound's volume under the agent's speech: 10 dB less sounds half as loud, so the sound stays present
and recedes. Speech is about 22 dB under full scale and a preset 26, so even at volume 1 there are 14 dB between them;
more than 15 add nothing to the intelligibility of speech (IEC 60268-16)."""


class BackgroundSounds:
    """The background sounds of all calls on one pump. For the event loop."""

    def __init__(self, loops: AudioLoopCache, data_dir: Path) -> None:
        self._loops = loops
        self._data_dir = data_dir

    async def play(self, slot: int, sound_id: str, rate: int, volume: float) -> None:
        """Play the sound under the call in a slot of this rate until its end, at this volume (0..1), and at
        `DUCKED_VOLUME` of it while the agent speaks. Raises `OSError` or `InvalidSound` when it cannot be read."""
        loop = await self._loops.get(sound_id, rate, partial(read_wav, path_of(self._data_dir, sound_id)))
        self._loops.pump.set_background(slot, loop, volume, volume * DUCKED_VOLUME)
