"""A registrar of bytes and sockets: it responds to each REGISTER as a test says, and records the requests."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from typing import Any, Self

from tests.sipcore.raw.raw_phone import Datagrams, Message, parse

REALM = "raw.example.net"
Answer = Callable[[Message], str]
"""From a REGISTER to a status line and more headers, a line each; "" is silence."""


def respond_with(status: str, *headers: str) -> Answer:
    """That response, to every request."""
    return lambda _: "\n".join((status, *headers))


def accept_contacts(expires_s: int | None = None) -> Answer:
    """200 with the contacts of the request; `expires_s` replaces the requested expiry."""

    def answer(request: Message) -> str:
        seconds = request.header("Expires") if expires_s is None else str(expires_s)
        leaves = request.header("Expires") == "0"
        contacts = [] if leaves else [f"{line};expires={seconds}" for line in request.headers("Contact")]
        return "\n".join(("200 OK", *contacts))

    return answer


def challenge_with(
    nonce: str, *, algorithm: str = "MD5", stale: bool = False, status: str = "401 Unauthorized"
) -> Answer:
    """401, or 407 with `status`."""
    return respond_with(status, challenge(nonce, algorithm=algorithm, stale=stale, proxy=status.startswith("407")))


def challenge(nonce: str, *, algorithm: str = "MD5", stale: bool = False, proxy: bool = False) -> str:
    """A challenge's header line (RFC 7616)."""
    name = "Proxy-Authenticate" if proxy else "WWW-Authenticate"
    old = ", stale=true" if stale else ""
    return f'{name}: Digest realm="{REALM}", nonce="{nonce}", algorithm={algorithm}, qop="auth"{old}'


def credentials(request: Message) -> dict[str, str]:
    """The digest parameters of a request; empty without any."""
    line = request.header("Authorization") or request.header("Proxy-Authorization")
    found = re.findall(r'(\w+)=(?:"([^"]*)"|([^ ,]+))', line)
    return {name: quoted or bare for name, quoted, bare in found}


def is_authenticated(request: Message, user: str, password: str) -> bool:
    """True if the request has the right response to its challenge (RFC 7616 3.4.1)."""
    shown = credentials(request)
    if shown.get("username") != user:
        return False
    digest = hashlib.sha256 if shown.get("algorithm", "MD5") == "SHA-256" else hashlib.md5

    def hashed(text: str) -> str:
        return digest(text.encode()).hexdigest()

    secret = hashed(f"{user}:{shown['realm']}:{password}")
    method, uri = request.first_line.split()[0], shown["uri"]
    middle = ":".join(shown[name] for name in ("nonce", "nc", "cnonce", "qop"))
    return shown["response"] == hashed(f"{secret}:{middle}:{hashed(f'{method}:{uri}')}")


class RawRegistrar:
    """`async with RawRegistrar(respond_with("403 Forbidden"))`: responds with each answer in turn, and repeats the last
    one."""

    def __init__(self, *answers: Answer, host: str = "127.0.0.1", port: int = 0, tcp: bool = False) -> None:
        self.host = host
        self.port = port
        self.got: asyncio.Queue[Message] = asyncio.Queue()
        """Every message that came, but what came twice."""
        self._answers = list(answers)
        self._tcp = tcp
        self._seen: dict[str, str] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._socket: Datagrams | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._tcp:
            self._server = await asyncio.start_server(self._serve, self.host, self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            loop = asyncio.get_running_loop()
            _, self._socket = await loop.create_datagram_endpoint(Datagrams, local_addr=(self.host, self.port))
            self._socket.datagram_received = self._datagram  # type: ignore[method-assign]
            self.port = self._socket.port
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket:
            self._socket.transport.close()
        if self._server:
            self._server.close()
        self.hang_up()

    def set_answers(self, *answers: Answer) -> None:
        """Replace the answers from now on."""
        self._answers = list(answers)

    def hang_up(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def next_request(self, timeout_s: float = 5) -> Message:
        """The next message."""
        return await asyncio.wait_for(self.got.get(), timeout_s)

    def _datagram(self, data: bytes, addr: Any) -> None:
        assert self._socket is not None
        if data.strip() and (reply := self._reply(parse(data))):
            self._socket.transport.sendto(reply, addr)
        elif not data.strip():
            self.got.put_nowait(Message("", "", ""))  # a keep-alive

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.strip() and (reply := self._reply(parse(head))):
                    writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._connections.discard(writer)

    def _reply(self, request: Message) -> bytes:
        """A retransmitted request gets the same response again."""
        branch = request.header("Via")
        if branch not in self._seen:
            self.got.put_nowait(request)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self._seen[branch] = answer(request)
        status, *more = self._seen[branch].split("\n")
        if not status:
            return b""
        own = [
            f"SIP/2.0 {status}",
            *request.headers("Via"),
            *request.headers("From"),
            f"{request.headers('To')[0]};tag=registrar",
            *request.headers("Call-ID"),
            *request.headers("CSeq"),
            *more,
            "Content-Length: 0",
        ]
        return ("\r\n".join(own) + "\r\n\r\n").encode()
