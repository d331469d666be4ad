"""The server answers or disconnects, and works on, whatever bytes it receives."""

from __future__ import annotations

import asyncio
import io
import json
import random

from tests.api.wire.conftest import Live, Serve

SEED = 5
ROUNDS, AT_ONCE = 10, 30
ODD = [
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"\xff",
    b" ",
    b"\t",
    b"%",
    b"#",
    b"?",
    b":",
    b"//",
    b"[",
    b"-1",
    b"chunked",
    b"9" * 30,
]


def _damaged(request: bytes, chance: random.Random) -> bytes:
    """The request with a few bytes inserted, changed or removed, mostly near its start."""
    data = bytearray(request)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(chance.choice((len(data), min(60, len(data)))))
        match chance.randrange(3):
            case 0:
                data[at:at] = chance.choice(ODD)
            case 1:
                data[at] = chance.randrange(256)
            case _:
                del data[at : at + chance.randrange(1, 6)]
    return bytes(data)


async def _status(live: Live, sent: bytes) -> int | None:
    wire = await live.connect()
    try:
        return (await wire.ask(sent)).status
    except (ConnectionError, asyncio.IncompleteReadError):
        return None
    finally:
        wire.writer.close()


async def test_damaged_requests_are_never_a_server_error(serve: Serve, log_text: io.StringIO) -> None:
    live = await serve(head_timeout_s=0.05, body_timeout_s=0.05, limits={"requests_per_minute": 10_000})
    chance = random.Random(SEED)
    whole = [
        live.post(b'{"name": "Anna"}'),
        live.head("GET", "/v1/agents?limit=1&search=a%20b", "X-Request-Id: a", "Range: bytes=0-1"),
        live.head("GET", "http://x:80/v1/agents", "Upgrade: websocket", "Connection: Upgrade"),
        live.head("POST", "/v1/agents", "Transfer-Encoding: chunked") + b'd\r\n{"name": "A"}\r\n0\r\n\r\n',
        live.head("CONNECT", "x:80"),
    ]
    statuses: set[int | None] = set()
    for _ in range(ROUNDS):
        sent = [_damaged(chance.choice(whole), chance) for _ in range(AT_ONCE)]
        statuses.update(await asyncio.gather(*(_status(live, each) for each in sent)))
    assert statuses >= {200, 400, 401, 404}
    assert not statuses & {500, 503}
    lines = [json.loads(line) for line in log_text.getvalue().splitlines()]
    assert not [line for line in lines if line["level"] in ("warning", "error")]
    assert live.api.key not in log_text.getvalue()
