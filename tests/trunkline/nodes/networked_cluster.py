"""Three nodes, Kamailio, PostgreSQL and a PBX with a registrar and a webhook receiver, each in a network namespace of
its own; this process is in that of the PBX."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from bench.webhooks.faulty_receiver import FaultyReceiver
from storage.accounts import api_keys, organizations
from storage.database.database import Database
from tests.peers.postgresql import PostgresqlServer
from tests.sipcore.raw.raw_phone import Message
from tests.sipcore.raw.raw_registrar import RawRegistrar, accept_contacts
from tests.trunkline import forked_server
from tests.trunkline.api_client import Client
from tests.trunkline.forked_server import ForkedServer
from tests.trunkline.nodes.cluster import SECRET
from tests.trunkline.nodes.network_namespaces import Namespace, Network
from tests.trunkline.nodes.pbx import Pbx
from tests.trunkline.pbx.kamailio_cluster import ClusterProxy
from tests.trunkline.server_process import TRUNKLINE, Server, environment, merged

NODES: Final = ("node1", "node2", "node3")
ADDRESSES: Final = {
    "node1": ("10.77.0.11",),
    "node2": ("10.77.0.12",),
    "node3": ("10.77.0.13",),
    "kamailio": ("10.77.0.20", "10.77.0.21"),
    "database": ("10.77.0.30",),
    "pbx": ("10.77.0.40", "10.77.0.41"),
}
"""Kamailio has one address for the PBX and one for nodes, the PBX one besides for its registrar."""
PBX, REGISTRAR = ADDRESSES["pbx"]
SIP_PORT, API_PORT, POSTGRESQL_PORT = 5060, 8080, 5432
NUMBER: Final = "100"
"""Is answered by an agent that says nothing."""
WEBHOOK_SECRET: Final = "secret of the webhooks"
WEBHOOK_TIMEOUT_S: Final = 1.5
RETRY_DELAYS_S: Final = (0.3, 0.6, 0.9, 1.2)
SETTINGS: Final[Mapping[str, Any]] = {
    "api": {"port": API_PORT},
    "sip": {"port": SIP_PORT, "rtp_ports": "10000-19999", "codecs": ["PCMU"], "max_invites_per_second": 1000},
    "webhooks": {"timeout_s": WEBHOOK_TIMEOUT_S, "retry_delays_s": list(RETRY_DELAYS_S)},
    "egress": {"allow": ["10.77.0.0/24"]},
    "limits": {"max_outbound_per_second": 100},
    "billing": {"telephony_per_minute": 6},
}
LIBFAKETIME: Final = "/usr/$LIB/faketime/libfaketime.so.1"
"""The dynamic linker puts the folder of this architecture's libraries in the place of `$LIB`."""


class NetworkedNode(Server):
    """A node in a namespace of its own. `clock_ahead_s`: how far its real-time clock is ahead of that of the machine,
    from the next start on; its monotonic clock is right."""

    def __init__(self, folder: Path, name: str, namespace: Namespace, database_url: str, **settings: Any) -> None:
        self.name, self.host, self._namespace = name, ADDRESSES[name][0], namespace
        super().__init__(folder, **settings)
        (self.data_dir / "trunkline.db").unlink()
        self.sip_port, self.api_port = SIP_PORT, API_PORT
        self.target, self.origin = f"{self.host}:{SIP_PORT}", f"http://{self.host}:{API_PORT}"
        own = {
            "api": {"host": self.host},
            "sip": {"host": self.host},
            "database": {"url": database_url},
            "secret_key_file": str(folder.parent / "secret.key"),
            "node": {"name": name, "url": self.origin, "secret_file": str(folder.parent / "node.secret")},
        }
        self.settings = merged(merged(merged(self.settings, SETTINGS), settings), own)
        self.environment = environment(self.data_dir, self.settings)
        self.secrets.add(SECRET)
        self.clock_ahead_s = 0
        self.died_s: list[float] = []
        """When it was killed, monotonic."""

    async def _started(self) -> asyncio.subprocess.Process | ForkedServer:
        if not self.clock_ahead_s:
            return await forked_server.start(self._folder, self.environment, self._namespace.path)
        faked = {
            "LD_PRELOAD": LIBFAKETIME,
            "FAKETIME": f"{self.clock_ahead_s:+d}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        return await asyncio.create_subprocess_exec(
            *self._namespace.command("env", *(f"{name}={value}" for name, value in faked.items()), TRUNKLINE, "serve"),
            cwd=self._folder, env=self.environment, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def kill(self) -> None:
        self.died_s.append(time.monotonic())
        await super().kill()

    @property
    def by_tcp(self) -> bool:
        """Kamailio reaches it over TCP."""
        return self.name == NODES[-1]


@dataclass
class Binding:
    """The time at which a node bound a user, or removed its binding; monotonic, s."""

    at_s: float
    node: str
    bound: bool


@dataclass
class BindingLog:
    """The log of the registrar: the bindings of each user, in their order."""

    users: defaultdict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))

    async def follow(self, registrar: RawRegistrar) -> None:
        """Take every request."""
        names = {addresses[0]: name for name, addresses in ADDRESSES.items()}
        while True:
            request = await registrar.got.get()
            if request.first_line.startswith("REGISTER "):
                self._take(request, names)

    def _take(self, request: Message, names: Mapping[str, str]) -> None:
        contact = re.search(r"<sip:([^@>]+)@([\d.]+)", request.header("Contact"))
        assert contact is not None, request.text
        bound = request.header("Expires") != "0"
        self.users[contact[1]].append(Binding(time.monotonic(), names[contact[2]], bound))

    def nodes_of(self, user: str) -> set[str]:
        """The nodes at which a user is bound, dead ones among them."""
        last = {each.node: each.bound for each in self.users[user]}
        return {node for node, bound in last.items() if bound}

    def absence_s(self, user: str, node: str, died_s: float) -> float:
        """How long after the death of a node a user had no other node; infinite if it still has none, 0 if it was not
        bound there."""
        before = [each for each in self.users[user] if each.at_s <= died_s]
        last = {each.node: each.bound for each in before}
        if not last.get(node) or any(bound for name, bound in last.items() if name != node):
            return 0.0
        after = (each.at_s for each in self.users[user] if each.at_s > died_s and each.bound)
        return min(after, default=float("inf")) - died_s


class NetworkedDatabase:
    """PostgreSQL in its namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def open(self) -> str:
        """Start the server; returns the URL of a database with all tables."""

        def create() -> tuple[PostgresqlServer, str]:
            folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
            with self._namespace.entered():
                server = PostgresqlServer(folder, POSTGRESQL_PORT, host=ADDRESSES["database"][0])
                return server, server.take_database()

        self._server, url = await asyncio.to_thread(create)
        return url

    async def stop(self) -> None:
        """End all sessions; new connections are refused."""
        await asyncio.to_thread(self._server.stop)

    async def start(self) -> None:
        """Start the server again."""

        def start() -> None:
            with self._namespace.entered():
                self._server.start()

        await asyncio.to_thread(start)

    async def close(self) -> None:
        """Stop the server, and remove its folder."""
        await asyncio.to_thread(self._server.close)


@dataclass
class NetworkedCluster:
    """Everything, and a client of each node's API. `organization_id`: that of all calls, on a paid plan with
    `start_balance`."""

    network: Network
    postgresql: NetworkedDatabase
    url: str
    nodes: Mapping[str, NetworkedNode]
    clients: Mapping[str, Client]
    proxy: ClusterProxy
    pbx: Pbx
    receiver: FaultyReceiver
    registrar: RawRegistrar
    bindings: BindingLog
    database: Database
    organization_id: str
    start_balance: int
    max_calls: int
    agent_id: str = ""
    number_id: str = ""

    def node_at(self, host: str) -> NetworkedNode:
        """The node with this address."""
        return next(each for each in self.nodes.values() if each.host == host)

    async def wait_until_active(self, *names: str) -> None:
        """Wait until Kamailio sends calls to these nodes, by default to all."""
        for name in names or NODES:
            await self.proxy.wait_for_host(self.nodes[name].host, "A")

    async def place_call(self, name: str, **headers: str) -> str:
        """Have a node call the PBX; returns the call's id."""
        body = {"agentId": self.agent_id, "phoneNumberId": self.number_id, "to": "+41445550199"}
        return str((await self.clients[name].v1("POST", "calls", body))["id"])

    async def register_numbers(self, users: int) -> None:
        """Create numbers that register."""
        for index in range(users):
            user = f"+49401{index:05}"
            body = {
                "number": user, "provider": "sip", "agentId": None, "sipMode": "registration", "sipUsername": user,
                "sipPassword": "s3cret", "sipProxy": f"{REGISTRAR}:{self.registrar.port}",
            }  # fmt: skip
            await self.clients[NODES[0]].v1("POST", "phone-numbers", body)


@contextmanager
def entered_network() -> Iterator[Network]:
    """A network whose PBX this thread is."""
    forked_server.parent()  # the servers' parent stays outside
    network = Network(ADDRESSES)
    try:
        with network.hosts["pbx"].entered():
            yield network
    finally:
        network.close()


@asynccontextmanager
async def networked_cluster(
    network: Network,
    folder: Path,
    *,
    max_calls: int,
    users: int,
    failed_attempts: Sequence[int] = (0, 0, 1, 2),
    start_balance: int = 1000,
    **settings: Any,
) -> AsyncIterator[NetworkedCluster]:
    """Start everything in the network. `max_calls`: ceiling of the organization; `users`: numbers that register;
    `failed_attempts`: of webhooks, one of which is drawn for each call."""
    await asyncio.to_thread(_write_secret, folder / "node.secret")
    async with AsyncExitStack() as stack:
        postgresql = NetworkedDatabase(network.hosts["database"])
        url = await postgresql.open()
        stack.push_async_callback(postgresql.close)
        database = Database(url)
        await database.open()
        stack.push_async_callback(database.close)
        organization_id, key = await database.write(lambda conn: _create_organization(conn, start_balance, max_calls))
        receiver = FaultyReceiver(WEBHOOK_SECRET, 7, WEBHOOK_TIMEOUT_S, failed_attempts, host=PBX)
        await receiver.listen(4)
        stack.push_async_callback(receiver.close)
        registrar = await stack.enter_async_context(RawRegistrar(accept_contacts(), host=REGISTRAR))
        trunk_side, node_side = ADDRESSES["kamailio"]
        pbx = await stack.enter_async_context(Pbx(f"{trunk_side}:{SIP_PORT}", PBX))
        nodes = {name: _node(folder, name, network, url, settings) for name in NODES}
        stack.push_async_callback(_close_all, nodes.values())
        await nodes[NODES[0]].start()
        await asyncio.gather(*(nodes[name].start() for name in NODES[1:]))
        clients = {
            name: await stack.enter_async_context(Client(node.origin, key, node.secrets))
            for name, node in nodes.items()
        }
        proxy = ClusterProxy(
            [node.target for node in nodes.values()], SIP_PORT, pbx.port,
            sides=(trunk_side, node_side), pbx=PBX, launcher=network.hosts["kamailio"].command(),
        )  # fmt: skip
        bindings = BindingLog()
        following = asyncio.create_task(bindings.follow(registrar))
        stack.callback(following.cancel)
        cluster = NetworkedCluster(
            network, postgresql, url, nodes, clients, proxy, pbx, receiver, registrar, bindings, database,
            organization_id, start_balance, max_calls,
        )  # fmt: skip
        await _create_objects(cluster, node_side, users)
        await stack.enter_async_context(proxy)
        await cluster.wait_until_active()
        yield cluster


def _write_secret(path: Path) -> None:
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)


def _create_organization(conn: sa.Connection, balance: int, max_calls: int) -> tuple[str, str]:
    owner = organizations.create(conn, "office", plan="paid", balance=balance, max_calls=max_calls)
    return owner.id, api_keys.create(conn, owner.id, requests_per_minute=1_000_000)[1]


def _node(folder: Path, name: str, network: Network, url: str, settings: Mapping[str, Any]) -> NetworkedNode:
    (folder / name).mkdir()
    return NetworkedNode(folder / name, name, network.hosts[name], url, **settings)


async def _close_all(nodes: Collection[NetworkedNode]) -> None:
    """Raises what the checks of their logs have found, once all are closed."""
    failures = await asyncio.gather(*(_close(each) for each in nodes), return_exceptions=True)
    for failure in filter(None, failures):
        raise failure


async def _close(node: NetworkedNode) -> None:
    if node.serves:
        os.kill(node.process.pid, signal.SIGCONT)
    if node in Server.running:
        await node.close()


async def _create_objects(cluster: NetworkedCluster, node_side: str, users: int) -> None:
    client = cluster.clients[NODES[0]]
    url = cluster.receiver.urls[0]
    cluster.agent_id = await client.agent(
        customerSilenceMs=0, systemPrompt="Yes.", postCallWebhookUrl=url, postCallWebhookSecret=WEBHOOK_SECRET
    )
    cluster.number_id = await client.number(NUMBER, cluster.agent_id, sipIp=node_side, sipPort=SIP_PORT)
    await cluster.register_numbers(users)
