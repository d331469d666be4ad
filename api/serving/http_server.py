"""aiohttp's server with limits: slow and large heads, idle clients, input that is not HTTP. Error responses go through
the application, and nothing that the client sent goes into the log."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Final, cast

import structlog
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import ERROR, _ErrInfo
from multidict import CIMultiDict, CIMultiDictProxy

from api.routing.validation import EXPECTS_CONTINUE
from api.serving.middleware import ERROR_RESPONSE, error_response
from config.settings_tables import ApiSettings

VERSIONS: Final = (HttpVersion11, HttpVersion10)
MAX_TARGET: Final = 8192
MAX_FIELD: Final = 8190
"""Bytes of the request target, and of a header's name and value. They differ so that an error tells which one was too
long."""
MAX_FIELDS: Final = 100
MAX_HEAD: Final = 65536
"""Bytes received before a head is complete."""
IDLE_HEAD_S: Final = 3.0
"""A connection counts as idle when its request head takes longer than this, seconds."""
LINGER_S: Final = 5.0
"""Lingering close: how long the rest of a rejected request is read and dropped, so that the client can read the
response, seconds."""
TOO_MANY_FIELDS: Final = "Too many headers received"

log = structlog.get_logger()
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
MakeRequest = Callable[..., web.BaseRequest]


class BoundedAppRunner(web.AppRunner):
    """Runs an application on `HttpServer`."""

    def __init__(self, app: web.Application, settings: ApiSettings, shutdown_timeout: float) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._settings = settings

    async def _make_server(self) -> HttpServer:
        usual = await super()._make_server()
        return HttpServer(usual.request_handler, usual.request_factory, self._settings)


class HttpServer(web.Server):
    """Creates connections, and requests from what they parse."""

    def __init__(self, handle: Any, make_request: MakeRequest, settings: ApiSettings) -> None:
        super().__init__(handle, request_factory=self._request)
        self._make = make_request
        self._settings = settings

    def __call__(self) -> HttpConnection:
        """Returns a new connection."""
        return HttpConnection(self, self._loop, self._settings)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if message.version not in VERSIONS or not message.path.isascii():
            request = self._make(ERROR, payload, protocol, writer, task)
            request[ERROR_RESPONSE] = error_response(400, "Bad request")
            return request
        if hdrs.EXPECT not in message.headers:
            return self._make(message, payload, protocol, writer, task)
        # aiohttp would say "100 Continue" to anybody, before the key and the length are looked at.
        expected = message.headers[hdrs.EXPECT].lower() == "100-continue" and message.version == HttpVersion11
        headers = CIMultiDict(message.headers)
        del headers[hdrs.EXPECT]
        message = message._replace(headers=CIMultiDictProxy(headers))
        request = self._make(message, payload, protocol, writer, task)
        request[EXPECTS_CONTINUE] = expected
        return request


class HttpConnection(web.RequestHandler):
    """A client's connection. `closed` is called once, when an `opened` connection has ended."""

    __slots__ = ("_gone", "_head_bytes", "_head_of", "_head_timeout_s", "_line", "_refused", "closed", "opened")

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop, settings: ApiSettings) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=cast(Any, None),
            keepalive_timeout=settings.idle_timeout_s,
            lingering_time=LINGER_S,
            max_line_size=MAX_TARGET,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
            auto_decompress=False,
        )
        self._head_timeout_s = settings.head_timeout_s
        self._head_of = -1
        self._head_bytes = 0
        self._refused = False
        self._line: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] = loop.create_future()
        self.opened = False
        self.closed: Callable[[], None] = _nothing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The first request head is awaited from now on."""
        self.opened = True
        self._line = cast(asyncio.Transport, transport)
        super().connection_made(transport)
        self._await_head(0)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended, by either side."""
        super().connection_lost(exc)
        self._line = None
        self._end_linger()
        self.closed()

    def idle_since_s(self, now_s: float) -> float | None:
        """The loop's time since which it has been idle between requests, or closing; None while it serves a request. A
        connection whose head does not come within `IDLE_HEAD_S` is idle, too."""
        if self.transport is None:
            return self._next_keepalive_close_time
        if self._messages or self._waiter is None or self._waiter.done():
            return None
        if self._head_of != self._request_count:
            return self._next_keepalive_close_time - self._keepalive_timeout
        since_s = self._next_keepalive_close_time - self._head_timeout_s
        return since_s if now_s - since_s >= IDLE_HEAD_S else None

    def all_sent(self) -> bool:
        """True if the client's system has acknowledged everything that was sent."""
        return self._line is None or _all_sent(self._line)

    def abort(self) -> None:
        """Ends the connection at once."""
        self.force_close()
        if self._line is not None:
            self._line.abort()

    def close(self) -> None:
        """Takes no further request."""
        super().close()
        self._end_linger()

    def _end_linger(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parses. Data after a rejected request is dropped."""
        if self._refused:
            return
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - whatever the parser trips over is a bad request
            self._queue_error(error)
        if self._messages:
            self._head_received()
            if isinstance(self._messages[-1][0], _ErrInfo):
                self._reject()
        elif data and self._expects_head():
            self._await_head(len(data))

    def _expects_head(self) -> bool:
        """True if the received data belongs to a head: before the first request, and while aiohttp waits for the
        next."""
        return not self._request_count or (self._waiter is not None and not self._waiter.done())

    def _await_head(self, received: int) -> None:
        """Called with each part of a head, and before the first one. The whole head has to come in time: the timer is
        set once for each request."""
        if self._head_of != self._request_count:
            self._head_of, self._head_bytes = self._request_count, 0
            due = self._next_keepalive_close_time = self._loop.time() + self._head_timeout_s
            if self._keepalive_handle is not None:
                self._keepalive_handle.cancel()
            self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)
        self._head_bytes += received
        if self._head_bytes > MAX_HEAD:
            self._queue_error(BadHttpMessage(TOO_MANY_FIELDS))
            self._reject()

    def _head_received(self) -> None:
        """The next timeout is the one between two requests."""
        if self._head_of >= 0 and self._keepalive_handle is not None:
            self._head_of = -1
            self._keepalive_handle.cancel()
            self._keepalive_handle = None

    def _queue_error(self, error: Exception) -> None:
        """Queue an error the way aiohttp queues those of its parser."""
        self._messages.append((_ErrInfo(400, error, ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _reject(self) -> None:
        """What was received last is not HTTP. When it belongs to the body of a request, that request gets the error;
        else it is answered like a request of its own, after those before it."""
        self._refused = True
        error, _ = self._messages.pop()
        body = self._messages[-1][1] if self._messages else self._current_body()
        if body.is_eof():
            self._messages.append((error, EMPTY_PAYLOAD))
        else:
            body.set_exception(web.RequestPayloadError("malformed"))
            body.feed_eof()

    def _current_body(self) -> StreamReader:
        return EMPTY_PAYLOAD if self._current_request is None else self._current_request.content

    def _make_error_handler(self, err_info: _ErrInfo) -> Handle:
        """Error responses go through the application, so that they are counted, charged and get a request id like any
        other."""
        handle = self._request_handler
        assert handle is not None

        async def refused(request: web.BaseRequest) -> web.StreamResponse:
            request[ERROR_RESPONSE] = error_response(*_status_and_message(err_info.exc))
            return await handle(request)

        return refused

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response. The last one before the connection closes says so (`Connection: close`)."""
        unread = not request.content.is_eof()
        after_it_nothing = self._refused and not self._messages
        if after_it_nothing or (unread and request.get(EXPECTS_CONTINUE, False)):
            resp.force_close()
        if unread and resp.keep_alive is False:
            self._lingering_time = 0.0
        sent = await super().finish_response(request, resp, start_time)
        if after_it_nothing:
            await self._linger()
        return sent

    async def _linger(self) -> None:
        """Gives the client time to read the response: closing while it still sends would reset the connection."""
        if self.transport is not None:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            await asyncio.wait((self._gone,), timeout=LINGER_S)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Handles an error outside of the application, which handles all errors inside it."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client is gone
        log.error("api.request_failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of a response is sent already") from exc
        response = error_response(500, "Internal server error")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log without aiohttp's message, because that quotes what the client sent."""
        log.error("api.connection_failed", exc_info=kw.get("exc_info", True))


def _all_sent(line: asyncio.Transport) -> bool:
    """Asks the transport and the socket: what TLS has handed on and the socket has not taken yet is in no transport's
    count, but then the socket is full."""
    if line.get_write_buffer_size():
        return False
    held, not_taken = line.get_extra_info("socket"), array("i", [0])
    if held is None or held.fileno() < 0:
        return True
    with suppress(OSError):  # closed by now
        ioctl(held.fileno(), TIOCOUTQ, not_taken)
    return not not_taken[0]


def _status_and_message(error: BaseException) -> tuple[int, str]:
    """Status and message for what the parser rejected, without quoting it."""
    if isinstance(error, LineTooLong) and error.args[1] == MAX_TARGET:
        return 414, "Request target is too long"
    if isinstance(error, LineTooLong) or error.args == (TOO_MANY_FIELDS,):
        return 431, "Request header fields are too large"
    return 400, "Bad request"


def _nothing() -> None:
    return None
