"""The SIP user agent of this process: listeners, trunk accounts, inbound and outbound legs.

pjsua2's objects belong to one thread of ours (`PjsipThread`). PJSIP's own threads enter Python only for callbacks,
which copy facts and post them to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from secrets import randbelow
from uuid import uuid4

import pjsua2 as pj
import structlog

from config.clock import utc_now
from config.errors import StartupError
from config.special_addresses import non_host_networks
from sipcore import _native
from sipcore.audio.pcm_channel import PcmChannel
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_registry import CallRegistry
from sipcore.dialogs.dialog_record import DialogJournal, DialogRecord
from sipcore.dialogs.invite import InvitePath, OutboundInvite, local_host_for, pick_target
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.dialogs.orphaned_dialogs import OrphanedDialogEnd, OrphanedDialogs
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, NameAddr, replace_user, uri_host
from sipcore.pjsip_thread import PjsipThread
from sipcore.resolver.host_table import HostTable
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security import digest, source_guard
from sipcore.security.digest import Credentials
from sipcore.security.unknown_sources import UnknownSources
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.trace.sip_capture import SipCapture, TapReader
from sipcore.transport.listeners import bound_address, ip_versions, open_listeners
from sipcore.transport.tls_identity import TlsIdentity
from sipcore.transport.tls_listener import TlsListener
from sipcore.trunks.pj_account import TrunkAccount, account_config
from sipcore.trunks.qualify_client import QualifyClient
from sipcore.trunks.trunk import Trunk, TrunkStatus
from sipcore.trunks.trunk_accounts import TrunkAccounts
from sipcore.trunks.trunk_uris import refer_domain, request_uri_at

log = structlog.get_logger(__name__)

_CODEC_IDS = {"opus": "opus/48000", "G722": "G722/16000", "PCMU": "PCMU/8000", "PCMA": "PCMA/8000"}
_SPARE_CALLS = 32
"""Entries of PJSUA's call table beyond `max_calls`: a full table answers 486 by itself, so our limit must be reached
first. The rest of the table is for calls that have ended but whose peer does not respond."""
SHUTDOWN_S = 2.0
"""Time that `close` waits for the responses of peers and registrars."""
OPUS_RATE = 16000
"""Opus decodes and encodes at any of its rates; 16 kHz is that of our models, so no resampling is needed."""


class NoSlot(Exception):
    """All slots of the pump are in use."""


class Endpoint:
    """The one SIP endpoint of a process. `on_incoming` is called on the event loop with each new inbound leg. `journal`
    keeps the dialogs of calls with a trunk for the next process."""

    def __init__(
        self,
        settings: EndpointSettings,
        on_incoming: Callable[[Leg], None],
        journal: DialogJournal | None = None,
    ) -> None:
        self.pump = Pump(settings.max_calls + _SPARE_CALLS)
        self._settings = settings
        self._on_incoming = on_incoming
        self._pjsip_thread = PjsipThread()
        self._journal = journal
        self._orphaned_dialogs: OrphanedDialogs | None = None
        self._call_registry: CallRegistry | None = None
        self._endpoint: pj.Endpoint | None = None
        self._accounts: dict[int, TrunkAccount] = {}
        """By IP version: the accounts of calls through trunks without an account of their own."""
        self._accepting = True
        self._qualify_client: QualifyClient | None = None
        self._host_table = HostTable()
        self._trunk_accounts: TrunkAccounts | None = None
        self._trunk_status_times: dict[str, datetime] = {}
        """When the status of each trunk changed last, by its key."""
        self.on_trunk_status: Callable[[str, TrunkStatus], None] | None = None
        """Called with a trunk's key when its status has changed, in more than the expiry of its registration."""
        self.on_registrar_unreached: Callable[[str, bool], None] | None = None
        """Called with a trunk's key as `on_unreached` of `RegistrationClient`."""
        self.on_unresponsive: Callable[[str, str], None] | None = None
        """Called with a host and the one of its several addresses that did not respond."""
        self.unknown_sources = UnknownSources()
        self._sip_port = settings.port
        self.sip_capture = SipCapture()
        self._tap = TapReader(self.sip_capture)
        self._tls_listener = TlsListener(settings)

    async def start(self) -> None:
        """Open the listeners and start the pump. Raises `StartupError` with one clear line."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        self._call_registry = CallRegistry(
            self._pjsip_thread, self.pump, loop, self._on_leg, self._report_unresponsive, self._journal
        )
        self._orphaned_dialogs = OrphanedDialogs(self._pjsip_thread)
        self._trunk_accounts = TrunkAccounts(
            self._pjsip_thread,
            settings,
            self._call_registry.on_invite,
            self._host_table,
            self._report_trunk_status,
            self._report_registrar_unreached,
        )
        self._qualify_client = QualifyClient(
            self._pjsip_thread,
            self._host_table.targets,
            self._account_id,
            self._report_trunk_status,
            self._report_unresponsive,
        )
        try:
            self._tap.start(
                await self._pjsip_thread.run(self._start_on_pjsip_thread, self._call_registry, self._trunk_accounts)
            )
        except pj.Error as error:
            await self.close()
            raise StartupError(f"SIP did not start: {error.reason}") from error
        except StartupError:
            await self.close()
            raise

    async def close(self) -> None:
        """End every leg, unregister, stop the pump, close the listeners. Idempotent."""
        if self._endpoint is not None:
            if self._qualify_client is not None:
                self._qualify_client.close()
            if self._orphaned_dialogs is not None:
                self._orphaned_dialogs.close()
            try:
                if self._call_registry is not None and self._trunk_accounts is not None:
                    await asyncio.gather(
                        self._call_registry.hang_up_all(SHUTDOWN_S), self._trunk_accounts.unregister(SHUTDOWN_S)
                    )
                    await self._trunk_accounts.close()
            finally:  # a process can have one endpoint: the next one needs that this one is gone
                await self._pjsip_thread.run(self._destroy_on_pjsip_thread)
                self._tap.stop()
                _native.tap_remove()
        await self._pjsip_thread.close()

    def set_sources(self, known: Iterable[str], probes: Iterable[str] = ()) -> None:
        """Set the addresses and networks that may send us SIP; `probes` may only send OPTIONS. Takes effect at once."""
        source_guard.set_sources(known, probes)

    def set_host_table(self, table: Mapping[SipHostPort, Sequence[SipTarget]]) -> None:
        """Replace the table of host names, each with its targets in order of preference. Requests to other names fail
        at once. Takes effect at once."""
        self._host_table.set(table)
        if self._trunk_accounts:
            self._trunk_accounts.on_hosts_changed()
        if self._qualify_client:
            self._qualify_client.on_hosts_changed()

    async def set_trunks(self, trunks: Sequence[Trunk]) -> None:
        """Replace the trunks. One that is the same as before is not affected; one that has changed or gone is
        unregistered, while its live calls continue."""
        keys = {trunk.key for trunk in trunks}
        self._trunk_status_times = {key: at for key, at in self._trunk_status_times.items() if key in keys}
        await self._started_trunk_accounts().set(trunks)
        if self._qualify_client:
            self._qualify_client.set(trunks)

    def trunk_status(self, key: str) -> TrunkStatus:
        """The status of a trunk."""
        status = self._trunk_accounts.status(key) if self._trunk_accounts else TrunkStatus("unregistered")
        qualified = self._qualify_client.status(key) if self._qualify_client and status.state == "listening" else None
        return replace(qualified or status, since=self._trunk_status_times.get(key))

    def unregister(self) -> None:
        """Remove the contacts from all registrars, so that no new calls come in; returns at once. Live calls
        continue."""
        if self._trunk_accounts:
            self._trunk_accounts.start_unregister()

    @property
    def tls_files(self) -> TlsFiles:
        """The PEM files of SIP over TLS."""
        return self._settings.tls

    @property
    def certificate(self) -> TlsIdentity:
        """The certificate that SIP over TLS uses now."""
        return self._tls_listener.identity

    async def reload_certificate(self) -> TlsIdentity:
        """Read the PEM files of SIP over TLS again: new connections use their content, present ones continue. Raises
        `UnusableTlsFile`, and nothing changes, or `OSError` when the port could not be opened again."""
        return await self._pjsip_thread.run(self._tls_listener.reload)

    def set_accepting(self, accepting: bool, retry_after_s: int = 10) -> None:
        """While False, OPTIONS and new INVITEs of known sources get 503."""
        self._accepting = accepting
        _native.guard_policy(self._settings.refuse_unknown, accepting, retry_after_s)

    @property
    def sip_port(self) -> int:
        """The UDP port that SIP listens on."""
        return self._sip_port

    @property
    def live_legs(self) -> int:
        """Legs that have not ended."""
        return self._call_registry.live_legs if self._call_registry else 0

    def update_sip_capture(self) -> None:
        """Add all messages received so far to `sip_capture`, instead of after `BATCH_INTERVAL_S`."""
        self._tap.read()

    def log_guard_events(self) -> None:
        """Log what the guard dropped since the last call: one line for each source."""
        source_guard.log_events(self.unknown_sources)
        self._host_table.log_unknown()
        self._tls_listener.log_events()
        if exhaustions := _native.rtp_ports_take_exhaustions():
            log.error("sip.no_rtp_port", calls=exhaustions, hint="widen [sip] rtp_ports (TRUNKLINE_SIP__RTP_PORTS)")

    async def call(
        self,
        to: str,
        *,
        trunk: Trunk | None = None,
        caller: NameAddr | CallerIdentity | None = None,
        sip_call_id: str | None = None,
        headers: HeaderLines = (),
        follow: FollowContact | None = None,
    ) -> Leg:
        """Send an INVITE and return its leg: to a number through a trunk, or without one to a URI
        `sip:user@host:port[;transport=tcp]` whose host is an IP address. From and P-Asserted-Identity show `caller`,
        whose user must need no escapes. Names and values of `headers` hold no line ends. `follow` decides whether a 3xx
        is followed; without it a redirect ends the call. Raises `InviteError` when the INVITE cannot be sent."""
        if not self._accounts or self._call_registry is None:
            raise RuntimeError("the endpoint has not started")

        def find_path(user: str | None, failed_targets: Collection[SipTarget]) -> InvitePath:
            return self._path(to, user, trunk, failed_targets)

        identity = CallerIdentity(caller) if isinstance(caller, NameAddr) else caller
        trunk_key = "" if trunk is None else trunk.key
        invite = OutboundInvite(
            find_path,
            identity,
            sip_call_id or str(uuid4()),
            headers,
            follow,
            trunk_key=trunk_key,
            srtp=self._settings.srtp,
            codecs=() if trunk is None else trunk.codecs,
        )
        leg = await self._call_registry.send_invite(invite)
        leg.refer_domain = None if trunk is None else refer_domain(trunk)
        return leg

    async def open_pcm_channel(self, *, telephone: bool) -> tuple[PcmChannel, int]:
        """Open a slot of the pump for a call without RTP; returns its channel and the slot's handle. `telephone`: as
        over a telephone line. Raises `NoSlot` while all slots are in use. If it is cancelled, the slot is released."""
        channel = PcmChannel(telephone)
        opening = asyncio.ensure_future(self._pjsip_thread.run(channel.open_slot))
        try:
            slot = await asyncio.shield(opening)  # the PJSIP thread opens it in any case
        except asyncio.CancelledError:
            opening.add_done_callback(self._release_opened)
            raise
        if slot is None:
            raise NoSlot
        return channel, slot

    def _release_opened(self, opening: asyncio.Future[int | None]) -> None:
        """Release a slot that nobody waits for any more."""
        if not opening.cancelled() and (slot := opening.result()) is not None:
            self.pump.release(slot)

    async def end_orphaned_dialog(
        self, record: DialogRecord, credentials: Credentials | None
    ) -> asyncio.Future[OrphanedDialogEnd]:
        """Send BYE or CANCEL in a dialog of a process that has died; returns the outcome, which may take 32 s. Raises
        `ConnectionError` and `ValueError` if it cannot be sent."""
        if self._orphaned_dialogs is None:
            raise RuntimeError("the endpoint has not started")
        return await self._orphaned_dialogs.end(record, credentials)

    def _path(
        self, to: str, user: str | None, trunk: Trunk | None, failed_targets: Collection[SipTarget]
    ) -> InvitePath:
        """`user`: the callee in place of `to`."""
        if trunk is None:
            return InvitePath(self._invite_account(uri_host(to)), replace_user(to, user) if user else to)
        path = self._started_trunk_accounts().path(trunk, user or to, failed_targets)
        if path is not None:
            return path
        target, is_last = pick_target(self._host_table.targets(trunk.host_port), failed_targets)
        account, uri = self._invite_account(target.address), request_uri_at(trunk, target, user or to)
        domain = local_host_for(target.address)
        return InvitePath(account, uri, domain, host=trunk.host, target=target, is_last=is_last)

    def _started_trunk_accounts(self) -> TrunkAccounts:
        if self._trunk_accounts is None:
            raise RuntimeError("the endpoint has not started")
        return self._trunk_accounts

    def _on_leg(self, leg: Leg) -> None:
        self.sip_capture.add_leg(leg.sip_call_id, leg.facts.from_tag)
        self._on_incoming(leg)

    def _report_trunk_status(self, key: str, status: TrunkStatus) -> None:
        self._trunk_status_times[key] = utc_now()
        if self.on_trunk_status:
            self.on_trunk_status(key, status)

    def _report_registrar_unreached(self, key: str, for_all: bool) -> None:
        if self.on_registrar_unreached:
            self.on_registrar_unreached(key, for_all)

    def _report_unresponsive(self, host: str, address: str) -> None:
        if self.on_unresponsive:
            self.on_unresponsive(host, address)

    def _invite_account(self, host: str) -> TrunkAccount:
        try:
            return self._account_towards(host)
        except ConnectionError as error:
            raise InviteError("no_local_address", str(error)) from error

    def _account_id(self, host: str) -> int:
        """On the PJSIP thread."""
        return int(self._account_towards(host).getId())

    def _account_towards(self, host: str) -> TrunkAccount:
        """The shared account of the host's IP version. Raises `ConnectionError` when SIP does not listen on it."""
        version = 6 if ":" in host else 4
        if version not in self._accounts:
            raise ConnectionError(f"no INVITE could be sent: SIP does not listen on IPv{version}, see [sip] host")
        return self._accounts[version]

    # ---- on the PJSIP thread ----

    def _start_on_pjsip_thread(self, registry: CallRegistry, trunks: TrunkAccounts) -> int:
        """Returns the file descriptor of the message tap."""
        _native.silence_log()
        if self._settings.max_calls + _SPARE_CALLS > _native.MAX_CALLS:
            raise StartupError(f"limits.max_calls: at most {_native.MAX_CALLS - _SPARE_CALLS} in this build of PJSIP")
        endpoint = self._endpoint = pj.Endpoint()
        endpoint.libCreate()
        endpoint.libInit(_endpoint_config(self._settings))
        _native.install_callbacks()
        _set_addresses(self._settings)
        _native.rtp_symmetric(self._settings.symmetric_rtp)
        _native.rtp_ports(self._settings.rtp_first_port, self._settings.rtp_last_port, randbelow(1 << 16))
        source_guard.set_sources((), ())  # the guard keeps those of a former endpoint
        self.set_host_table({})
        self.set_accepting(True)
        source_guard.set_invite_rate_limit(self._settings.max_invites_per_second)
        _native.challenge_nonce_prefix(digest.NONCE_MARK)
        _native.guard_install()
        _native.local_address_install()
        _native.hangup_install()
        _native.codecs_install()
        if self._orphaned_dialogs:
            self._orphaned_dialogs.install_on_pjsip_thread()
        registry.install_on_pjsip_thread()
        trunks.install_on_pjsip_thread()
        if self._qualify_client:
            self._qualify_client.install_on_pjsip_thread()
        tap = _native.tap_install()
        self._sip_port = open_listeners(endpoint, self._settings)
        self._tls_listener.open()
        endpoint.libStart()
        endpoint.audDevManager().setNoDev()
        _set_codecs(endpoint, self._settings.codecs)
        self.pump.start()
        for version in ip_versions(self._settings.host):
            account = self._accounts[version] = TrunkAccount(registry.on_invite)
            account.create(account_config(self._settings, version), version == ip_versions(self._settings.host)[0])
        numbers = {version: account.getId() for version, account in self._accounts.items()}
        _native.local_address_accounts(numbers.get(4, pj.PJSUA_INVALID_ID), numbers.get(6, pj.PJSUA_INVALID_ID))
        return tap

    def _destroy_on_pjsip_thread(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None:
            return
        if self._trunk_accounts is not None:
            self._trunk_accounts.destroy_on_pjsip_thread()
        for account in self._accounts.values():
            account.shutdown()
            _native.account_detach(int(account.this))  # a traceback may hold it until another endpoint has its number
        self._accounts.clear()
        self.pump.stop()
        _native.refer_client_remove()
        _native.dialog_probe_remove()
        _native.orphaned_dialog_remove()
        _native.hangup_remove()
        _native.codecs_remove()
        _native.local_address_remove()
        _native.guard_remove()
        self._tls_listener.close()
        try:
            endpoint.libDestroy(0 if _native.call_table_used() else pj.PJSUA_DESTROY_NO_RX_MSG)
            if self._call_registry is not None:
                self._call_registry.drop_all_on_pjsip_thread()
        finally:
            endpoint.__swig_destroy__(endpoint)  # now: a traceback may hold the last reference


def _set_addresses(settings: EndpointSettings) -> None:
    networks = tuple(map(str, settings.local_networks))
    _native.local_address_set(bound_address(settings.host), settings.public_address or "", networks)
    _native.media_networks(tuple(map(str, settings.media_networks)), tuple(map(str, non_host_networks())))


def _endpoint_config(settings: EndpointSettings) -> pj.EpConfig:
    config = pj.EpConfig()
    config.logConfig.level = 0
    config.logConfig.consoleLevel = 0
    config.uaConfig.maxCalls = _native.MAX_CALLS
    config.uaConfig.threadCnt = 1
    config.uaConfig.userAgent = "Trunkline"
    config.medConfig.clockRate = 8000
    config.medConfig.sndClockRate = 8000
    config.medConfig.maxMediaPorts = settings.max_calls + _SPARE_CALLS + 8
    config.medConfig.noVad = True
    config.medConfig.ecTailLen = 0
    return config


def _set_codecs(endpoint: pj.Endpoint, names: tuple[str, ...]) -> None:
    """Offer these codecs, in that order, and no others."""
    priorities = {_CODEC_IDS[name]: 255 - rank for rank, name in enumerate(names)}
    for info in endpoint.codecEnum2():
        priority = next((p for prefix, p in priorities.items() if info.codecId.startswith(prefix)), 0)
        endpoint.codecSetPriority(info.codecId, priority)
    _native.g722_full_scale()
    if "opus" in names:
        _set_opus(endpoint)


def _set_opus(endpoint: pj.Endpoint) -> None:
    opus = endpoint.getCodecOpusConfig()
    opus.sample_rate = OPUS_RATE
    opus.channel_cnt = 1
    opus.bit_rate = 24000
    endpoint.setCodecOpusConfig(opus)
    parameters = endpoint.codecGetParam(_CODEC_IDS["opus"])
    for name in ("stereo", "sprop-stereo"):  # without these, PJMEDIA makes the stream stereo for a peer with stereo=1
        mono = pj.CodecFmtp()
        mono.name, mono.val = name, "0"
        parameters.setting.decFmtp.append(mono)
    endpoint.codecSetParam(_CODEC_IDS["opus"], parameters)
