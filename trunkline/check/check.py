"""`trunkline check` and `trunkline doctor`: what a working server needs, with a remedy for each requirement that is not
met."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import structlog

from config.clock import utc_now
from config.errors import TrunklineError
from config.settings import Settings
from media.audio_port import INFO_COLUMNS, Samples, row_of
from media.vad.silero import silero_path
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.transport.tls_identity import read_identity
from storage.database import file_permissions, secret_key, server_lock
from storage.knowledge import pgvector_index
from trunkline.check import carriers, options_probe, recordings, remote_models, sandbox
from trunkline.check import host as host_checks
from trunkline.check import models as check_models
from trunkline.check import sip as check_sip
from trunkline.organization_admin import open_database

TONE_HZ: Final = 440
TONE_S: Final = 0.5
AUDIO_WAIT_S: Final = 5.0
"""Longest wait for the test call's answer, and for its audio."""
MIN_PEAK: Final = 1000
"""Smallest peak of the received tone (int16); it is sent with 8000."""


@dataclass(frozen=True)
class CheckResult:
    """What a check found: its lines; the problem with its remedy if it is `FAIL`, an advice if it is `note`."""

    name: str
    state: Literal["ok", "note", "FAIL"]
    lines: list[str]


Check = tuple[str, Callable[[Settings], Awaitable[str]]]
"""A check by the name of its line."""
OnCheck = Callable[[str, int, int], None]
"""Called before each check with its name, the number of checks that are done, and that of all."""


def _report_nothing(name: str, done: int, total: int) -> None:
    """The progress is not shown."""


async def check(settings: Settings, on_check: OnCheck = _report_nothing) -> AsyncIterator[CheckResult]:
    """Checks whether this machine can serve calls: the server's parts, its models and their capacity, a test call."""
    models = check_models.ModelChecks()
    structlog.configure(processors=[models.capture_log, _drop_event])  # the printed lines replace the log
    checks: list[Check] = [
        ("settings", _settings),
        ("data", _data),
        ("database", _database),
        *recordings.checks(settings),
        ("models", models.names_and_speed),
        ("languages", models.languages),
        ("load checks", models.trials),
        ("capacity", models.capacity),
        *await remote_models.checks(settings),
        ("voice activity", _voice_activity),
        ("workers", sandbox.check_sandbox),
        *_PORTS,
        ("trunks", check_sip.trunks),
        *await carriers.checks(settings),
        ("audio path", _audio_path),
    ]
    async for result in _run(checks, settings, on_check):
        yield result


async def doctor(settings: Settings, on_check: OnCheck = _report_nothing) -> AsyncIterator[CheckResult]:
    """Checks why calls do not come through: what surrounds the server. Loads no model and places no call."""
    structlog.configure(processors=[_drop_event])
    checks: list[Check] = [
        ("network", host_checks.network),
        *_PORTS,
        ("API certificate", host_checks.api_certificate),
        ("clock", host_checks.clock),
        ("priority", host_checks.priority),
        ("disk", host_checks.disk),
        ("database", _database),
        *recordings.checks(settings),
        ("trunks", options_probe.trunks),
        *await carriers.checks(settings),
    ]
    async for result in _run(checks, settings, on_check):
        yield result


async def _run(checks: Sequence[Check], settings: Settings, on_check: OnCheck) -> AsyncIterator[CheckResult]:
    """Run the checks one after the other."""
    for number, (name, run_check) in enumerate(checks):
        on_check(name, number, len(checks))
        try:
            yield CheckResult(name, "ok", (await run_check(settings)).splitlines())
        except host_checks.Advice as advice:
            yield CheckResult(name, "note", str(advice).splitlines())
        except (TrunklineError, OSError) as error:
            yield CheckResult(name, "FAIL", [str(error) or type(error).__name__])


def _drop_event(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    raise structlog.DropEvent


async def _settings(settings: Settings) -> str:
    return f"data in {settings.data_dir.resolve()}, links in webhooks begin with {settings.public_origin}"


async def _data(settings: Settings) -> str:
    await asyncio.to_thread(file_permissions.make_folder, settings.data_dir)
    disk = os.statvfs(settings.data_dir)
    free = f"{disk.f_bavail * disk.f_frsize / 2**30:.1f} GiB free"
    return f"{free}, in use by a running server" if server_lock.is_locked(settings.data_dir) else free


async def _database(settings: Settings) -> str:
    """Raises `StartupError` if the database cannot be opened, or the secret key is not its own."""
    async with open_database(settings) as database:
        await secret_key.load(database, settings.secret_key_path)
        if database.is_sqlite:
            return database.name
        pgvector = await database.read(pgvector_index.find)
        by = pgvector.problem or f"version {pgvector.version}"
        place = "is used" if pgvector.problem is None else "is not used: vectors are compared in the server's memory"
        return f"{database.name}\nknowledge by meaning: pgvector {place} ({by})"


async def _voice_activity(settings: Settings) -> str:
    return str(silero_path().name)


async def _api_port(settings: Settings) -> str:
    api, kind = settings.api, (socket.SOCK_STREAM,)
    ports = _port_state(settings, api.host, api.port, kind, "api")
    if not api.https_port:
        return ports
    return f"{ports}\nHTTPS {_port_state(settings, api.host, api.https_port, kind, 'api', 'https_port')}"


async def _sip_ports(settings: Settings) -> str:
    kinds = (socket.SOCK_DGRAM, socket.SOCK_STREAM) if settings.sip.tcp else (socket.SOCK_DGRAM,)
    return _port_state(settings, settings.sip.host, settings.sip.port, kinds, "sip")


async def _sip_over_tls(settings: Settings) -> str:
    """Raises `OSError` if there is a TLS port without a valid certificate."""
    sip = settings.sip
    identity = await asyncio.to_thread(read_identity, TlsFiles(sip.tls_cert, sip.tls_key, sip.tls_ca))
    if identity.expires_at is None:
        if sip.tls_port:
            raise OSError("sip.tls_port needs sip.tls_cert and sip.tls_key")
        return "outbound connections to trunks only, no TLS port is open ([sip] tls_port)"
    days_left = identity.days_left(utc_now())
    if days_left is not None and days_left < 0:
        raise OSError(f"the certificate {sip.tls_cert} expired on {identity.expires_at:%Y-%m-%d}")
    port = _port_state(settings, sip.host, sip.tls_port, (socket.SOCK_STREAM,), "sip", "tls_port")
    return f"{port}, certificate for {', '.join(identity.names) or 'no name'}, {days_left} days left"


def _port_state(
    settings: Settings, host: str, port: int, kinds: tuple[socket.SocketKind, ...], section: str, key: str = "port"
) -> str:
    """Bind the port and close it. Raises `OSError` if another program uses it; a running server may."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in kinds:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if server_lock.is_locked(settings.data_dir):
                    return f"{host}:{port}, in use by the running server"
                variable = f"TRUNKLINE_{section.upper()}__{key.upper()}"
                raise OSError(f"{host}:{port}: {error.strerror}; set [{section}] {key} ({variable})") from error
    return f"{host}:{port} free"


async def _audio_path(settings: Settings) -> str:
    """Call this server on loopback: a tone that the callee sends must arrive at the caller. Raises `OSError`."""
    legs: asyncio.Queue[Leg] = asyncio.Queue()
    first, last = settings.sip.rtp_port_range
    endpoint = Endpoint(
        EndpointSettings(
            "127.0.0.1", 0, codecs=settings.sip.codecs, max_calls=4, rtp_first_port=first, rtp_last_port=last
        ),
        legs.put_nowait,
    )
    await endpoint.start()
    try:
        endpoint.set_sources(["127.0.0.1"])
        callee, caller = await _call_self(endpoint, legs)
        is_received = await asyncio.to_thread(_receives_tone, endpoint, caller, callee)
        priority = "real-time" if endpoint.pump.stats().realtime else "ordinary priority"
    finally:
        await endpoint.close()
    if not is_received:
        raise OSError("a test call on 127.0.0.1 carried no audio: does a firewall block it?")
    return f"a test call carries audio ({callee.codec}, {callee.rate} Hz, pump at {priority})"


async def _call_self(endpoint: Endpoint, legs: asyncio.Queue[Leg]) -> tuple[Media, Media]:
    """The media of the callee's and of the caller's leg of a call to this endpoint. Raises `OSError`."""
    try:
        async with asyncio.timeout(AUDIO_WAIT_S):
            caller = await endpoint.call(f"sip:check@127.0.0.1:{endpoint.sip_port}")
            callee = await legs.get()
            callee_media, caller_media = await asyncio.gather(callee.answer(), caller.wait_connected())
    except TimeoutError as error:
        raise OSError(
            f"a test call on 127.0.0.1 was not answered within {AUDIO_WAIT_S:g} s: does a firewall block it, or is the "
            "machine overloaded?"
        ) from error
    return callee_media, caller_media


def _receives_tone(endpoint: Endpoint, sender: Media, receiver: Media) -> bool:
    """Send a tone on one leg; returns True if it arrives on the other. Blocks."""
    pump = endpoint.pump
    rx_audio, tx_audio = np.zeros((2, pump.rows, 19200), np.int16)
    counts, info = np.zeros(pump.rows, np.int32), np.zeros((pump.rows, INFO_COLUMNS), np.int64)
    pump.write(sender.slot, _tone(sender.rate))
    peak = 0
    for _ in range(int(AUDIO_WAIT_S * 50)):
        if peak >= MIN_PEAK or not pump.wait(200):
            break
        pump.read(rx_audio, tx_audio, counts, info)
        row = row_of(receiver.slot)
        peak = max(peak, int(np.abs(rx_audio[row, : counts[row]].astype(np.int32)).max(initial=0)))
    return peak >= MIN_PEAK


def _tone(rate: int) -> Samples:
    at = np.arange(int(rate * TONE_S)) / rate
    return (8000 * np.sin(2 * np.pi * TONE_HZ * at)).astype(np.int16)


_PORTS: Final[tuple[Check, ...]] = (
    ("API port", _api_port),
    ("SIP ports", _sip_ports),
    ("SIP over TLS", _sip_over_tls),
    ("SIP addresses", check_sip.addresses),
    ("RTP ports", check_sip.rtp_ports),
)
"""Of `check` and of `doctor`."""
