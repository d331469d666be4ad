"""Several servers ("nodes") behind Kamailio, with the files of docs/how-to/pbx/kamailio-cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from storage.database.database import Database
from tests.peers.ports import free_port
from tests.peers.process import Process
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_stream_phone import StreamPhone
from tests.trunkline.api_client import Client
from tests.trunkline.nodes.cluster import SECRET
from tests.trunkline.server_process import Server, environment, merged
from tests.trunkline.sip_phone import PhoneCall, known

FILES: Final = Path(__file__).parents[3] / "docs/how-to/pbx/kamailio-cluster"
TRUNK_SIDE, NODE_SIDE = "127.0.0.20", "127.0.0.21"
"""Kamailio's two addresses."""
NODE_HOSTS: Final = ("127.0.0.31", "127.0.0.32", "127.0.0.33")
PBX = "127.0.0.40"
"""The address of the trunk."""
NUMBER: Final = "100"
PROBED_WITHIN_S: Final = 20
Phone = Callable[[str, str], RawPhone]
"""Opens a phone for a target, at a host."""


class Node(Server):
    """One of several servers, at an address of its own. `database_url`: of a database that they share; without one it
    has its own."""

    def __init__(self, folder: Path, host: str, database_url: str = "", **settings: Any) -> None:
        settings = merged(settings, {"sip": {"host": host}})
        if database_url:
            shared = {"database": {"url": database_url}, "secret_key_file": str(folder.parent / "secret.key")}
            settings = merged(settings, {**shared, "node": {"name": host}})
        super().__init__(folder, **settings)
        if database_url:
            secret = folder.parent / "node.secret"
            secret.write_text(SECRET)
            secret.chmod(0o600)
            own = {"url": self.origin, "secret_file": str(secret)}
            self.settings = merged(self.settings, {"node": own})
            self.environment = environment(self.data_dir, self.settings)
            self.secrets.add(SECRET)
        self._database_url = database_url
        self.host, self.target = host, f"{host}:{self.sip_port}"
        self.by_tcp = host == NODE_HOSTS[-1]
        """Kamailio reaches it over TCP."""

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        if not self._database_url:
            async with super().database() as database:
                yield database
            return
        database = Database(self._database_url)
        await database.open()
        try:
            yield database
        finally:
            await database.close()


class ClusterProxy(Process):
    """Kamailio with the files of `FILES`, changed in addresses and ports alone, at `port` of its two addresses; the
    trunk is at `pbx_port`. The last of the nodes is reached over TCP, the others over UDP. `patience`: a factor of the
    times after which a node without a response counts as dead."""

    def __init__(
        self,
        nodes: Sequence[str],
        port: int,
        pbx_port: int,
        patience: int = 1,
        *,
        sides: tuple[str, str] = (TRUNK_SIDE, NODE_SIDE),
        pbx: str = PBX,
        launcher: Sequence[str] = (),
    ) -> None:
        """`sides`: its addresses for trunks and for nodes; `pbx`: that of the trunk; `launcher`: a command that runs
        Kamailio."""
        super().__init__()
        self.port = port
        self._pbx, self._launcher = pbx, launcher
        self.target, self.node_side = (f"{each}:{self.port}" for each in sides)
        there = ("198.51.100.11:5060", "198.51.100.12:5060", "198.51.100.13:5060")
        self._copy("kamailio.cfg", {
            "192.0.2.20:5060": self.target, "198.51.100.20:5060": self.node_side, "/etc/kamailio": str(self.folder),
            '"fr_timer", 1000': f'"fr_timer", {1000 * patience}',
            "t_set_fr(30000, 1000)": f"t_set_fr(30000, {1000 * patience})",
            "t_set_fr(30000, 2000)": f"t_set_fr(30000, {2000 * patience})",
        })  # fmt: skip
        self._copy("dispatcher.list", {
            **dict(zip(there, nodes, strict=True)),
            "192.0.2.10:5060": f"{pbx}:{pbx_port}",
        })  # fmt: skip
        self._copy("address.list", {"192.0.2.10": pbx})

    def _copy(self, name: str, changes: dict[str, str]) -> None:
        text = (FILES / name).read_text()
        for there, here in changes.items():
            assert there in text
            text = text.replace(there, here)
        (self.folder / name).write_text(text)

    async def __aenter__(self) -> ClusterProxy:
        await self.start(
            *self._launcher,
            "kamailio", "-DD", "-E", "-f", str(self.folder / "kamailio.cfg"), "-P", str(self.folder / "pid"),
            "-Y", str(self.folder), "-m", "32", "-M", "4", "-w", str(self.folder),
        )  # fmt: skip
        async with asyncio.timeout(10), RawPhone(self.target, self._pbx) as phone:
            while True:  # it says nowhere that it listens
                assert self.child.returncode is None, self.output()
                phone.send(phone.request("OPTIONS", phone.dialog()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(phone.sip.received.get(), 0.05)
                    return self

    async def command(self, *words: str) -> str:
        """Run a command of kamcmd; returns its output."""
        kamcmd = await asyncio.create_subprocess_exec(
            "kamcmd", "-s", f"unix:{self.folder}/kamailio_ctl", *words, stdout=asyncio.subprocess.PIPE
        )
        return (await kamcmd.communicate())[0].decode()

    async def set_state(self, node: Node, state: str) -> None:
        """Set the state of a node, as an operator does: `d` disabled, `ap` active and probed."""
        transport = ";transport=tcp" if node.by_tcp else ""
        await self.command("dispatcher.set_state", state, "1", f"sip:{node.target}{transport}")

    async def states(self) -> dict[str, str]:
        """The flags of each destination, by host: A active, I inactive, D disabled; P probed, X not."""
        found = re.findall(r"URI: sip:([\d.]+):.*\n\s*FLAGS: (\w+)", await self.command("dispatcher.list"))
        return dict(found)

    async def wait_for_state(self, node: Node, state: str) -> None:
        """Wait until a node has this state, `A` or `I`."""
        await self.wait_for_host(node.host, state)

    async def wait_for_host(self, host: str, state: str) -> None:
        """Wait until the node at this address has this state."""
        async with asyncio.timeout(PROBED_WITHIN_S):
            while not (await self.states())[host].startswith(state):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


class TcpPhone(StreamPhone):
    """A phone at `host` that is connected to `target` over TCP."""

    def __init__(self, target: str, host: str) -> None:
        super().__init__(target)
        self.host = self.named = host

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._messages.serve(*await asyncio.open_connection(*self._server, local_addr=(self.host, 0)))
        return self


@dataclass
class Cluster:
    """Nodes behind Kamailio, each with a client of its API. `pbx`: a phone at the address of the trunk that the nodes
    call."""

    nodes: Sequence[Node]
    clients: Sequence[Client]
    proxy: ClusterProxy
    pbx: RawPhone
    shares_database: bool

    @property
    def trunk(self) -> dict[str, Any]:
        """Fields of a phone number whose trunk is Kamailio."""
        return {"sipIp": NODE_SIDE, "sipPort": self.proxy.port}

    async def number(self, number: str, agent: dict[str, Any], **fields: Any) -> list[str]:
        """Create an agent and a phone number on every node, or once in the shared database; returns the ids of the
        number by node."""
        clients = self.clients[:1] if self.shares_database else self.clients
        ids = [await each.number(number, await each.agent(**agent), **self.trunk, **fields) for each in clients]
        return ids * len(self.nodes) if self.shares_database else ids

    def client_of(self, node: Node) -> Client:
        """The client of this node."""
        return self.clients[self.nodes.index(node)]

    def owner(self, answer_target: str) -> Node:
        """The node whose Contact this is."""
        return next(each for each in self.nodes if each.target in answer_target)

    async def answering_node(self) -> Node:
        """The node that answers a call from the trunk."""
        answer = await self.invite()
        assert answer.status == 200, f"{answer.text}\n{await self.proxy.states()}\n{self.proxy.output()[-4000:]}"
        return self.owner(answer.header("Contact"))

    async def all_active(self) -> None:
        """Start the nodes that do not run, and wait until Kamailio sends calls to all."""
        await asyncio.gather(*(each.start() for each in self.nodes if not each.serves))
        for node in self.nodes:
            await self.proxy.wait_for_state(node, "A")

    @asynccontextmanager
    async def calling(self, phone: Phone = RawPhone, number: str = NUMBER) -> AsyncIterator[PhoneCall]:
        """An answered call from the trunk through Kamailio."""
        async with phone(self.proxy.target, PBX) as raw, PhoneCall(raw, number) as call:
            yield call

    @asynccontextmanager
    async def calls_to_each(
        self, phone: Phone = RawPhone, number: str = NUMBER
    ) -> AsyncIterator[dict[Node, PhoneCall]]:
        """A call at each node."""
        async with AsyncExitStack() as stack:
            calls: dict[Node, PhoneCall] = {}
            for _ in self.nodes:
                call = await stack.enter_async_context(self.calling(phone, number))
                calls[self.owner(call.dialog.target)] = call
            assert len(calls) == len(self.nodes), "they are distributed round-robin"
            yield calls

    async def invite(self, number: str = NUMBER) -> Message:
        """Send an INVITE from the trunk; returns its final response, acknowledged. An answered call is hung up."""
        async with RawPhone(self.proxy.target, PBX) as phone:
            call = PhoneCall(phone, number)
            branch = phone.invite(call.dialog, call.offer())
            answer = await phone.final_response("INVITE", PROBED_WITHIN_S)  # after all nodes that do not respond
            phone.acknowledge(call.dialog, answer, branch)
            if answer.status == 200:
                call.dialog.update_target(answer)
                phone.send(phone.request("ACK", call.dialog))
                await call.hang_up()
            return answer


@asynccontextmanager
async def open_cluster(
    folder: Path, database_url: str = "", patience: int = 1, **settings: Any
) -> AsyncIterator[Cluster]:
    """Start nodes and Kamailio, with the number `NUMBER` on all nodes. `database_url`: of a database that the nodes
    share; without one each has its own, with the same agents and numbers. `patience`: see `ClusterProxy`."""
    nodes = [Node(folder / host, host, database_url, **settings) for host in NODE_HOSTS]
    for node in nodes:
        (folder / node.host).mkdir(exist_ok=True)
    keys = [await nodes[0].key()] * len(nodes) if database_url else [await each.key() for each in nodes]
    async with AsyncExitStack() as stack:
        port = free_port(TRUNK_SIDE)
        pbx = await stack.enter_async_context(RawPhone(f"{TRUNK_SIDE}:{port}", PBX))
        for node in nodes:
            stack.push_async_callback(node.close)
        await asyncio.gather(*(each.start() for each in nodes))
        clients = [
            await stack.enter_async_context(Client(node.origin, key, node.secrets))
            for node, key in zip(nodes, keys, strict=True)
        ]
        proxy = ClusterProxy([each.target for each in nodes], port, pbx.sip.port, patience)
        cluster = Cluster(nodes, clients, proxy, pbx, bool(database_url))
        await cluster.number(NUMBER, {"customerSilenceMs": 0, "systemPrompt": "Yes."})
        for node in nodes:
            await known(node.target, NODE_SIDE)
        await stack.enter_async_context(proxy)
        await cluster.all_active()
        yield cluster
