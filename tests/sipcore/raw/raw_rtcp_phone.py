"""A raw phone with an RTCP port of its own."""

from __future__ import annotations

import asyncio

from tests.peers.ports import free_pair
from tests.sipcore.raw.raw_phone import Datagrams, RawPhone, RtpDatagrams


class RtcpPhone(RawPhone):
    """Its RTCP port is the one after that of RTP."""

    async def __aenter__(self) -> RawPhone:
        await super().__aenter__()
        self.rtp.transport.close()
        loop, port = asyncio.get_running_loop(), free_pair(self.host)
        _, self.rtp = await loop.create_datagram_endpoint(RtpDatagrams, local_addr=(self.host, port))
        _, self.rtcp = await loop.create_datagram_endpoint(Datagrams, local_addr=(self.host, port + 1))
        return self

    def send_report(self) -> None:
        """An empty receiver report."""
        assert self._rtp_target is not None
        host, port = self._rtp_target
        self.rtcp.transport.sendto(b"\x80\xc9\0\1\0\0\x51\x50", (host, port + 1))
