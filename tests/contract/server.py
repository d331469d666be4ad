"""The real API on loopback over a real database, on a thread of its own, so that tests are plain functions."""

from __future__ import annotations

import asyncio
import json
import string
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from cryptography.fernet import Fernet

from api.app import create_app
from api.serving.listener import listen
from calls.admission.concurrency_limits import ConcurrencyLimits, ReferredLegs
from calls.live.events import LiveEvents
from calls.live.number_feed import NumberFeed
from config.clock import utc_now
from config.errors import Conflict, LimitExceeded
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from storage.accounts import api_keys, organizations
from storage.accounts.organizations import Organization, Plan
from storage.calls import calls
from storage.database.database import Database
from tests import database_template
from tests.contract.client import Client
from tests.contract.published import Published
from tests.fakes.fake_models import listed_models
from tests.fakes.fake_replayer import FakeReplayer
from tests.fakes.services import Services, status_without_sip
from tests.fakes.transfers import FakeTransfers

T = TypeVar("T")
WAIT_S: Final = 20.0
PLENTY: Final = 1_000_000


def fake_catalogue() -> Catalogue:
    """A catalogue with enough voices and models for more than one page."""
    remote = [_language_model(f"remote {number}", "openai", None) for number in range(53)]
    models = [_language_model("built in", is_default=True), _language_model("own", "llama.cpp"), *remote]
    recognized = [first + second for first in "abc" for second in string.ascii_lowercase]
    catalogue = listed_models([f"voice {number}" for number in range(53)], models, recognized)
    catalogue.remember_recognition({"ear of ab": 0.1})
    return catalogue


def _language_model(
    name: str, provider: str = "builtin", context_length: int | None = 4096, *, is_default: bool = False
) -> LanguageModelInfo:
    return LanguageModelInfo(language_model_id(name), name, provider, context_length, is_default)


@dataclass
class Server:
    """A running server. `published` is what it says of itself."""

    services: Services
    loop: asyncio.AbstractEventLoop
    port: int
    published: Published
    _names: Iterator[int] = field(default_factory=count)
    _clients: list[Client] = field(default_factory=list)

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """What a transaction gives, run beside the server's own."""
        return asyncio.run_coroutine_threadsafe(self.services.database.write(work), self.loop).result(WAIT_S)

    def organization(
        self, plan: Plan = "free", balance: float = 0.0, max_calls: int | None = None, requests_per_minute: int = PLENTY
    ) -> tuple[str, Client]:
        """A new organization and its client."""
        name = f"organization {next(self._names)}"

        def work(conn: sa.Connection) -> tuple[str, str]:
            made = organizations.create(conn, name, plan=plan, balance=balance, max_calls=max_calls)
            return made.id, api_keys.create(conn, made.id, requests_per_minute=requests_per_minute)[1]

        organization_id, key = self.write(work)
        return organization_id, self.client(key)

    def client(self, key: str | None) -> Client:
        """A client that is closed with the server."""
        self._clients.append(Client(self.port, key, self.published))
        return self._clients[-1]

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()


def _services(folder: Path, changes: Mapping[str, Any]) -> Services:
    settings = Settings(data_dir=folder).with_changes(
        {
            "api": {"host": "127.0.0.1", "port": 0},
            "limits": {"requests_per_minute": PLENTY},
            "trunks": {"policy": "open"},
            "webhooks": {"max_endpoints": 100},
            "providers": {f"provider_{each}": {"host": f"{each}.carrier.example"} for each in "abc"},
            **changes,
        }
    )
    database = Database(settings.database_url)

    async def hangup(call_id: str) -> bool:
        """What the calls' own service does of it that a client can see."""
        end: dict[str, Any] = {"status": "no_answer", "ended_reason": "api_hangup", "ended_at": utc_now()}
        return await database.write(lambda conn: calls.finish(conn, call_id, **end)) is not None

    async def set_held(call_id: str, on: bool) -> None:
        """The same."""
        call = await database.read(lambda conn: calls.get_by_id(conn, call_id))
        if call is None or call.status != "in_progress":
            raise Conflict("The call is not in progress")

    def whisper(call_id: str, text: str, author: str) -> None:
        """Every call is in progress with its agent."""

    def offer_takeover(call_id: str, name: str) -> str:
        """The same."""
        return f"ticket-of-{call_id}"

    transfers = FakeTransfers()
    transfers.database = database
    ceilings = ConcurrencyLimits(PLENTY, PLENTY)

    def check_room(conn: sa.Connection, organization: Organization) -> None:
        """As the calls' own service, without second legs."""
        own = organization.max_calls
        if (
            ceilings.exceeded_limit(conn, organization.id, own, (), ReferredLegs(check_room, lambda: None))
            == "organization"
        ):
            raise LimitExceeded("Too many concurrent calls. Please try again later.")

    catalogue = fake_catalogue()
    events = LiveEvents()
    numbers = NumberFeed(events, lambda _: (), status_without_sip)
    return Services(
        settings=settings,
        database=database,
        secrets=Secrets([Fernet.generate_key()]),
        catalogue=catalogue,
        voice_sample=catalogue.voice_sample,
        voice_preview=catalogue.voice_preview,
        readiness=lambda: {"sip": None},
        hangup=hangup,
        transfer=transfers.transfer,
        set_held=set_held,
        whisper=whisper,
        offer_takeover=offer_takeover,
        replay=FakeReplayer().replay,
        check_call_capacity=check_room,
        events=events,
        phone_number_stored=numbers.on_stored,
        phone_number_deleted=numbers.on_deleted,
    )


@contextmanager
def serve(folder: Path, changes: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Server]:
    """A server on a new database, until the block ends; `changes` are whole sections of its settings."""
    services = _services(folder, {"database": {"url": database_template.url_of_copy(folder)}, **changes})
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def run() -> None:
        end = asyncio.Event()
        await services.database.open()
        try:
            async with listen(create_app(services), services.settings.api) as port:
                started.set_result((asyncio.get_running_loop(), end, port))
                await end.wait()
        finally:
            await services.database.close()

    def thread_main() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=thread_main, name="server under contract")
    thread.start()
    loop, end, port = started.result(WAIT_S)
    server = Server(services, loop, port, Published(_document(port)))
    try:
        yield server
    finally:
        server.close_clients()
        loop.call_soon_threadsafe(end.set)
        thread.join(WAIT_S)
        assert not thread.is_alive()


def _document(port: int) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request("GET", "/v1/openapi.json")
        document: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return document
