"""The HTTP client for URLs that users choose: checks each address when it connects to it.

A check of the host name or of the resolver's answer is not enough (an address literal is never resolved, and a second
lookup may have another answer), so the check is made where the socket is created, for every connection."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohappyeyeballs import AddrInfoType
from multidict import CIMultiDictProxy
from yarl import URL

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.threaded_resolver import ThreadedResolver, lookups_for
from config.errors import HttpEgressError

NOT_ALLOWED: Final = "is not allowed"
"""Marks a refusal, because the errors of a host's several addresses are one `OSError` with only their texts."""
CHUNK: Final = 16 * 1024
"""Bytes per read."""
KEEP_ALIVE_S: Final = 4.0
"""For `HttpEgressClient.keep_alive_s`: less than the 5 s after which uvicorn, the server of most models, closes an idle
connection, so that a request seldom meets a closing one."""
DNS_TTL_S: Final = 60
"""Seconds for which a client that keeps connections remembers the addresses of a host."""
DRAIN_S: Final = 0.5
"""For the end of a response whose reader has all that it needs."""


class AddressRefused(OSError):
    """The address rules forbid the address to connect to."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"address {address} {NOT_ALLOWED}")


@dataclass(frozen=True)
class HttpResponse:
    """A response. `body` has at most `max_bytes`; `truncated`: there were more."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    truncated: bool


class HttpEgressStream:
    """A streamed response. `headers` are case-insensitive; `reused`: it came on a connection of an earlier request."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int, reused: bool = False) -> None:
        self.status: Final = response.status
        self.headers: Final = response.headers
        self.reused: Final = reused
        self._response = response
        self._remaining_bytes = max_bytes
        self._complete = False

    def complete(self) -> None:
        """The reader has all that it needs. The end of the response, if it comes soon, is discarded after the block, so
        that the connection can be reused."""
        self._complete = True

    @property
    def ends_soon(self) -> bool:
        """True if only the end of the response is missing."""
        return self._complete and not self._response.content.at_eof()

    async def drain(self) -> None:
        """Discard the end of the response, for `DRAIN_S` at most."""
        with suppress(HttpEgressError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while await self.read(DRAIN_S):
                    pass

    async def read(self, within_s: float) -> bytes:
        """Returns the next bytes, b"" at the end. Raises `HttpEgressError`: "timeout" if none arrive within `within_s`,
        "connection" if the connection breaks, "refused" if the response exceeds its limit."""
        async with _as_http_egress_error(f"no more data within {within_s:.3g} s"), asyncio.timeout(within_s):
            chunk = await self._response.content.read(CHUNK)
        self._remaining_bytes -= len(chunk)
        if self._remaining_bytes < 0:
            raise HttpEgressError("refused", "the answer is longer than it may be")
        return chunk


@asynccontextmanager
async def _as_http_egress_error(timeout_message: str) -> AsyncIterator[None]:
    """Turns the errors of the block into `HttpEgressError`."""
    try:
        yield
    except TimeoutError as error:
        raise HttpEgressError("timeout", timeout_message) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        refusal = _refusal_text(error)
        if refusal is not None:
            raise HttpEgressError("refused", refusal) from error
        raise HttpEgressError("connection", _describe(error)) from error


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Returns a context with the system's certificate authorities and those of `ca_file` (PEM). Reads files: for
    start-up. Raises `OSError` or `ssl.SSLError` if the file cannot be read."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True


@dataclass
class _Connection:
    """The connection of a request. `reused`: an earlier request had it."""

    reused: bool = False


class HttpEgressClient:
    """Sends requests under `rules`: no redirects, no proxy from the environment, no cookies, bounded in size and time.
    The caller limits concurrent requests (`HttpEgressConcurrency`). Requests that must not wait behind others' slow
    name servers need a client of their own. Create and close it inside the running loop."""

    def __init__(self, rules: HttpEgressRules, tls: ssl.SSLContext, *, keep_alive_s: float | None = None) -> None:
        """`keep_alive_s`: seconds for which idle connections are kept for `open`, whose requests must be such that
        repeating one does no harm. None: each request has a connection of its own, so that none fails because the
        server closed an idle one."""
        self._rules = rules
        self._resolver = ThreadedResolver()
        self._drains: set[asyncio.Task[None]] = set()
        self._session = self._new_session(tls)
        self._keeping = None if keep_alive_s is None else self._new_session(tls, keep_alive_s)

    def _new_session(self, tls: ssl.SSLContext, keep_alive_s: float | None = None) -> aiohttp.ClientSession:
        reuse: dict[str, Any] = {"force_close": True}
        if keep_alive_s is not None:
            reuse = {"keepalive_timeout": keep_alive_s, "ttl_dns_cache": DNS_TTL_S}
        connector = aiohttp.TCPConnector(
            ssl=tls, socket_factory=self._socket, limit=0, resolver=self._resolver, **reuse
        )
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "trunkline"},
            trace_configs=[trace],
        )

    def _socket(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        if not self._rules.is_allowed(str(target[0])):
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
        owner: str | None = None,
    ) -> HttpResponse:
        """Send one request and read at most `max_bytes` of the response, both within `timeout_s`. Any status is a
        response, also a redirect. A `URL` is sent unchanged, a text is parsed. `owner` (an organization) has a limited
        number of concurrent DNS lookups. Raises `HttpEgressError`."""
        with lookups_for(owner):
            async with _as_http_egress_error(f"no complete answer within {timeout_s:g} s"), asyncio.timeout(timeout_s):
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
    ) -> AsyncIterator[HttpEgressStream]:
        """Send one request and stream the response, at most `max_bytes` of it. `connect_s` is the time for the
        connection, `head_s` the time from the beginning to the response's headers. Leaving the block closes the
        connection, unless it is kept and the response was read to its end, or is `complete`. Raises
        `HttpEgressError`."""
        request: dict[str, Any] = {
            "headers": headers,
            "data": body,
            "allow_redirects": False,
            "timeout": aiohttp.ClientTimeout(total=None, connect=connect_s),
        }
        async with _as_http_egress_error(f"no connection within {connect_s:g} s or no answer within {head_s:.3g} s"):
            async with asyncio.timeout(head_s):
                response, reused = await self._send(method, url, request)
        stream = HttpEgressStream(response, max_bytes, reused)
        try:
            yield stream
        except BaseException:
            response.close()
            raise
        if stream.ends_soon and self._keeping is not None:
            drain = asyncio.create_task(stream.drain())
            self._drains.add(drain)
            drain.add_done_callback(self._drains.discard)
            drain.add_done_callback(lambda _: response.close())  # also if it was cancelled before it began
        else:
            response.close()

    async def _send(self, method: str, url: str, request: Mapping[str, Any]) -> tuple[aiohttp.ClientResponse, bool]:
        """The response, and whether its connection is a reused one. A request that a kept connection did not carry,
        because the server was just closing it, is sent once more, on a new one."""
        if self._keeping is not None:
            connection = _Connection()
            try:
                response = await self._keeping.request(method, url, trace_request_ctx=connection, **request)
                return response, connection.reused
            except aiohttp.ClientConnectionError:
                if not connection.reused:
                    raise
        return await self._session.request(method, url, **request), False

    async def _exchange(
        self, method: str, url: str | URL, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> HttpResponse:
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
            return HttpResponse(response.status, response.headers, bytes(content[:max_bytes]), truncated)

    async def close(self) -> None:
        """Close every connection."""
        drains = tuple(self._drains)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)
        if self._keeping is not None:
            await self._keeping.close()
        await self._session.close()
        await self._resolver.close()


def _describe(error: Exception) -> str:
    """Returns the error in words, without the URL, which may have credentials."""
    match error:
        case aiohttp.InvalidURL(description=description):
            return f"the address {description or 'is no usable URL'}"
        case aiohttp.ClientResponseError(message=message):
            return f"{type(error).__name__}: {message}"[:300]
        case _:
            return f"{type(error).__name__}: {error}"[:300]


def _refusal_text(error: BaseException | None) -> str | None:
    """Returns the text of the refusal if the address rules are the root cause of `error`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EACCES and NOT_ALLOWED in str(error):
            return str(error.strerror)
        error = error.__cause__ or error.__context__
    return None
