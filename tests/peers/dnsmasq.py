"""The DNS server dnsmasq, as Debian packages it, with the records of a test."""

from __future__ import annotations

import asyncio

from tests.peers.ports import free_port
from tests.peers.process import Process

OPTIONS = (
    "no-resolv", "no-hosts", "no-daemon", "bind-interfaces", "listen-address=127.0.0.1", "user=root", "pid-file",
    "log-facility=-", "local=/test/",
)  # fmt: skip


class NameServer(Process):
    """A DNS server on `address`. Records are lines of dnsmasq's configuration; all have the TTL `ttl_s`."""

    def __init__(self, *records: str, ttl_s: int = 60) -> None:
        super().__init__()
        self._records = records
        self._ttl_s = ttl_s
        self.address = "127.0.0.1", free_port()

    async def __aenter__(self) -> NameServer:
        await self.set_records(*self._records)
        return self

    async def set_records(self, *records: str) -> None:
        """Replaces all records, by a restart."""
        await self.stop()
        lines = (*OPTIONS, f"port={self.address[1]}", f"local-ttl={self._ttl_s}", *records)
        config = self.folder / "dnsmasq.conf"
        await asyncio.to_thread(config.write_text, "\n".join(lines) + "\n")
        await self.start("/usr/sbin/dnsmasq", f"--conf-file={config}")
        async with asyncio.timeout(10):
            while "started, version" not in await asyncio.to_thread(self.output):
                assert self.child.returncode is None, self.output()
                await asyncio.sleep(0.01)  # there is no event but this line

    async def stop(self) -> None:
        """Stops the server: queries get no response from now on."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()


class SlowNameServer(asyncio.DatagramProtocol):
    """A DNS server on `address` that forwards queries to `upstream` once `released` is set."""

    def __init__(self, upstream: NameServer) -> None:
        self._upstream = upstream.address
        self.released = asyncio.Event()
        self.queried = asyncio.Event()
        """Set at the first query."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.DatagramTransport

    async def __aenter__(self) -> SlowNameServer:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        self._transport.close()

    @property
    def address(self) -> tuple[str, int]:
        """The address and port on which it listens."""
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.queried.set()
        task = asyncio.create_task(self._forward(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, query: bytes, client: tuple[str, int]) -> None:
        await self.released.wait()
        loop = asyncio.get_running_loop()
        response: asyncio.Future[bytes] = loop.create_future()

        class UpstreamProtocol(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                if not response.done():
                    response.set_result(data)

        transport, _ = await loop.create_datagram_endpoint(UpstreamProtocol, remote_addr=self._upstream)
        transport.sendto(query)
        try:
            self._transport.sendto(await asyncio.wait_for(response, 5), client)
        finally:
            transport.close()
