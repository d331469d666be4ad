"""The hold music of one leg: it plays while there is a reason for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import structlog

from calls.session.hold_music import HoldMusic
from sipcore.dialogs.call_leg import CallLeg
from storage.agents.agents import Agent

HoldMusicReason = Literal["transfer", "api_hold", "held_by_other_leg"]
"""Why a leg hears hold music: it waits for a transfer's target, a client has put it on hold, or the leg that it is
connected with has."""
_log = structlog.get_logger()


class LegHoldMusic:
    """The agent's hold music on one leg, from the first reason until the last one ends. For the event loop. Without
    `music`, and before the leg has audio, there is silence."""

    def __init__(self, music: HoldMusic | None, leg: CallLeg, agent: Agent, call_id: str) -> None:
        self._music = music
        self._leg = leg
        self._agent = agent
        self._call_id = call_id
        self._reasons: set[HoldMusicReason] = set()
        self._change: asyncio.Task[None] | None = None
        """The latest start or stop; the ones before are finished or cancelled."""

    @property
    def is_playing(self) -> bool:
        """True while there is a reason."""
        return bool(self._reasons)

    def set(self, reason: HoldMusicReason, on: bool) -> None:
        """Begin or end a reason; returns at once."""
        was_playing = self.is_playing
        if on:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        if self.is_playing is not was_playing:
            self._restart()

    def end_background(self) -> None:
        """End the agent's background sound; it does not follow the music any more."""
        self._agent = replace(self._agent, background_sound_id=None)
        self._restart()

    async def close(self) -> None:
        """The call ends: no more changes."""
        self._reasons.clear()
        if self._change is not None:
            self._change.cancel()
            await asyncio.wait((self._change,))

    def _restart(self) -> None:
        if self._change is not None:
            self._change.cancel()  # it goes no further than where it waits now
        self._change = asyncio.create_task(self._apply())

    async def _apply(self) -> None:
        music, media = self._music, self._leg.media
        if music is None or media is None:
            return
        change = music.play if self.is_playing else music.stop
        try:
            await change(media.slot, media.rate, self._agent, self._call_id)
        except KeyError:
            pass  # the call has ended
        except Exception as error:  # noqa: BLE001 - the call goes on without
            _log.warning("call.without_hold_music", call_id=self._call_id, agent_id=self._agent.id, error=repr(error))
