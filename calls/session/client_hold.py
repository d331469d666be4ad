"""Hold of one leg by a client of the API (`POST /v1/calls/{id}/hold`)."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from calls.session.leg_hold_music import LegHoldMusic
from media.engine.call_audio import CallAudio

log = structlog.get_logger()


class ClientHold:
    """The peer of a leg hears hold music while a client has put it on hold; nothing is heard from it, and the agent's
    speech waits. No re-INVITE is sent. Independent of a hold by the peer: each must be lifted for itself. For the event
    loop. `on_change` is called after each change."""

    def __init__(self, call_id: str, music: LegHoldMusic) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._call_id = call_id
        self._music = music
        self._audio: CallAudio | None = None
        self._is_on = False

    @property
    def is_on(self) -> bool:
        """True while a client has put the peer on hold."""
        return self._is_on

    def attach(self, audio: CallAudio) -> None:
        """The audio of the leg is in the engine."""
        self._audio = audio
        if self._is_on:
            audio.set_held(True)

    def set(self, on: bool) -> None:
        """Put the peer on hold, or resume. Idempotent."""
        if on is self._is_on:
            return
        self._is_on = on
        if on:
            log.info("call.held", call_id=self._call_id, by="client")
        else:
            log.info("call.resumed", call_id=self._call_id, by="client")
        if self._audio is not None:
            self._audio.set_held(on)
        self._music.set("api_hold", on)
        self.on_change()
