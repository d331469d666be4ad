"""The softphone baresip, as Debian packages it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import wave
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sipcore.settings import TlsFiles
from tests.peers.ports import free_pair, free_port
from tests.peers.process import Process


def _certificate_and_key(files: TlsFiles) -> bytes:
    """A certificate and its key in one PEM, as baresip requires."""
    assert files.certificate and files.key
    return files.certificate.read_bytes() + files.key.read_bytes()


class Baresip(Process):
    """baresip without a sound card: it plays 440 Hz for 20 s, or a WAV file, and records the received audio."""

    def __init__(
        self,
        codec: str,
        *,
        play: Path | None = None,
        user: str = "baresip",
        host: str = "127.0.0.1",
        encryption: str = "",
        tls: TlsFiles | None = None,
        credentials: tuple[str, str] | None = None,
        name_server: str = "",
    ) -> None:
        """`codec`: in baresip's notation, e.g. `PCMU/8000/1` or `opus/48000/2`, or several of one rate, separated by
        commas; `play`: a WAV file of that rate and number of channels; `user`: the user of its account; `host`: its
        address; `encryption`: of its media, in baresip's notation: `srtp` (optional), `srtp-mand` (mandatory),
        `dtls_srtp`; `tls`: SIP over TLS with that certificate, trusting that authority alone; `credentials`: user and
        password for digest challenges; `name_server`: host:port of the DNS server that it asks, not the system's."""
        super().__init__()
        self.port = free_pair(host)  # baresip opens the next port for TLS
        self._host = host
        self._encryption = encryption
        self._tls = tls
        self._control_port = free_port()
        self._codec = codec
        self._name_server = name_server
        self._user = user
        self._auth_parameters = "" if credentials is None else ";auth_user={};auth_pass={}".format(*credentials)
        self._play = play or self.folder / "tone.wav"
        self._writer: asyncio.StreamWriter | None = None
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._responses: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        (self.folder / "received").mkdir()
        if not self._play.exists():
            await asyncio.to_thread(self._write_tone)
        (self.folder / "config").write_text(self._config())
        (self.folder / "accounts").write_text(self._account())
        if self._tls:
            (self.folder / "both.pem").write_bytes(_certificate_and_key(self._tls))
        await self.start("baresip", "-6" if ":" in self._host else "-4", "-f", str(self.folder))
        await self._connect()
        return self

    async def close(self) -> None:
        if self._reading:
            self._reading.cancel()
        if self._writer:
            self._writer.close()
        await super().close()

    async def command(self, name: str, parameters: str = "") -> None:
        """Sends a command (`dial`, `hangup`, ...). Raises `AssertionError` if baresip rejects it."""
        assert self._writer is not None
        text = json.dumps({"command": name, "params": parameters})
        self._writer.write(f"{len(text)}:{text},".encode())
        response = await asyncio.wait_for(self._responses.get(), 10)
        assert response["ok"], f"{name} {parameters}: {response}\n{self.output()}"

    async def event(self, kind: str, timeout_s: float = 10) -> dict[str, Any]:
        """Waits for an event (`CALL_ESTABLISHED`, `CALL_CLOSED`, ...) and returns it; skips others."""
        async with asyncio.timeout(timeout_s):
            while True:
                event = await self._events.get()
                if event.get("type") == kind:
                    return event

    async def received_audio(self) -> tuple[int, NDArray[np.int16]]:
        """The decoded audio of its last call with audio, which has been closed: rate in Hz, mono int16."""
        async with asyncio.timeout(5):  # it closes the file in a thread of its own, after the event of the call's end
            while (path := self._finished_recording()) is None:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        with wave.open(str(path)) as file:
            frames = np.frombuffer(file.readframes(file.getnframes()), np.int16)
            return file.getframerate(), frames.reshape(-1, file.getnchannels())[:, 0]

    def _finished_recording(self) -> Path | None:
        """The last recording, once its header states its length: RIFF, then the number of bytes that follow."""
        paths = [path for path in (self.folder / "received").glob("*-dec.wav") if path.stat().st_size > 1000]
        path = max(paths, default=None)
        if path is None:
            return None
        with path.open("rb") as file:
            header = file.read(8)
        return path if header == b"RIFF" + (path.stat().st_size - 8).to_bytes(4, "little") else None

    @property
    def uri(self) -> str:
        """Its SIP URI. Its TLS port is `port` + 1."""
        address = f"sip:{self._user}@{self._uri_host}"
        return f"{address}:{self.port + 1};transport=tls" if self._tls else f"{address}:{self.port}"

    @property
    def _uri_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    def _account(self) -> str:
        transport = ";transport=tls" if self._tls else ""
        encryption = f";mediaenc={self._encryption}" if self._encryption else ""
        return (
            f"<sip:{self._user}@{self._uri_host}:{self.port}{transport}>;regint=0;audio_codecs={self._codec}"
            f";answermode=auto{encryption}{self._auth_parameters}\n"
        )

    def _config(self) -> str:
        modules = ("g711", "g722", "opus", "aufile", "aubridge", "sndfile", "srtp", "dtls_srtp")
        lines = [
            f"sip_listen {self._uri_host}:{self.port}",
            f"net_interface {self._host}",
            *(
                [f"sip_certificate {self.folder / 'both.pem'}", f"sip_cafile {self._tls.authorities}"]
                if self._tls
                else []
            ),
            *([f"dns_server {self._name_server}"] if self._name_server else []),
            "module_path /usr/lib/baresip/modules",
            *(f"module {name}.so" for name in modules),
            "module_tmp account.so",
            "module_app menu.so",
            "module_app ctrl_tcp.so",
            f"ctrl_tcp_listen 127.0.0.1:{self._control_port}",
            f"audio_source aufile,{self._play}",
            "audio_player aubridge,nowhere",
            "audio_alert aubridge,nowhere",
            f"snd_path {self.folder / 'received'}",
            "rtp_ports 61000-65000",  # above all other ports of tests, and the ephemeral ones
        ]
        return "\n".join(lines) + "\n"

    def _write_tone(self) -> None:
        rate, channels = (int(number) for number in self._codec.split(",")[0].split("/")[1:])
        sine = (8000 * np.sin(2 * np.pi * 440 * np.arange(20 * rate) / rate)).astype(np.int16)
        with wave.open(str(self._play), "wb") as file:
            file.setparams((channels, 2, rate, 0, "NONE", ""))
            file.writeframes(np.repeat(sine, channels).tobytes())

    async def _connect(self) -> None:
        async with asyncio.timeout(10):
            while True:
                try:
                    reader, self._writer = await asyncio.open_connection("127.0.0.1", self._control_port)
                except OSError:
                    if self.child.returncode is not None:
                        raise AssertionError(f"baresip: exit {self.child.returncode}\n{self.output()}") from None
                    await asyncio.sleep(0.02)  # there is no event for it
                else:
                    self._reading = asyncio.create_task(self._read(reader))
                    return

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                length = int((await reader.readuntil(b":"))[:-1])
                message = json.loads(await reader.readexactly(length))
                (self._responses if "response" in message else self._events).put_nowait(message)
                await reader.readexactly(1)
