"""A running server: how it stands, and how it comes to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from calls.admission.model_load import ModelLoadShedder
from calls.admission.rejection import RETRY_AFTER_S
from calls.service import CallService
from calls.trunks.source_allowlist import SourceAllowlist
from calls.webhooks.delivery import WebhookSender
from config.settings import Settings
from media.engine.engine import AudioEngine
from sipcore.endpoint import Endpoint
from storage.database.database import Database
from trunkline.server.certificate_reload import CertificateReloader
from trunkline.server.signals import StopSignals

LAST_WEBHOOKS_S: Final = 5.0
"""How long a stop waits for the webhooks of the last calls; what is left is sent at the next start."""
HURRIED_S: Final = 1.0
"""The same after a second SIGINT."""

log = structlog.get_logger()


@dataclass
class Server:
    """A running server. `sip_port` and `api_origin` are where it really listens."""

    settings: Settings
    database: Database
    endpoint: Endpoint
    engine: AudioEngine
    calls: CallService
    webhook_sender: WebhookSender
    sources: SourceAllowlist
    certificate: CertificateReloader
    sip_port: int
    load: ModelLoadShedder | None = None
    api_origin: str = ""
    draining: bool = False
    parts: dict[str, str | None] = field(default_factory=lambda: {"sip": None, "models": None, "audio": None})
    """None when ready, else why not. SIP and models are up once there is a server; `watch_audio` follows the sound."""
    _ticks_seen: int = -1

    def readiness(self) -> Mapping[str, str | None]:
        """Parts of the server: None when ready, else why not."""
        return {**self.parts, "calls": "draining" if self.draining else None}

    def watch_audio(self) -> None:
        """Look whether the tick thread still moves."""
        ticks = self.engine.stats.ticks
        self.parts["audio"] = "the audio engine stands still" if ticks == self._ticks_seen else None
        self._ticks_seen = ticks

    def log_call_readiness(self) -> None:
        """To whoever phones or asks with OPTIONS, from now on."""
        self.endpoint.set_accepting(self.why_refused() is None, RETRY_AFTER_S)

    def why_refused(self) -> str | None:
        """Why no further call is taken; None when calls are."""
        if self.draining or self.calls.is_full:
            return "draining" if self.draining else "full"
        return None if self.load is None else self.load.why_closed

    async def until_stopped(self, stop: StopSignals) -> None:
        """Serve until a signal asks to drain; then wait for live calls as the settings say, or until the second one.
        Registrations stay until the last call has ended: what belongs to it may come by their way."""
        await stop.drain.wait()
        self.draining = True
        timeout_s = self.settings.sip.drain_timeout_s
        log.info("draining", live_calls=self.calls.active_call_count, timeout_s=timeout_s)
        self.log_call_readiness()
        drained = asyncio.ensure_future(self.calls.drain(timeout_s))
        at_once = asyncio.ensure_future(stop.now.wait())
        await asyncio.wait((drained, at_once), return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
        if not drained.done():
            self.calls.end_all_without_analysis()
        await drained
        self.endpoint.unregister()
        if not self.settings.standby:
            await self._send_last_webhooks(stop)

    async def _send_last_webhooks(self, stop: StopSignals) -> None:
        """Those that are due; nothing new is sent after `LAST_WEBHOOKS_S`, and what is under way then may end, unless
        a second SIGINT comes."""
        sending = asyncio.ensure_future(self.webhook_sender.drain(LAST_WEBHOOKS_S))
        hurried = asyncio.ensure_future(_wait_for_second_signal(stop))
        await asyncio.wait((sending, hurried), return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not (sending.done() and sending.result()):
            log.warning("webhooks.left_for_next_start", cut_off=not sending.done())
        sending.cancel()


async def _wait_for_second_signal(stop: StopSignals) -> None:
    await stop.now.wait()
    await asyncio.sleep(HURRIED_S)
