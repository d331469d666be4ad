"""A language model behind the OpenAI API, asked by the client that calls use.

    python -m bench.models.remote_llm prefix|connections|shares [--shape 15M] [--quick]
    python -m bench.models.remote_llm capacity --url http://gpu:8000/v1 --model qwen3-8b --calls 8 16 32

The first three start llama-cpp-python's server with random weights. `prefix`: the time to the first token of each turn
of a conversation, with the prompt as it is sent and with one whose beginning changes each turn. `connections`: requests
on kept connections and on new ones. `shares`: the first token of a node with one call beside a node with many.
`capacity`: the first token by the number of calls, of any server. Prints the rows as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from bench.models.openai_server import MODEL, openai_server
from bench.models.random_gguf import shape_file
from bench.models.random_vocabulary import sentence
from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import KEEP_ALIVE_S, HttpEgressClient
from config import logging as logs
from models.errors import RemoteModelError
from models.protocols import ChatMessage, ChatPrompt, TextDelta
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel, RemoteTimeouts
from models.remote.language_model import RemoteLanguageModel
from models.runtime.request_context import RequestContext, requests_for

SYSTEM_TOKENS: Final = 600
USER_TOKENS: Final = 20
ANSWER_TOKENS: Final = 20
TURNS: Final = 20
UNLIMITED: Final = 10_000
GREEDY_CALLS: Final = 12
LIMIT: Final = 2
PATIENT: Final = RemoteTimeouts(connect_s=5, first_word_s=120, between_words_s=60, total_s=300)
_PLAIN_TEXT: Final = """the order was sent on Monday and it should arrive at your house before noon so please tell me
if you want to change the date or address of this delivery because our driver can call when he is near"""

Row = dict[str, Any]


def plain_sentence(seed: str, length: int) -> str:
    """`length` English words, most of one token; the same for the same seed."""
    drawn, words = random.Random(seed), _PLAIN_TEXT.split()
    return " ".join(drawn.choice(words) for _ in range(length))


@dataclass
class Call:
    """A conversation with the model. `changing`: its prompt begins with the present time, different in each turn."""

    model: RemoteLanguageModel
    name: str
    agent: str
    changing: bool = False
    plain: bool = False
    messages: list[ChatMessage] = field(default_factory=list)

    async def turn(self) -> float:
        """The next turn. Returns the seconds to its first token. Raises `RemoteModelError`."""
        words = plain_sentence if self.plain else sentence
        system = words(self.agent, SYSTEM_TOKENS)
        if self.changing:
            system = f"{words(str(time.time()), 4)} {system}"
        self.messages.append(ChatMessage("user", words(f"{self.name} asks {len(self.messages)}", USER_TOKENS)))
        began, first_s, text = time.perf_counter(), None, ""
        with requests_for(RequestContext(call_id=self.name, live=True)):
            parts = self.model.respond(ChatPrompt(self.name, system, self.messages))
            try:
                async with aclosing(parts):
                    async for part in parts:
                        first_s = time.perf_counter() - began if first_s is None else first_s
                        text += part.text if isinstance(part, TextDelta) else ""
            except RemoteModelError:
                self.messages.pop()
                raise
        self.messages.append(ChatMessage("assistant", text))
        assert first_s is not None
        return first_s


@asynccontextmanager
async def http_client(tls: ssl.SSLContext | None = None, *, keep: bool = True) -> AsyncIterator[HttpEgressClient]:
    """A client as calls have it, or one with a new connection for each request."""
    rules = HttpEgressRules(["0.0.0.0/0", "::/0"])
    context = await asyncio.to_thread(ssl.create_default_context) if tls is None else tls
    client = HttpEgressClient(rules, context, keep_alive_s=KEEP_ALIVE_S if keep else None)
    try:
        yield client
    finally:
        await client.close()


def remote_model(
    url: str, timeouts: RemoteTimeouts = PATIENT, model: str = MODEL, key: str | None = None
) -> RemoteModel:
    """The configuration of the model."""
    extra = {"max_tokens": ANSWER_TOKENS, "temperature": 0}
    return RemoteModel("bench", "llm", url, model, key, timeouts, context_length=16_384, extra=extra)


async def prefix(shape: str, times: int, turns: int) -> list[Row]:
    """The first token of each turn, prompts of the two kinds in turn."""
    first_ms: dict[bool, list[list[float]]] = {False: [], True: []}
    path = str(await asyncio.to_thread(shape_file, shape))
    async with openai_server(path) as url, http_client() as http:
        model = RemoteLanguageModel(RemoteModelClient(remote_model(url), http))
        for repetition in range(times):
            for changing in (False, True):
                call = Call(model, f"call {repetition} {changing}", f"agent {repetition} {changing}", changing)
                first_ms[changing].append([1000 * await call.turn() for _ in range(turns)])
    rows = []
    medians = {changing: np.median(np.array(runs), axis=0) for changing, runs in first_ms.items()}
    for changing, what in ((False, "as sent"), (True, "the time at the beginning")):
        each = medians[changing]
        picked = {f"turn_{turn}_ms": round(float(each[turn - 1])) for turn in (1, 2, 10, 20) if turn <= turns}
        rows.append({"shape": shape, "prompt": what, **picked, "median_from_turn_2_ms": round(median(each[1:]), 1)})
    ratio = median(medians[True][1:]) / median(medians[False][1:])
    return [*rows, {"shape": shape, "prompt": "ratio", "median_from_turn_2": round(float(ratio), 1)}]


async def connections(shape: str, requests: int) -> list[Row]:
    """`GET /models` on kept connections and on new ones, in turn, over http and https."""
    rows = []
    path = str(await asyncio.to_thread(shape_file, shape))
    with tempfile.TemporaryDirectory() as folder:
        files = await asyncio.to_thread(_self_signed, Path(folder))
        tls = await asyncio.to_thread(ssl.create_default_context, cafile=files[0])
        for certificate in (None, files):
            async with (
                openai_server(path, certificate) as url,
                http_client(tls) as kept,
                http_client(tls, keep=False) as new,
            ):
                clients = [RemoteModelClient(remote_model(url), http) for http in (kept, new)]
                took_ms: list[list[float]] = [[], []]
                for _ in range(requests):
                    for client, into in zip(clients, took_ms, strict=True):
                        began = time.perf_counter()
                        await client.list_models()
                        into.append(1000 * (time.perf_counter() - began))
                scheme = url.partition(":")[0]
                rows.append({"scheme": scheme, "kept_ms": _percentiles(took_ms[0]), "new_ms": _percentiles(took_ms[1])})
    return rows


def _self_signed(folder: Path) -> tuple[str, str]:
    certificate, key = str(folder / "bench.pem"), str(folder / "bench.key")
    command = (
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-out", certificate, "-keyout", key),
    )
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return certificate, key


@dataclass
class Node:
    """A node with its own connections and limit. `outcomes`: responses, and why others failed."""

    model: RemoteLanguageModel
    first_ms: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run_call(self, name: str, pause_s: float, until_s: float, plain: bool = False) -> None:
        """Holds a conversation; a failed turn goes to another model, which takes the time of a response."""
        call = Call(self.model, name, "agent of all", plain=plain)
        while time.monotonic() < until_s:
            try:
                self.first_ms.append(1000 * await call.turn())
                self.outcomes["responded"] += 1
            except RemoteModelError as error:
                self.outcomes[error.kind] += 1
                await asyncio.sleep(1.0)
            if len(call.messages) > 2 * TURNS:
                del call.messages[2:]
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


async def shares(shape: str, seconds: float, times: int) -> list[Row]:
    """Two nodes with a call each beside one with many, with the limit and without it, in turn."""
    measured: dict[int, list[list[Node]]] = {LIMIT: [], UNLIMITED: []}
    path = str(await asyncio.to_thread(shape_file, shape))
    async with openai_server(path) as url:
        for _ in range(times):
            for limit, runs in measured.items():
                runs.append(await _three_nodes(url, limit, seconds))
    rows = []
    for limit, runs in measured.items():
        for which, what in ((slice(0, 1), f"{GREEDY_CALLS} calls"), (slice(1, 3), "1 call each")):
            nodes = [node for run in runs for node in run[which]]
            outcomes = sum((node.outcomes for node in nodes), Counter[str]())
            first_ms = [each for node in nodes for each in node.first_ms]
            limit_text = "none" if limit == UNLIMITED else str(limit)
            rows.append({"limit": limit_text, "nodes": what, "first_ms": _percentiles(first_ms), **outcomes})
    return rows


async def _three_nodes(url: str, limit: int, seconds: float) -> list[Node]:
    async with http_client() as one, http_client() as two, http_client() as three:
        model = remote_model(url, RemoteTimeouts())
        nodes = [Node(RemoteLanguageModel(RemoteModelClient(model, http, limit=limit))) for http in (one, two, three)]
        until_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(GREEDY_CALLS):
                group.create_task(nodes[0].run_call(f"greedy {number}", 0.1, until_s))
            for number, node in enumerate(nodes[1:]):
                group.create_task(node.run_call(f"small {number}", 0.5, until_s))
        return nodes


async def capacity(options: argparse.Namespace) -> AsyncIterator[Row]:
    """The first token by the number of calls, each of which asks again `--pause` seconds after a response."""
    key = os.environ.get(options.key_variable) if options.key_variable else None
    model = remote_model(options.url, RemoteTimeouts(), options.model, key)
    for calls in options.calls:
        async with http_client() as http:
            node = Node(RemoteLanguageModel(RemoteModelClient(model, http, limit=options.limit)))
            until_s = time.monotonic() + options.seconds
            async with asyncio.TaskGroup() as group:
                for number in range(calls):
                    group.create_task(node.run_call(f"call {number} of {calls}", options.pause, until_s, plain=True))
                    await asyncio.sleep(options.pause / calls)
        yield {"calls": calls, "first_ms": _percentiles(node.first_ms), **node.outcomes}


def _percentiles(values: Sequence[float]) -> str:
    """p50 / p95."""
    return " / ".join(f"{np.percentile(values, percent):.3g}" for percent in (50, 95)) if values else "-"


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prefix", "connections", "shares", "capacity"))
    parser.add_argument("--shape", default="15M")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--key-variable", help="environment variable with the server's API key")
    parser.add_argument("--calls", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--pause", type=float, default=8.0, help="seconds from a response to the next turn")
    parser.add_argument("--limit", type=int, default=UNLIMITED, help="requests under way at once")
    options = parser.parse_args()
    if options.what == "capacity" and not options.url:
        parser.error("capacity needs --url")
    logs.configure("error", "console")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    asyncio.run(_print_rows(options))


async def _print_rows(options: argparse.Namespace) -> None:
    times, seconds = (1, 2.0) if options.quick else (options.times, options.seconds)
    match options.what:
        case "prefix":
            rows = await prefix(options.shape, times, 3 if options.quick else TURNS)
        case "connections":
            rows = await connections(options.shape, 20 if options.quick else 300)
        case "shares":
            rows = await shares(options.shape, seconds, times)
        case _:
            rows = []
            async for row in capacity(options):
                print(json.dumps(row), flush=True)
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
