"""SIPp, as Debian packages it (sip-tester)."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from sipcore.settings import TlsFiles
from tests.peers.ports import free_port
from tests.peers.process import Process
from tests.peers.tls_relay import TlsRelay

SCENARIOS = Path(__file__).with_name("sipp_scenarios")


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
        call_ms: int = 500,
        keys: dict[str, str] | None = None,
        transport: str = "u1",
        host: str = "127.0.0.1",
        timeout_s: int = 40,
        credentials: tuple[str, str] | None = None,
        echo: bool = True,
        tls: TlsFiles | None = None,
    ) -> None:
        """`target`: host:port. `keys`: the values of `[name]` in the scenario. `rate`: calls per second. `call_ms`:
        duration of a call. `credentials`: user and password of `[authentication]`. `echo`: sipp sends received RTP
        back, in addition to what it plays. `tls`: SIP over TLS, by a relay, because Debian's sipp has none; `target`
        then is the server's TLS port."""
        super().__init__()
        self.port = port = free_port(host)
        """Where it takes calls."""
        self.media_port = free_port(host)
        self._relay, path = None, SCENARIOS / f"{scenario}.xml"
        if tls is not None:
            self._relay, path = self._relayed(path, target, tls)
            self.port, target, transport = self._relay.port, f"{host}:{self._relay.tcp_port}", "t1"
        self._command = [
            "sipp", target, "-sf", str(path), "-s", user, "-m", str(calls), "-r", str(rate),
            "-t", transport, "-i", host, "-p", str(port), "-mi", host, "-mp", str(self.media_port),
            "-nostdin", "-trace_err", "-error_file", "errors.log", "-trace_stat", "-stf", "stat.csv",
            "-d", str(call_ms), "-timeout", str(timeout_s), "-timeout_error",
        ]  # fmt: skip
        if echo:
            self._command.append("-rtp_echo")
        for name, value in (keys or {}).items():
            self._command += ["-key", name, value]
        if credentials is not None:
            self._command += ["-au", credentials[0], "-ap", credentials[1]]

    def _relayed(self, scenario: Path, target: str, tls: TlsFiles) -> tuple[TlsRelay, Path]:
        """A relay, and the scenario as a peer over TLS has it: Via, Contact and Record-Route name TLS and the relay's
        port."""
        text, server_port = scenario.read_text(), target.rpartition(":")[2]
        calls = text.index("<send") < text.index("<recv")
        relay = TlsRelay(tls, server_port=int(server_port)) if calls else TlsRelay(tls, peer_port=self.port)
        for name, value in (("[transport]", "TLS"), ("[local_port]", str(relay.port)), ("[remote_port]", server_port)):
            text = text.replace(name, value)
        path = self.folder / scenario.name
        path.write_text(text)
        return relay, path

    async def __aenter__(self) -> Self:
        if self._relay is not None:
            await self._relay.__aenter__()
        await self.start(*self._command)
        return self

    async def close(self) -> None:
        await super().close()
        if self._relay is not None:
            await self._relay.__aexit__()

    async def finished(self) -> None:
        """Waits until all calls have ended. Raises `AssertionError` with sipp's error log if one of them failed."""
        code = await self.child.wait()
        if code != 0:
            errors = self.folder / "errors.log"
            raise AssertionError(
                f"sipp: exit {code}\n{errors.read_text() if errors.exists() else self.output()[-2000:]}"
            )

    def statistics(self) -> dict[str, str]:
        """The last line of sipp's statistics file by column name (`SuccessfulCall(C)`, `FailedCall(C)`, ...)."""
        lines = (self.folder / "stat.csv").read_text().splitlines()
        return dict(zip(lines[0].split(";"), lines[-1].split(";"), strict=False))
