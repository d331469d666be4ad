"""A running server: its readiness, and its drain at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from calls.admission.load_shedding import ModelLoadShedder
from calls.admission.rejection import RETRY_AFTER_S
from calls.service import CallService
from calls.trunks.source_allowlist import SourceAllowlist
from calls.webhooks.delivery import WebhookSender
from config.settings import Settings
from media.engine.engine import AudioEngine
from sipcore.endpoint import Endpoint
from storage.database.database import Database
from storage.nodes.membership import NodeLoad
from trunkline.server.api_certificate import ApiCertificate
from trunkline.server.certificate_reload import CertificateReloader
from trunkline.server.signals import ProcessSignals

WEBHOOK_DRAIN_S: Final = 5.0
"""How long a stop waits for the webhooks of the last calls; the next start sends the rest."""
SECOND_SIGINT_WEBHOOK_DRAIN_S: Final = 1.0
"""The same after a second SIGINT."""

log = structlog.get_logger()


@dataclass
class Server:
    """A running server. `sip_port` and `api_origin` are the port and the origin that it listens on, also where the
    settings leave them to the system."""

    settings: Settings
    database: Database
    endpoint: Endpoint
    engine: AudioEngine
    calls: CallService
    webhook_sender: WebhookSender
    sources: SourceAllowlist
    certificate_reloader: CertificateReloader
    api_certificate: ApiCertificate
    sip_port: int
    hand_over: Callable[[], Coroutine[Any, Any, None]]
    """Waits until other nodes have taken over what this one does for all, once it drains."""
    load_shedder: ModelLoadShedder | None = None
    api_origin: str = ""
    draining: bool = False
    parts: dict[str, str | None] = field(default_factory=lambda: {"sip": None, "models": None, "audio": None})
    """The readiness of each part: None if ready, else the reason. SIP and models are ready once there is a server;
    `check_audio` updates `audio`."""
    on_accepting: Callable[[], None] = lambda: None
    """Called after calls were added or removed, or calls are rejected from now on, or not any more."""
    _checked_ticks: int = -1
    _watched_ticks: tuple[int, int] = (-1, -1)

    def readiness(self) -> Mapping[str, str | None]:
        """The readiness of each part: None if ready, else the reason."""
        return {**self.parts, "calls": "draining" if self.draining else None}

    def check_audio(self) -> None:
        """Set the readiness of `audio`: it is not ready if the engine has not ticked since the last check."""
        ticks = self.engine.stats.ticks
        self.parts["audio"] = "the audio engine stands still" if ticks == self._checked_ticks else None
        self._checked_ticks = ticks

    def audio_advances(self) -> bool:
        """True if both the pump and the audio engine have ticked since the last call."""
        before, self._watched_ticks = self._watched_ticks, (self.endpoint.pump.stats().ticks, self.engine.stats.ticks)
        return all(ticks != earlier for ticks, earlier in zip(self._watched_ticks, before, strict=True))

    def update_accepting(self) -> None:
        """Set whether the endpoint accepts calls, and so its responses to INVITE and OPTIONS."""
        self.endpoint.set_accepting(self.rejection_reason() is None, RETRY_AFTER_S)
        self.on_accepting()

    def rejection_reason(self) -> str | None:
        """Why new calls are rejected; None if they are accepted."""
        if self.draining or self.calls.is_full:
            return "draining" if self.draining else "full"
        return None if self.load_shedder is None else self.load_shedder.shedding_reason

    def node_load(self) -> NodeLoad:
        """What this node reports to the others."""
        capacity = self.settings.limits.max_calls
        return NodeLoad("draining" if self.draining else "up", self.calls.active_call_count, capacity)

    def reload_certificates(self) -> None:
        """Read the certificates again, of SIP and of the API; returns at once."""
        self.certificate_reloader.reload()
        self.api_certificate.reload()

    async def run_until_stopped(self, signals: ProcessSignals) -> None:
        """Serve until a signal requests a drain; then wait for the live calls to end, for `[sip] drain_timeout_s` or
        until a second SIGINT. Numbers stay registered until the last call has ended, because its requests may come
        through the registration, or until other nodes have registered them, because new calls go there."""
        await signals.drain.wait()
        self.draining = True
        timeout_s = self.settings.sip.drain_timeout_s
        log.info("draining", live_calls=self.calls.active_call_count, timeout_s=timeout_s)
        self.update_accepting()
        drained = asyncio.ensure_future(self.calls.drain(timeout_s))
        handed_over = asyncio.ensure_future(self.hand_over())
        stop_now = asyncio.ensure_future(signals.stop_now.wait())
        await asyncio.wait((drained, stop_now), return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            self.calls.end_all_without_analysis()
        await drained
        await asyncio.wait((handed_over, stop_now), return_when=asyncio.FIRST_COMPLETED)
        handed_over.cancel()
        stop_now.cancel()
        self.endpoint.unregister()
        if not self.settings.standby:
            await self._drain_webhooks(signals)

    async def _drain_webhooks(self, signals: ProcessSignals) -> None:
        """Send the webhooks that are due. After `WEBHOOK_DRAIN_S` no further one is begun, and those in flight may end
        and their results be stored unless a second SIGINT comes."""
        sending = asyncio.ensure_future(self.webhook_sender.drain(WEBHOOK_DRAIN_S))
        stop_now = asyncio.ensure_future(_wait_for_second_sigint(signals))
        await asyncio.wait((sending, stop_now), return_when=asyncio.FIRST_COMPLETED)
        stop_now.cancel()
        if not (sending.done() and sending.result()):
            log.warning("webhooks.left_for_next_start", cut_off=self.webhook_sender.under_way > 0)
        sending.cancel()


async def _wait_for_second_sigint(signals: ProcessSignals) -> None:
    await signals.stop_now.wait()
    await asyncio.sleep(SECOND_SIGINT_WEBHOOK_DRAIN_S)
