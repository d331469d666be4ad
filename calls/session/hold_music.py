"""Hold music of calls: an agent's own, or one of the built-in pieces.

It is mixed into the sent audio by the pump, so it goes on through re-INVITEs and changes of the codec."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

import structlog

from calls.session.audio_loop_cache import AudioLoopCache
from calls.session.background_audio import BackgroundSounds
from media.background.files import InvalidSound, read_wav
from media.hold_music.pieces import PIECES
from storage.agents.agents import Agent
from storage.background_sounds.sounds import path_of

if TYPE_CHECKING:
    from sipcore._native import Background

DUCKED_VOLUME: Final = 10 ** (-14 / 20)
"""The factor of the music's volume under speech. Music has the level of speech, so 14 dB are between them, as between
speech and the loudest background sound."""
_log = structlog.get_logger()


class HoldMusic:
    """The hold music of all calls on one pump. For the event loop."""

    def __init__(self, loops: AudioLoopCache, data_dir: Path, background_sounds: BackgroundSounds) -> None:
        self._loops = loops
        self._data_dir = data_dir
        self._background_sounds = background_sounds

    async def play(self, slot: int, rate: int, agent: Agent, call_id: str) -> None:
        """Play the agent's hold music in a slot of this rate (Hz) until `stop`, in place of its background sound, and
        softer while something is said. Without music of the agent, or if it cannot be read, it is a built-in piece, the
        same each time in a call. The first call that plays a piece waits up to a second for it. Raises `KeyError` if
        the call has ended meanwhile."""
        loop = await self._own_music(rate, agent, call_id) or await self._piece(rate, call_id)
        self._loops.pump.set_background(slot, loop, 1.0, DUCKED_VOLUME)

    async def stop(self, slot: int, rate: int, agent: Agent, call_id: str) -> None:
        """Fade the music out, and play the agent's background sound again if it has one. A `play` that has not returned
        must be cancelled before. Raises `KeyError` if the call has ended."""
        self._loops.pump.set_background(slot, None, 0.0, 0.0)
        sound_id = agent.background_sound_id
        if sound_id is None:
            return
        try:
            await self._background_sounds.play(slot, sound_id, rate, agent.background_sound_volume)
        except (OSError, InvalidSound) as error:
            _log.warning("call.without_background", call_id=call_id, sound_id=sound_id, error=str(error))

    async def _own_music(self, rate: int, agent: Agent, call_id: str) -> Background | None:
        """The music of the agent; None if it has none or it cannot be read."""
        music_id = agent.hold_music_id
        if music_id is None:
            return None
        try:
            return await self._loops.get(music_id, rate, partial(read_wav, path_of(self._data_dir, music_id)))
        except (OSError, InvalidSound) as error:
            _log.warning("call.without_hold_music", call_id=call_id, agent_id=agent.id, error=str(error))
            return None

    async def _piece(self, rate: int, call_id: str) -> Background:
        """The piece of this call: calls take turns by their ids."""
        piece = PIECES[crc32(call_id.encode()) % len(PIECES)]
        return await self._loops.get(f"hold music {piece.key}", rate, piece.render)
