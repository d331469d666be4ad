"""A name server that is not ours: Debian's dnsmasq, with just the records of the test."""

from __future__ import annotations

import asyncio

from tests.peers.sipp_baresip import Process, free_port

OPTIONS = (
    "no-resolv", "no-hosts", "no-daemon", "bind-interfaces", "listen-address=127.0.0.1", "user=root", "pid-file",
    "log-facility=-", "local=/test/",
)  # fmt: skip


class NameServer(Process):
    """Answers on `address`. Records are lines of dnsmasq's configuration; `ttl_s` is what they all have."""

    def __init__(self, *records: str, ttl_s: int = 60) -> None:
        super().__init__()
        self._records = records
        self._ttl_s = ttl_s
        self.address = "127.0.0.1", free_port()

    async def __aenter__(self) -> NameServer:
        await self.change(*self._records)
        return self

    async def change(self, *records: str) -> None:
        """Begin to answer with these records, and no others."""
        await self.stop()
        lines = (*OPTIONS, f"port={self.address[1]}", f"local-ttl={self._ttl_s}", *records)
        config = self.folder / "dnsmasq.conf"
        await asyncio.to_thread(config.write_text, "\n".join(lines) + "\n")
        await self.start("/usr/sbin/dnsmasq", f"--conf-file={config}")
        async with asyncio.timeout(10):
            while "started, version" not in await asyncio.to_thread(self.output):
                assert self.child.returncode is None, self.output()
                await asyncio.sleep(0.01)  # it tells nobody but its log

    async def stop(self) -> None:
        """Be gone: questions get no answer from now on."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()


class SlowNameServer(asyncio.DatagramProtocol):
    """Takes questions on `address` and lets them wait until `answers` is set; then another server answers."""

    def __init__(self, behind: NameServer) -> None:
        self._behind = behind.address
        self.answers = asyncio.Event()
        self.asked = asyncio.Event()
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
        """Where it listens."""
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked.set()
        task = asyncio.create_task(self._answer(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: bytes, asker: tuple[str, int]) -> None:
        await self.answers.wait()
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()

        class Behind(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                if not answered.done():
                    answered.set_result(data)

        transport, _ = await loop.create_datagram_endpoint(Behind, remote_addr=self._behind)
        transport.sendto(question)
        try:
            self._transport.sendto(await asyncio.wait_for(answered, 5), asker)
        finally:
            transport.close()
