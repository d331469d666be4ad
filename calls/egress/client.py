"""The one HTTP client for addresses that users choose: it looks at the address that it is about to connect to.

Checking the host's name or the answer of the resolver is not enough (a literal address never reaches a resolver, and a
second look-up may answer differently), so the check sits where the socket is made, for every single connection.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import aiohttp
from aiohappyeyeballs import AddrInfoType
from multidict import CIMultiDictProxy
from yarl import URL

from calls.egress.threaded_resolver import NamesInThreads, asking_for
from calls.fair_semaphore import FairPlaces
from config.errors import EgressError
from config.special_addresses import METADATA, Address, Network, embedded

TUNNELS: Final = (IPv6Network("64:ff9b:1::/48"), IPv6Network("2001::/32"))
"""They hold IPv4 addresses too: NAT64 of a network's own (RFC 8215), at a place that only the network knows, and Teredo
(RFC 4380), which has two of them."""
V4_COMPATIBLE: Final = IPv6Network("::/96")
"""RFC 4291 2.5.5.1, deprecated, and still understood by some stacks."""
THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
"""RFC 1122: reaches the own host on Linux."""
NOT_ALLOWED: Final = "is not allowed"
"""Marks a refusal: the errors of a host's several addresses come as one `OSError` that has only their texts."""
CHUNK: Final = 16 * 1024
"""Bytes read at a time."""


class AddressRefused(OSError):
    """The address to connect to is one that the rules forbid."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"address {address} {NOT_ALLOWED}")


def _embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address carries (mapped, compatible, translated, 6to4, NAT64), else itself."""
    if isinstance(address, IPv6Address) and address in V4_COMPATIBLE and int(address) > 1:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return embedded(address)


def _networks(cidrs: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


class EgressRules:
    """Which addresses may be connected to. Loopback, link-local (metadata services with it), multicast, reserved,
    unspecified and tunnels' addresses are refused unless `allow` lists them; `deny` adds to what is refused, and
    wins."""

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Both are lists of CIDR blocks. Raises `ValueError` for one that is none."""
        self._allow = _networks(allow)
        self._deny = _networks(deny)

    def permits(self, address: str) -> bool:
        """Whether `address` (a literal, an IPv6 zone is ignored) may be connected to."""
        given = ip_address(address.partition("%")[0])
        faces = {given, _embedded(given)}
        if any(face in network for face in faces for network in self._deny):
            return False
        if any(face in network for face in faces for network in self._allow):
            return True
        return not any(_special(face) for face in faces)


def _special(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (isinstance(address, IPv4Address) and (address in THIS_NETWORK or address.is_reserved))
        or any(address in network for network in (*METADATA, *TUNNELS))
    )


@dataclass(frozen=True)
class HttpAnswer:
    """What came back. `body` holds at most the bytes that were asked for; `truncated` says that there were more."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    truncated: bool


class EgressStream:
    """An answer that comes bit by bit. `headers` are looked up in any case of letters."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int) -> None:
        self.status: Final = response.status
        self.headers: Final = response.headers
        self._response = response
        self._left = max_bytes

    async def read(self, within_s: float) -> bytes:
        """The next bytes, b"" at the end. Raises `EgressError`: "timeout" when there are none within `within_s`,
        "connection" when it breaks off, "refused" when there is more than there may be."""
        async with _told_as_egress(f"nothing more within {within_s:.3g} s"), asyncio.timeout(within_s):
            chunk = await self._response.content.read(CHUNK)
        self._left -= len(chunk)
        if self._left < 0:
            raise EgressError("refused", "the answer is longer than it may be")
        return chunk


@asynccontextmanager
async def _told_as_egress(too_late: str) -> AsyncIterator[None]:
    """Turns what goes wrong in the block into `EgressError`; `too_late` is said of a time-out."""
    try:
        yield
    except TimeoutError as error:
        raise EgressError("timeout", too_late) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        refusal = _refusal(error)
        if refusal is not None:
            raise EgressError("refused", refusal) from error
        raise EgressError("connection", _told(error)) from error


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's certificate authorities and those of `ca_file` (PEM). Reads files: for start-up.
    Raises `OSError` or `ssl.SSLError` when the file cannot be read."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


class EgressClient:
    """Sends requests under `rules`: no redirects, no proxy from the environment, no cookies, bounded in size and time.
    Each has a connection of its own, so that none fails because the other side had closed an idle one; how many there
    are at once is for the callers to bound (`Lanes`). What must not wait for others' slow name servers has a client of
    its own. To be made and closed inside the running loop."""

    def __init__(self, rules: EgressRules, tls: ssl.SSLContext) -> None:
        self._rules = rules
        self._names = NamesInThreads()
        connector = aiohttp.TCPConnector(
            ssl=tls, socket_factory=self._socket, limit=0, force_close=True, resolver=self._names
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "trunkline"},
        )

    def _socket(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        if not self._rules.permits(str(target[0])):
            raise AddressRefused(str(target[0]))
        return socket.socket(family=family, type=kind, proto=protocol)

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        timeout_s: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        asker: str | None = None,
    ) -> HttpAnswer:
        """Send one request and read at most `max_bytes` of its answer, both within `timeout_s`. Any status is an
        answer, a redirect too. A `URL` is sent as it is, a text as what it means. `asker` (an organization) has a
        bounded number of host names looked up at once. Raises `EgressError`."""
        with asking_for(asker):
            async with _told_as_egress(f"no complete answer within {timeout_s:g} s"), asyncio.timeout(timeout_s):
                return await self._exchange(method, url, headers or {}, body, max_bytes)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        connect_s: float,
        head_s: float,
        max_bytes: int,
    ) -> AsyncIterator[EgressStream]:
        """Send one request whose answer is read as it comes, at most `max_bytes` of it. The connection is made within
        `connect_s`, the head of the answer is there within `head_s` of the beginning. Leaving the block closes the
        connection, whatever is still under way. Raises `EgressError`."""
        limits = aiohttp.ClientTimeout(total=None, connect=connect_s)
        request = self._session.request(method, url, headers=headers, data=body, allow_redirects=False, timeout=limits)
        async with _told_as_egress(f"no connection within {connect_s:g} s or no answer within {head_s:.3g} s"):
            async with asyncio.timeout(head_s):
                response = await request
        try:
            yield EgressStream(response, max_bytes)
        finally:
            response.close()

    async def _exchange(
        self, method: str, url: str | URL, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> HttpAnswer:
        request = self._session.request(
            method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with request as response:
            content = bytearray()
            while len(content) <= max_bytes and (chunk := await response.content.read(CHUNK)):
                content += chunk
            truncated = len(content) > max_bytes
            if truncated:
                response.close()
            return HttpAnswer(response.status, response.headers, bytes(content[:max_bytes]), truncated)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
        await self._names.close()


class Lanes(FairPlaces):
    """How many requests are under way at once: `most` in all, and at most `most_of_one` of each organization, so that
    those with slow servers leave room for the others, however many they are."""

    def __init__(self, most: int = 128, most_of_one: int = 32) -> None:
        super().__init__(most, most_of_one)


def _told(error: Exception) -> str:
    """What went wrong, without the URL, which may hold credentials."""
    match error:
        case aiohttp.InvalidURL(description=description):
            return f"the address {description or 'is no usable URL'}"
        case aiohttp.ClientResponseError(message=message):
            return f"{type(error).__name__}: {message}"[:300]
        case _:
            return f"{type(error).__name__}: {error}"[:300]


def _refusal(error: BaseException | None) -> str | None:
    """The text of the refusal, if all that lies at the root of `error` is one."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EACCES and NOT_ALLOWED in str(error):
            return str(error.strerror)
        error = error.__cause__ or error.__context__
    return None
