"""aiohttp's server with limits for slow and large request heads, idle connections and input that is not HTTP. Error
responses go through the application, and nothing that the client sent is logged."""

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
"""Bytes of the request target, and of a header field (name and value). They differ so that aiohttp's error shows which
one was too long."""
MAX_FIELDS: Final = 100
MAX_HEAD: Final = 65536
"""Bytes of an incomplete head."""
IDLE_HEAD_S: Final = 3.0
"""Seconds after which a connection with an incomplete head counts as idle."""
LINGER_S: Final = 5.0
"""Lingering close: seconds for which the rest of a rejected request is read and dropped, so that the client can read
the response."""
TOO_MANY_FIELDS: Final = "Too many headers received"
"""aiohttp's error message."""

log = structlog.get_logger()
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
RequestFactory = Callable[..., web.BaseRequest]


class BoundedAppRunner(web.AppRunner):
    """Runs an application on `HttpServer`."""

    def __init__(self, app: web.Application, settings: ApiSettings, shutdown_timeout: float) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._settings = settings

    async def _make_server(self) -> HttpServer:
        server = await super()._make_server()
        return HttpServer(server.request_handler, server.request_factory, self._settings)


class HttpServer(web.Server):
    """Creates connections, and requests from parsed heads."""

    def __init__(self, handler: Any, make_request: RequestFactory, settings: ApiSettings) -> None:
        super().__init__(handler, request_factory=self._request)
        self._app_request = make_request
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
            request = self._app_request(ERROR, payload, protocol, writer, task)
            request[ERROR_RESPONSE] = error_response(400, "Bad request")
            return request
        if hdrs.EXPECT not in message.headers:
            return self._app_request(message, payload, protocol, writer, task)
        # The header is removed because aiohttp would send "100 Continue" before key and length are checked.
        expects_continue = message.headers[hdrs.EXPECT].lower() == "100-continue" and message.version == HttpVersion11
        headers = CIMultiDict(message.headers)
        del headers[hdrs.EXPECT]
        message = message._replace(headers=CIMultiDictProxy(headers))
        request = self._app_request(message, payload, protocol, writer, task)
        request[EXPECTS_CONTINUE] = expects_continue
        return request


class HttpConnection(web.RequestHandler):
    """A client's connection. `opened` becomes True when it is established (with TLS, after the handshake); `on_close`
    is called once, when an opened connection has ended."""

    __slots__ = (
        "_ended",
        "_head_bytes",
        "_head_number",
        "_head_timeout_s",
        "_input_rejected",
        "_open_transport",
        "on_close",
        "opened",
    )

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
        self._head_number = -1
        """The number of the request whose head is incomplete; -1 for none."""
        self._head_bytes = 0
        self._input_rejected = False
        self._open_transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = loop.create_future()
        self.opened = False
        self.on_close: Callable[[], None] = _do_nothing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of the first request head."""
        self.opened = True
        self._open_transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)
        self._await_head(0)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended, by either side."""
        super().connection_lost(exc)
        self._open_transport = None
        self._end_linger()
        self.on_close()

    def idle_since_s(self, now_s: float) -> float | None:
        """Returns the loop's time since which the connection has been idle between requests, or closing; None while it
        serves a request. A connection whose head is not complete within `IDLE_HEAD_S` is idle, too."""
        if self.transport is None:
            return self._next_keepalive_close_time
        if self._messages or self._waiter is None or self._waiter.done():
            return None
        if self._head_number != self._request_count:
            return self._next_keepalive_close_time - self._keepalive_timeout
        since_s = self._next_keepalive_close_time - self._head_timeout_s
        return since_s if now_s - since_s >= IDLE_HEAD_S else None

    @property
    def ended(self) -> asyncio.Future[None]:
        """Done once the connection has ended, or accepts no further request; never cancel it."""
        return self._ended

    def is_all_sent(self) -> bool:
        """True if the client's system has acknowledged all data that was sent."""
        return self._open_transport is None or _is_all_sent(self._open_transport)

    def abort(self) -> None:
        """End the connection at once."""
        self.force_close()
        if self._open_transport is not None:
            self._open_transport.abort()

    def close(self) -> None:
        """Accept no further request."""
        super().close()
        self._end_linger()

    def _end_linger(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse received data; after a rejected request it is dropped."""
        if self._input_rejected:
            return
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - any failure of the parser is a bad request
            self._queue_error(error)
        if self._messages:
            self._head_received()
            if isinstance(self._messages[-1][0], _ErrInfo):
                self._reject()
        elif data and self._expects_head():
            self._await_head(len(data))

    def _expects_head(self) -> bool:
        """True if received data belongs to a head: before the first request, and while aiohttp waits for the next."""
        return not self._request_count or (self._waiter is not None and not self._waiter.done())

    def _await_head(self, received: int) -> None:
        """Called with the number of bytes of each part of a head, and with 0 before the first one. The timer is set
        once for each head, because the complete head must come in time."""
        if self._head_number != self._request_count:
            self._head_number, self._head_bytes = self._request_count, 0
            due = self._next_keepalive_close_time = self._loop.time() + self._head_timeout_s
            if self._keepalive_handle is not None:
                self._keepalive_handle.cancel()
            self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)
        self._head_bytes += received
        if self._head_bytes > MAX_HEAD:
            self._queue_error(BadHttpMessage(TOO_MANY_FIELDS))
            self._reject()

    def _head_received(self) -> None:
        """Stop the timeout of the head; the next one is that between two requests."""
        if self._head_number >= 0 and self._keepalive_handle is not None:
            self._head_number = -1
            self._keepalive_handle.cancel()
            self._keepalive_handle = None

    def _queue_error(self, error: Exception) -> None:
        """Queue an error as aiohttp queues the errors of its parser."""
        self._messages.append((_ErrInfo(400, error, ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _reject(self) -> None:
        """Reject the last input, which is not HTTP. If it belongs to the body of a request, that request gets the
        error; else the error is sent as the response to a request of its own, after those before it."""
        self._input_rejected = True
        error, _ = self._messages.pop()
        body = self._messages[-1][1] if self._messages else self._current_body()
        if body.is_eof():
            self._messages.append((error, EMPTY_PAYLOAD))
        else:
            body.set_exception(web.RequestPayloadError("malformed"))
            body.feed_eof()

    def _current_body(self) -> StreamReader:
        return EMPTY_PAYLOAD if self._current_request is None else self._current_request.content

    def _make_error_handler(self, err_info: _ErrInfo) -> Handler:
        """Sends error responses through the application, so that they are counted, charged and get a request id like
        any other."""
        handler = self._request_handler
        assert handler is not None

        async def error_handler(request: web.BaseRequest) -> web.StreamResponse:
            request[ERROR_RESPONSE] = error_response(*_status_and_message(err_info.exc))
            return await handler(request)

        return error_handler

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response; the last one of the connection has `Connection: close`."""
        is_unread = not request.content.is_eof()
        is_last = self._input_rejected and not self._messages
        if is_last or (is_unread and request.get(EXPECTS_CONTINUE, False)):
            resp.force_close()
        if is_unread and resp.keep_alive is False:
            self._lingering_time = 0.0
        result = await super().finish_response(request, resp, start_time)
        if is_last:
            await self._linger()
        return result

    async def _linger(self) -> None:
        """Give the client time to read the response: closing while it still sends would reset the connection."""
        if self.transport is not None:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            await asyncio.wait((self._ended,), timeout=LINGER_S)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Handle an error outside of the application, which handles those inside it."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client has disconnected
        log.error("api.request_failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response has been sent already") from exc
        response = error_response(500, "Internal server error")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log without aiohttp's message, because it quotes input of the client."""
        log.error("api.connection_failed", exc_info=kw.get("exc_info", True))


def _is_all_sent(transport: asyncio.Transport) -> bool:
    """True if neither the transport nor the socket has unsent or unacknowledged data. Data between TLS and the socket
    is in neither count, but then the socket's buffer is full."""
    if transport.get_write_buffer_size():
        return False
    connected, unacknowledged = transport.get_extra_info("socket"), array("i", [0])
    if connected is None or connected.fileno() < 0:
        return True
    with suppress(OSError):  # closed meanwhile
        ioctl(connected.fileno(), TIOCOUTQ, unacknowledged)
    return not unacknowledged[0]


def _status_and_message(error: BaseException) -> tuple[int, str]:
    """Status and message of the response to an error of the parser, without quoting the input."""
    if isinstance(error, LineTooLong) and error.args[1] == MAX_TARGET:
        return 414, "Request target is too long"
    if isinstance(error, LineTooLong) or error.args == (TOO_MANY_FIELDS,):
        return 431, "Request header fields are too large"
    return 400, "Bad request"


def _do_nothing() -> None:
    return None
