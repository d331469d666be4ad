"""Servers that tests share; a failure report shows their logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Receiver, Server
from tests.trunkline.sip_phone import known

WEBHOOK_SECRET = "hush-hush-webhook"
GREETING = "Welcome to the harbour office. We are glad that you call. How can we help you today?"
PRICES = {
    "telephony_per_minute": 0.012,
    "inference_per_1000_tokens": 0.0035,
    "speech_to_text_per_minute": 0.006,
    "text_to_speech_per_1000_characters": 0.015,
}
"""The rate card of the shared server, where it applies to paid plans only."""
PROMPT = "You answer the telephone of the harbour office. Our opening hours are nine to five on weekdays."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the running servers to the report of a failure."""
    report = yield
    if report.failed:
        for server in Server.running:
            report.sections.append((f"log of the server at {server.origin}", "\n".join(server.log.lines[-120:])))
    return report


@dataclass(frozen=True)
class Office:
    """A server with an organization and its numbers 100 (agent that greets), 101 (no agent) and 102 (inactive
    agent)."""

    server: Server
    client: Client
    receiver: Receiver
    agent_id: str


@asynccontextmanager
async def open_office(server: Server) -> AsyncIterator[Office]:
    key = await server.key()
    server.secrets.add(GREETING)  # transcripts are logged at debug only
    async with Receiver() as receiver, server, Client(server.origin, key, server.secrets) as client:
        agent_id = await client.agent(
            name="Reception",
            systemPrompt=PROMPT,
            firstSpeaker="agent",
            agentGreeting=GREETING,
            agentGreetingEnabled=True,
            postCallWebhookUrl=receiver.url,
            postCallWebhookSecret=f"{WEBHOOK_SECRET}-{server.sip_port}",
        )
        await client.number("100", agent_id, sipPassword=f"letmein-{server.sip_port}")
        await client.number("101", None)
        await client.number("102", await client.agent(isActive=False))
        await known(server.target)
        yield Office(server, client, receiver, agent_id)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """A server for all tests: 12 concurrent calls, real models that are measured at the start."""
    limits = {"max_calls": 12, "slow_answers": "warn"}
    async with open_office(
        Server(tmp_path_factory.mktemp("office"), fresh=True, limits=limits, billing=PRICES)
    ) as office:
        yield office


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def _branch(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    folder = tmp_path_factory.mktemp("branch")
    async with open_office(Server(folder, sip={"rtp_timeout_s": 2, "drain_timeout_s": 60})) as branch:
        yield branch


@pytest_asyncio.fixture(loop_scope="package")
async def branch(_branch: Office) -> Office:
    """A server that tests may stop; it is started again for the next test. Its RTP timeout is 2 s."""
    if not _branch.server.serves:
        await _branch.server.start()
    return _branch


@pytest.fixture(scope="package")
def recognizer() -> Iterator[PocketsphinxSpeechToText]:
    """A recognizer to check recordings with."""
    recognizer = PocketsphinxSpeechToText(threads=2, decoders=2)
    yield recognizer
    recognizer.close()
