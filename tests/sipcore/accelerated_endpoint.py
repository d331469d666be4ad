"""An endpoint in a process of its own whose clock runs 30 times as fast (libfaketime), for tests of SIP's timers: half
a minute takes a second."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import structlog

from sipcore.dialogs.leg import Leg, ReferTarget
from sipcore.endpoint import Endpoint
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.trunks.trunk import Trunk
from tests.peers.ports import free_port

SPEED = 30
FAKETIME = ("faketime", "-f", f"+0 x{SPEED}")


class AcceleratedPhone:
    """The accelerated process, as the test sees it."""

    def __init__(self, child: asyncio.subprocess.Process, port: int, pid: int) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._stdin, self._stdout = child.stdin, child.stdout
        self._process = Path(f"/proc/{pid}")
        self.target = f"127.0.0.1:{port}"
        self._ends: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def started(cls, launcher: Sequence[str] = FAKETIME, **settings: object) -> AsyncIterator[Self]:
        """Start the process. `launcher`: the command that starts it; `settings`: of `EndpointSettings`, `tls` as a list
        of paths."""
        port = free_port()
        child = await asyncio.create_subprocess_exec(
            *launcher,
            sys.executable, "-m", "tests.sipcore.accelerated_endpoint", str(port), json.dumps(settings),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        pid = json.loads(await asyncio.wait_for(child.stdout.readline(), 30))
        phone = cls(child, port, pid)
        try:
            yield phone
        finally:
            phone._reading.cancel()
            phone._stdin.close()
            assert await asyncio.wait_for(child.wait(), 10) == 0

    def call(self, uri: str) -> None:
        """Make it call a URI."""
        self._stdin.write(f"{uri}\n".encode())

    def hang_up(self, call_id: str) -> None:
        """Make it end a call."""
        self._stdin.write(f"hangup {call_id}\n".encode())

    def refer(self, call_id: str, timeout_s: float) -> None:
        """Make it refer the peer of a call to 200."""
        self._stdin.write(f"refer {call_id} {timeout_s}\n".encode())

    async def refer_result(self, call_id: str) -> dict[str, Any]:
        """The result of that: `kind`, `sip_status`, and `after_s` by its own clock."""
        return await asyncio.wait_for(self._end(f"refer {call_id}"), 40)

    def add_trunk(self, host: str, port: int, *, registers: bool) -> None:
        """Give it a trunk over TLS, with which it registers, or to which it sends OPTIONS."""
        trunk = {"host": host, "port": port, "registers": registers}
        self._stdin.write(f"trunk {json.dumps(trunk)}\n".encode())

    def memory_and_descriptors(self) -> tuple[int, int]:
        """Its memory in bytes, and its open files, sockets included."""
        pages = int((self._process / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE"), len(list((self._process / "fd").iterdir()))

    async def end_of(self, call_id: str) -> dict[str, Any]:
        """The end of a call: `code`, `by_peer`, and `after_s` by its own clock."""
        return await asyncio.wait_for(self._end(call_id), 40)

    def has_ended(self, call_id: str) -> bool:
        """True if the call has ended."""
        return self._end(call_id).done()

    def _end(self, call_id: str) -> asyncio.Future[dict[str, Any]]:
        return self._ends.setdefault(call_id, asyncio.get_running_loop().create_future())

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            end = json.loads(line)
            self._end(end["call_id"]).set_result(end)


class AcceleratedProcess:
    """The accelerated process itself."""

    def __init__(self, port: int, settings: dict[str, Any]) -> None:
        if "tls" in settings:
            settings["tls"] = TlsFiles(*(Path(each) if each else None for each in settings["tls"]))
        self._legs: dict[str, Leg] = {}
        self._known = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoint = Endpoint(
            EndpointSettings(host="127.0.0.1", port=port, codecs=("PCMU",), max_calls=40, **settings), self._on_leg
        )

    async def run(self) -> None:
        """Run until standard input ends."""
        await self._endpoint.start()
        self._endpoint.set_sources(["127.0.0.1"])
        write_line(os.getpid())
        async for line in lines_of(sys.stdin):
            if line.startswith("hangup "):
                self._start(self._hang_up(line.split()[1]))
            elif line.startswith("refer "):
                self._start(self._refer(*line.split()[1:]))
            elif line.startswith("trunk "):
                await self._add_trunk(**json.loads(line.removeprefix("trunk ")))
            else:
                self._start(self._call(line))
        await self._endpoint.close()

    async def _add_trunk(self, host: str, port: int, registers: bool) -> None:
        self._endpoint.set_host_table({SipHostPort(host, port, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
        trunk = Trunk(
            key="trunk", host=host, port=port, transport="tls", outbound_proxy=None, user="ann", credentials=None,
            registers=registers, follow_redirects=False, accept_refer=False, qualify_s=0 if registers else 60,
            number="1",
        )  # fmt: skip
        await self._endpoint.set_trunks([trunk])

    def _on_leg(self, leg: Leg) -> None:
        self._start(self._follow(leg, answered=leg.facts.request_user != "ring"))

    async def _call(self, uri: str) -> None:
        await self._follow(await self._endpoint.call(uri), answered=False)

    async def _follow(self, leg: Leg, *, answered: bool) -> None:
        async with self._known:
            self._legs[leg.sip_call_id] = leg
            self._known.notify_all()
        since = asyncio.get_running_loop().time()
        if answered:
            with contextlib.suppress(ConnectionError):  # the leg's end reports the same
                await leg.answer()
        elif leg.facts.direction == "inbound":
            await leg.send_ringing()
        end = await leg.ended
        leg.release()
        self._legs.pop(leg.sip_call_id, None)
        after_s = asyncio.get_running_loop().time() - since
        write_line({"call_id": leg.sip_call_id, "code": end.code, "by_peer": end.by_peer, "after_s": after_s})

    async def _refer(self, call_id: str, timeout_s: str) -> None:
        since = asyncio.get_running_loop().time()
        result = await self._legs[call_id].refer(ReferTarget("200"), float(timeout_s))
        after_s = asyncio.get_running_loop().time() - since
        result_line = {"kind": result.kind, "sip_status": result.sip_status, "after_s": after_s}
        write_line({"call_id": f"refer {call_id}", **result_line})

    async def _hang_up(self, call_id: str) -> None:
        """The callee may receive the INVITE before the leg is known here."""
        async with self._known:
            await self._known.wait_for(lambda: call_id in self._legs)
        await self._legs[call_id].hangup()

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def write_line(what: object) -> None:
    """Write one line to standard output."""
    print(json.dumps(what), flush=True)


async def lines_of(stream: Any) -> AsyncIterator[str]:
    """The lines of a stream, as they are received."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    while line := await reader.readline():
        yield line.decode().strip()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(AcceleratedProcess(int(sys.argv[1]), json.loads(sys.argv[2])).run())
