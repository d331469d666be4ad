"""The WebSocket of a test call: `GET /v1/calls/{id}/socket?ticket=...`, opened by the ticket of POST /calls/test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, Literal

import structlog
from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from api.auth import access_watch
from api.auth.access_watch import ACCESS_WATCH, Access
from api.auth.authentication import CALL_SOCKET_PATH
from api.auth.rate_limit import RateLimiter
from api.auth.same_origin import require_same_origin
from api.http.timeouts import DEADLINES
from api.resources.calls.timeline import TurnTimes
from api.services import Services
from calls.web_call.web_call import WebConnection
from sipcore.audio.pcm_channel import PCM_RATE

FRAME_MS: Final = 20
FRAME_BYTES: Final = 2 * PCM_RATE * FRAME_MS // 1000
LEAST_ROLE: Final = "editor"
MAX_MESSAGE: Final = 1024
"""Bytes of a frame of the client."""
MAX_FRAMES: Final = 4500
"""Audio frames of a client in 60 s: 3000 are real time."""
MAX_TEXTS: Final = 1200
"""Text frames of a client in 60 s."""
SLOW_READER_S: Final = 5.0
"""Time for a client to read what was sent; meanwhile the audio for it is dropped."""
HEARTBEAT_S: Final = 20.0
CLOSE_TIMEOUT_S: Final = 2.0

log = structlog.get_logger()


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class Dtmf(_Message):
    """The client has pressed keys."""

    type: Literal["dtmf"]
    digits: Annotated[str, Field(pattern="^[0-9*#A-Da-d]{1,32}$")]


class Played(_Message):
    """The position in the received audio that the client plays now; audio that a `clear` has dropped counts."""

    type: Literal["played"]
    ms: Annotated[int, Field(ge=0, le=86_400_000)]


class Hangup(_Message):
    """The client hangs up."""

    type: Literal["hangup"]


ClientMessage = TypeAdapter[Dtmf | Played | Hangup](Annotated[Dtmf | Played | Hangup, Field(discriminator="type")])


class PlaybackDelay:
    """How far the client's loudspeaker is behind what was sent to it, ms: its buffer and the network."""

    def __init__(self) -> None:
        self.max_ms = 0
        self._sent_ms = self._sum_ms = self._count = 0

    def on_frame(self) -> None:
        """A frame was sent."""
        self._sent_ms += FRAME_MS

    def on_played(self, ms: int) -> None:
        """The client plays this position."""
        delay_ms = max(self._sent_ms - ms, 0)
        self._sum_ms, self._count = self._sum_ms + delay_ms, self._count + 1
        self.max_ms = max(self.max_ms, delay_ms)

    @property
    def mean_ms(self) -> int | None:
        """None if the client has told nothing."""
        return round(self._sum_ms / self._count) if self._count else None


class Violation(Exception):
    """The client breaks a rule; `code` and message go into the closing frame."""

    def __init__(self, code: WSCloseCode, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


def add_call_socket(app: web.Application, services: Services) -> None:
    """Add the route."""

    async def open_socket(request: web.Request) -> web.StreamResponse:
        require_same_origin(request, services.settings.public_origin)
        socket = web.WebSocketResponse(
            max_msg_size=MAX_MESSAGE, compress=False, heartbeat=HEARTBEAT_S, timeout=CLOSE_TIMEOUT_S
        )
        if not socket.can_prepare(request):
            raise web.HTTPUpgradeRequired
        ticket = request.query.get("ticket", "")
        connection = await services.connect_web_call(request.match_info["id"], ticket)
        access = request.app[ACCESS_WATCH].begin_by_ticket(ticket, LEAST_ROLE)
        with request.app[DEADLINES].paused():
            try:
                await socket.prepare(request)
                await CallSocket(socket, connection, access).run()
            finally:
                access.close()
                connection.leg.on_peer_hangup()
        return socket

    app.router.add_get(CALL_SOCKET_PATH, open_socket)


class CallSocket:
    """Exchanges the frames of one call until either side closes."""

    def __init__(self, socket: web.WebSocketResponse, connection: WebConnection, access: Access) -> None:
        self._socket = socket
        self._access = access
        self._leg, self._feed, self._ended = connection.leg, connection.feed, connection.ended
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._unsent = b""
        self._delay = PlaybackDelay()

    async def run(self) -> None:
        """Send and receive; at the end the leg has ended."""
        self._feed.on_message = self._wake.set
        self._ended.add_done_callback(self._on_ended)
        directions = [asyncio.create_task(work) for work in (self._send(), self._receive(), self._until_forbidden())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.on_message = _do_nothing
            self._ended.remove_done_callback(self._on_ended)
            for each in directions:
                each.cancel()
            await asyncio.wait(directions)
            self._loop.remove_reader(self._leg.channel.event_fd)
            self._leg.on_peer_hangup()
            self._log_end()
            await self._close(directions)

    async def _until_forbidden(self) -> None:
        """Raises `Violation` when whoever created or takes over the call may not do so any more."""
        await asyncio.shield(self._access.ended)
        raise Violation(WSCloseCode.POLICY_VIOLATION, access_watch.ENDED)

    def _log_end(self) -> None:
        received = self._leg.channel.stats()
        log.info(
            "call.web_disconnected",
            call_id=self._leg.sip_call_id,
            playback_delay_ms=self._delay.mean_ms,
            playback_delay_max_ms=self._delay.max_ms,
            missing_ms=received.ticks_without_audio * FRAME_MS,
            too_early_ms=round(received.received_samples_dropped * 1000 / PCM_RATE),
        )

    async def _close(self, directions: list[asyncio.Task[None]]) -> None:
        """Close with the reason for which a direction has ended; raises its unexpected error."""
        errors = [each.exception() for each in directions if not each.cancelled()]
        violation = next((error for error in errors if isinstance(error, Violation)), None)
        if violation is not None:
            log.warning("call.web_refused", call_id=self._leg.sip_call_id, why=str(violation))
            await self._socket.close(code=violation.code, message=str(violation).encode())
            return
        await self._socket.close()
        for error in errors:
            if error is not None and not isinstance(error, ConnectionError):
                raise error

    def _on_ended(self, _: object) -> None:
        self._wake.set()

    # ---- to the client ----

    async def _send(self) -> None:
        """Send audio and messages as they come; returns after the end of the call."""
        while not self._ended.done():
            self._loop.add_reader(self._leg.channel.event_fd, self._on_audio)
            await self._wake.wait()
            self._wake.clear()
            await self._send_audio()
            await self._send_messages()
        await self._send_messages()
        await self._send_text({"type": "ended", "endedReason": self._ended.result()})

    def _on_audio(self) -> None:
        """The reader is added again after the audio was taken: meanwhile the descriptor stays readable."""
        self._loop.remove_reader(self._leg.channel.event_fd)
        self._wake.set()

    async def _send_audio(self) -> None:
        block = self._leg.channel.read()
        if block.clear_before:
            self._unsent = b""
            await self._send_text({"type": "clear"})
        audio = self._unsent + block.audio
        whole = len(audio) - len(audio) % FRAME_BYTES
        self._unsent = audio[whole:]
        for at in range(0, whole, FRAME_BYTES):
            async with _in_time():
                await self._socket.send_bytes(audio[at : at + FRAME_BYTES])
            self._delay.on_frame()

    async def _send_messages(self) -> None:
        for message in self._feed.take():
            await self._send_text(_as_json(message))

    async def _send_text(self, message: Mapping[str, Any]) -> None:
        async with _in_time():
            await self._socket.send_str(json.dumps(message, ensure_ascii=False, separators=(",", ":")))

    # ---- from the client ----

    async def _receive(self) -> None:
        """Take the client's frames; returns when it has closed the connection. Raises `Violation`."""
        limiter = RateLimiter()
        async for message in self._socket:
            match message.type:
                case WSMsgType.BINARY:
                    _check_rate(limiter, "audio", MAX_FRAMES)
                    self._on_frame(message.data)
                case WSMsgType.TEXT:
                    _check_rate(limiter, "text", MAX_TEXTS)
                    self._on_text(message.data)
                case _:
                    return

    def _on_frame(self, frame: bytes) -> None:
        if len(frame) != FRAME_BYTES:
            raise Violation(WSCloseCode.POLICY_VIOLATION, f"An audio frame has {FRAME_BYTES} bytes")
        self._leg.channel.write(frame)

    def _on_text(self, text: str) -> None:
        try:
            message = ClientMessage.validate_json(text)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            raise Violation(WSCloseCode.POLICY_VIOLATION, f"Not a message: {problem}"[:120]) from error
        match message:
            case Dtmf(digits=digits):
                self._leg.on_digits(digits)
            case Hangup():
                self._leg.on_peer_hangup()
            case Played(ms=ms):
                self._delay.on_played(ms)


def _check_rate(limiter: RateLimiter, kind: str, limit: int) -> None:
    if not limiter.charge(kind, limit, time.monotonic()).allowed:
        raise Violation(WSCloseCode.POLICY_VIOLATION, "Too many frames: audio is sent in real time")


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Raises `Violation` if the client does not read what the block sends in time."""
    try:
        async with asyncio.timeout(SLOW_READER_S):
            yield
    except TimeoutError as error:
        raise Violation(WSCloseCode.POLICY_VIOLATION, "The client reads too slowly") from error


def _as_json(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message of the feed in the names of the API."""
    match message["type"]:
        case "turn":
            turn = TurnTimes.model_validate({name: value for name, value in message.items() if name != "type"})
            return {"type": "turn", **turn.model_dump(mode="json", by_alias=True)}
        case "tool":
            names = {"number": "id", "start_ms": "startMs", "end_ms": "endMs"}
            return {names.get(name, name): value for name, value in message.items()}
        case _:
            return dict(message)


def _do_nothing() -> None:
    return None
