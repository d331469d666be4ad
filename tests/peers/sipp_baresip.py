"""Phones that are not ours: Debian's sipp and baresip, each started as a process and ended by its own handle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import tempfile
import wave
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sipcore.settings import TlsFiles

SCENARIOS = Path(__file__).parents[1] / "sip/scenarios"
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4
"""Which of the processes that test at the same time this is: each has ports of its own."""
RTP_PORTS = (10000 + 2500 * _WORKER, 12499 + 2500 * _WORKER)
"""First and last port for the audio of our servers."""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


_PORTS = itertools.cycle(range(20000 + 2500 * _WORKER, 22500 + 2500 * _WORKER))
for _ in range(random.randrange(2500)):  # another run on this machine is elsewhere
    next(_PORTS)


def free_port(host: str = "127.0.0.1") -> int:
    """A port number that is free for UDP and for TCP now, and that was not given out lately: who got it may not have
    opened it yet. It is none of those that the system gives to connections, or one of them could have it before a
    server opens it; and none of the default RTP ports."""
    family = _family(host)
    for port in _PORTS:
        with (
            contextlib.suppress(OSError),
            socket.socket(family, socket.SOCK_DGRAM) as udp,
            socket.socket(family) as tcp,
        ):
            udp.bind((host, port))
            tcp.bind((host, port))
            return port
    raise AssertionError("there is always a next one")


def free_pair(host: str = "127.0.0.1") -> int:
    """The first of two neighbours that are both free."""
    while (port := free_port(host)) + 1 != free_port(host):
        pass
    return port


class Process:
    """A child process with a folder of its own, gone when the `async with` block is left."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trunkline-peer-")
        self._child: asyncio.subprocess.Process | None = None

    @property
    def folder(self) -> Path:
        """Where it keeps its files."""
        return Path(self._folder.name)

    @property
    def child(self) -> asyncio.subprocess.Process:
        """The running process. Raises `RuntimeError` before it is started."""
        if self._child is None:
            raise RuntimeError("not started")
        return self._child

    async def start(self, *command: str) -> None:
        """Start it in its folder; what it prints goes to `output.txt` there."""
        with (self.folder / "output.txt").open("wb") as output:
            self._child = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """What it has printed so far."""
        return (self.folder / "output.txt").read_text(errors="replace")

    async def close(self) -> None:
        """End it, by force after 3 s, and remove its folder."""
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            try:
                await asyncio.wait_for(self._child.wait(), 3)
            except TimeoutError:
                self._child.kill()
                await self._child.wait()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)  # its children, which it has left behind
        self._folder.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _together(files: TlsFiles) -> bytes:
    """A certificate and its key, as baresip wants them: in one file."""
    assert files.certificate and files.key
    return files.certificate.read_bytes() + files.key.read_bytes()


class Sipp(Process):
    """One run of sipp. `await Sipp.run(...)`, or `async with Sipp(...) as sipp: ... await sipp.finished()`."""

    def __init__(
        self,
        scenario: str,
        target: str,
        *,
        calls: int = 1,
        rate: int = 10,
        user: str = "100",
        hold_ms: int = 500,
        keys: dict[str, str] | None = None,
        transport: str = "u1",
        host: str = "127.0.0.1",
        timeout_s: int = 40,
        credentials: tuple[str, str] | None = None,
        echo: bool = True,
    ) -> None:
        """`target`: host:port. `keys`: what `[name]` in the scenario stands for. `rate`: calls a second. `credentials`:
        user and password of `[authentication]`. `echo`: the sound comes back, as a stream beside what is played."""
        super().__init__()
        self.port = free_port(host)
        self.media_port = free_port(host)
        self._command = [
            "sipp", target, "-sf", str(SCENARIOS / f"{scenario}.xml"), "-s", user, "-m", str(calls), "-r", str(rate),
            "-t", transport, "-i", host, "-p", str(self.port), "-mi", host, "-mp", str(self.media_port),
            "-nostdin", "-trace_err", "-error_file", "errors.log", "-trace_stat", "-stf", "stat.csv",
            "-d", str(hold_ms), "-timeout", str(timeout_s), "-timeout_error",
        ]  # fmt: skip
        if echo:
            self._command.append("-rtp_echo")
        for name, value in (keys or {}).items():
            self._command += ["-key", name, value]
        if credentials is not None:
            self._command += ["-au", credentials[0], "-ap", credentials[1]]

    async def __aenter__(self) -> Self:
        await self.start(*self._command)
        return self

    async def finished(self) -> None:
        """Wait until all its calls are over. Raises `AssertionError`, with what sipp said, when one of them failed."""
        code = await self.child.wait()
        if code != 0:
            errors = self.folder / "errors.log"
            raise AssertionError(
                f"sipp: exit {code}\n{errors.read_text() if errors.exists() else self.output()[-2000:]}"
            )

    def statistics(self) -> dict[str, str]:
        """The last line of its statistics file, by column name (`SuccessfulCall(C)`, `FailedCall(C)`, ...)."""
        lines = (self.folder / "stat.csv").read_text().splitlines()
        return dict(zip(lines[0].split(";"), lines[-1].split(";"), strict=False))


class Baresip(Process):
    """baresip without a sound card: it plays 440 Hz for 20 s, or a WAV file, and records what it hears."""

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
    ) -> None:
        """`codec`: as baresip spells it, e.g. `PCMU/8000/1` or `opus/48000/2`; `play`: a WAV file of that rate and
        number of channels; `user`: who it takes calls for; `host`: where it listens; `encryption`: of its sound, as it
        spells it: `srtp` (offers it), `srtp-mand` (insists on it), `dtls_srtp`; `tls`: it speaks SIP over TLS with that
        certificate, and trusts that authority alone; `credentials`: user and password for who asks."""
        super().__init__()
        self.port = free_pair(host)  # the other is its TLS port, wanted or not
        self._host = host
        self._encryption = encryption
        self._tls = tls
        self._control_port = free_port()
        self._codec = codec
        self._user = user
        self._proof = "" if credentials is None else ";auth_user={};auth_pass={}".format(*credentials)
        self._play = play or self.folder / "tone.wav"
        self._writer: asyncio.StreamWriter | None = None
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        (self.folder / "heard").mkdir()
        if not self._play.exists():
            await asyncio.to_thread(self._write_tone)
        (self.folder / "config").write_text(self._config())
        (self.folder / "accounts").write_text(self._account())
        if self._tls:
            (self.folder / "both.pem").write_bytes(_together(self._tls))
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
        """Give it one of its commands (`dial`, `hangup`, ...), which it takes."""
        assert self._writer is not None
        text = json.dumps({"command": name, "params": parameters})
        self._writer.write(f"{len(text)}:{text},".encode())
        answer = await asyncio.wait_for(self._answers.get(), 10)
        assert answer["ok"], f"{name} {parameters}: {answer}\n{self.output()}"

    async def event(self, kind: str, timeout_s: float = 10) -> dict[str, Any]:
        """Wait for one of its events (`CALL_ESTABLISHED`, `CALL_CLOSED`, ...), passing over others."""
        async with asyncio.timeout(timeout_s):
            while True:
                event = await self._events.get()
                if event.get("type") == kind:
                    return event

    def heard(self) -> tuple[int, NDArray[np.int16]]:
        """What it has decoded of its last call: rate in Hz, mono int16. Complete once the call is closed."""
        paths = sorted((self.folder / "heard").glob("*-dec.wav"))
        with wave.open(str(paths[-1])) as file:
            frames = np.frombuffer(file.readframes(file.getnframes()), np.int16)
            return file.getframerate(), frames.reshape(-1, file.getnchannels())[:, 0]

    @property
    def uri(self) -> str:
        """Where it takes calls. Its TLS port is the one above the other."""
        place = f"sip:{self._user}@{self._named}"
        return f"{place}:{self.port + 1};transport=tls" if self._tls else f"{place}:{self.port}"

    @property
    def _named(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    def _account(self) -> str:
        transport = ";transport=tls" if self._tls else ""
        encryption = f";mediaenc={self._encryption}" if self._encryption else ""
        return (
            f"<sip:{self._user}@{self._named}:{self.port}{transport}>;regint=0;audio_codecs={self._codec}"
            f";answermode=auto{encryption}{self._proof}\n"
        )

    def _config(self) -> str:
        modules = ("g711", "g722", "opus", "aufile", "aubridge", "sndfile", "srtp", "dtls_srtp")
        lines = [
            f"sip_listen {self._named}:{self.port}",
            f"net_interface {self._host}",
            *(
                [f"sip_certificate {self.folder / 'both.pem'}", f"sip_cafile {self._tls.authorities}"]
                if self._tls
                else []
            ),
            "module_path /usr/lib/baresip/modules",
            *(f"module {name}.so" for name in modules),
            "module_tmp account.so",
            "module_app menu.so",
            "module_app ctrl_tcp.so",
            f"ctrl_tcp_listen 127.0.0.1:{self._control_port}",
            f"audio_source aufile,{self._play}",
            "audio_player aubridge,nowhere",
            "audio_alert aubridge,nowhere",
            f"snd_path {self.folder / 'heard'}",
            f"rtp_ports {free_port()}-65000",
        ]
        return "\n".join(lines) + "\n"

    def _write_tone(self) -> None:
        rate, channels = (int(number) for number in self._codec.split("/")[1:])
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
                    await asyncio.sleep(0.02)  # it says nowhere that it listens
                else:
                    self._reading = asyncio.create_task(self._read(reader))
                    return

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                length = int((await reader.readuntil(b":"))[:-1])
                told = json.loads(await reader.readexactly(length))
                (self._answers if "response" in told else self._events).put_nowait(told)
                await reader.readexactly(1)
