"""`trunkline check`: one line for each thing that a working server needs, and a remedy for each that is missing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np
import structlog

from config.errors import TrunklineError
from config.settings import Settings
from media.audio_port import INFO_COLUMNS, Samples, row_of
from media.vad.silero import silero_path
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.transport.tls_identity import now, read_identity
from storage.database import file_permissions, key_check, lock
from trunkline.admin import open_database
from trunkline.check import models as check_models
from trunkline.check import remote_models, sandbox
from trunkline.check import sip as check_sip

TONE_HZ: Final = 440
TONE_S: Final = 0.5
AUDIO_WAIT_S: Final = 5.0


async def check(settings: Settings) -> int:
    """Print the lines; 0 when everything is in order."""
    models = check_models.Models()
    structlog.configure(processors=[models.capture_log, _drop])  # the lines below say it all
    checks: list[tuple[str, Callable[[Settings], Awaitable[str]]]] = [
        ("settings", _settings),
        ("data", _data),
        ("database", _database),
        ("models", models.named),
        ("model trials", models.trials),
        ("capacity", models.capacity),
        *await remote_models.checks(settings),
        ("voice activity", _voice_activity),
        ("workers", sandbox.workers),
        ("API port", _api_port),
        ("SIP ports", _sip_ports),
        ("SIP over TLS", _sip_over_tls),
        ("SIP addresses", check_sip.addresses),
        ("RTP ports", check_sip.rtp_ports),
        ("trunks", check_sip.trunks),
        ("audio path", _audio_path),
    ]
    failed = 0
    for name, one in checks:
        try:
            for number, line in enumerate((await one(settings)).splitlines()):
                print(f"ok    {'' if number else name:15} {line}")
        except (TrunklineError, OSError) as error:
            failed += 1
            print(f"FAIL  {name:15} {str(error) or type(error).__name__}")
    return 1 if failed else 0


def _drop(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    raise structlog.DropEvent


async def _settings(settings: Settings) -> str:
    return f"data in {settings.data_dir.resolve()}, webhooks link to {settings.public_origin}"


async def _data(settings: Settings) -> str:
    await asyncio.to_thread(file_permissions.make_folder, settings.data_dir)
    free = os.statvfs(settings.data_dir)
    note = f"{free.f_bavail * free.f_frsize / 2**30:.1f} GiB free"
    return f"{note}, in use by a running server" if lock.is_held(settings.data_dir) else note


async def _database(settings: Settings) -> str:
    """It can be opened, and the key file is its own."""
    async with open_database(settings) as database:
        await key_check.load(database, settings.secret_key_path)
        return str(database.path)


async def _voice_activity(settings: Settings) -> str:
    return str(silero_path().name)


async def _api_port(settings: Settings) -> str:
    return _port_state(settings, settings.api.host, settings.api.port, (socket.SOCK_STREAM,), "api")


async def _sip_ports(settings: Settings) -> str:
    kinds = (socket.SOCK_DGRAM, socket.SOCK_STREAM) if settings.sip.tcp else (socket.SOCK_DGRAM,)
    return _port_state(settings, settings.sip.host, settings.sip.port, kinds, "sip")


async def _sip_over_tls(settings: Settings) -> str:
    """The certificate, and the port."""
    sip = settings.sip
    identity = await asyncio.to_thread(read_identity, TlsFiles(sip.tls_cert, sip.tls_key, sip.tls_ca))
    if identity.expires_at is None:
        if sip.tls_port:
            raise OSError("sip.tls_port needs sip.tls_cert and sip.tls_key")
        return "trunks are reached over TLS, no port is open for it ([sip] tls_port)"
    left = identity.days_left(now())
    if left is not None and left < 0:
        raise OSError(f"the certificate {sip.tls_cert} has ended on {identity.expires_at:%Y-%m-%d}")
    port = _port_state(settings, sip.host, sip.tls_port, (socket.SOCK_STREAM,), "sip", "tls_port")
    return f"{port}, certificate for {', '.join(identity.names)}, {left} days left"


def _port_state(
    settings: Settings, host: str, port: int, kinds: tuple[socket.SocketKind, ...], section: str, key: str = "port"
) -> str:
    """Bind and let go. A port that our own running server holds is in order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in kinds:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if lock.is_held(settings.data_dir):
                    return f"{host}:{port}, held by the running server"
                variable = f"TRUNKLINE_{section.upper()}__{key.upper()}"
                raise OSError(f"{host}:{port}: {error.strerror}; set [{section}] {key} ({variable})") from error
    return f"{host}:{port} free"


async def _audio_path(settings: Settings) -> str:
    """A call to ourselves on loopback: a tone goes in at one end and must come out at the other."""
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
        there, here = await _call_ourselves(endpoint, legs)
        heard = await asyncio.to_thread(_hear_tone, endpoint, here, there)
        realtime = "real-time" if endpoint.pump.stats().realtime else "ordinary priority"
    finally:
        await endpoint.close()
    if not heard:
        raise OSError("a call to ourselves on 127.0.0.1 brought no sound: is a firewall between?")
    return f"a call to ourselves has sound ({there.codec}, {there.rate} Hz, pump at {realtime})"


async def _call_ourselves(endpoint: Endpoint, legs: asyncio.Queue[Leg]) -> tuple[Media, Media]:
    """The sound of the called and of the calling end. Raises `OSError`."""
    try:
        async with asyncio.timeout(AUDIO_WAIT_S):
            caller = await endpoint.call(f"sip:check@127.0.0.1:{endpoint.sip_port}")
            callee = await legs.get()
            there, here = await asyncio.gather(callee.answer(), caller.connected())
    except TimeoutError as error:
        raise OSError(
            f"a call to ourselves on 127.0.0.1 was not answered within {AUDIO_WAIT_S:g} s: is a firewall between, "
            "or is the machine overloaded?"
        ) from error
    return there, here


def _hear_tone(endpoint: Endpoint, here: Media, there: Media) -> bool:
    pump = endpoint.pump
    heard, said = np.zeros((2, pump.rows, 19200), np.int16)
    counts, info = np.zeros(pump.rows, np.int32), np.zeros((pump.rows, INFO_COLUMNS), np.int64)
    pump.write(here.slot, _tone(here.rate))
    loudest = 0
    for _ in range(int(AUDIO_WAIT_S * 50)):
        if loudest >= 1000 or not pump.wait(200):
            break
        pump.read(heard, said, counts, info)
        row = row_of(there.slot)
        loudest = max(loudest, int(np.abs(heard[row, : counts[row]].astype(np.int32)).max(initial=0)))
    return loudest >= 1000


def _tone(rate: int) -> Samples:
    at = np.arange(int(rate * TONE_S)) / rate
    return (8000 * np.sin(2 * np.pi * TONE_HZ * at)).astype(np.int16)
