"""Two nodes of one database: calls of a node that is killed, and leases."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import sqlalchemy as sa

from api.auth.principal import Principal
from api.nodes.forwarded_client import ForwardedClient
from api.nodes.node_authentication import now_ms
from api.nodes.signature import FORWARDED_CLIENT, SIGNATURE, SignedRequest, sha256_of, sign
from config.clock import utc_now
from storage import tables
from storage.accounts import api_keys, organizations
from storage.calls import deletion
from storage.nodes import nodes
from tests.event_stream import following
from tests.peers import postgresql
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.api_client import Client
from tests.trunkline.nodes.cluster import SECRET, Cluster, cluster
from tests.trunkline.server_process import TRUNKLINE
from tests.trunkline.sip_phone import PhoneCall, known
from tests.trunkline.transferred_calls import CALLER_HZ, TARGET_HZ
from tests.trunkline.web_phone import RATE, open_socket

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
NUMBER = "100"
NO_ID = "00000000-0000-4000-8000-000000000000"
CLOSED_S = 15.0
"""The longest time from the end of a node to the stored end of its calls."""
TOLD_S = 3.0
"""The longest time until a client is told that the node of a call is gone: 2 s on cores of its own."""
SOCKET_CLOSED_S = 6.0
"""The longest time until a client's WebSocket is closed whose node hangs."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Nodes `a` and `b`, with a number whose agent waits for the caller to speak."""
    settings = {"dashboard": {"listen": True}, "limits": {"max_outbound_per_second": 1}}
    async with cluster(tmp_path_factory.mktemp("cluster"), "a", "b", **settings) as made:
        async with made.client("a") as client:
            agent = await client.agent(
                customerSilenceMs=0, postCallWebhookUrl=made.receiver.url, postCallWebhookSecret="s" * 32
            )
            await client.number(NUMBER, agent)
        for node in made.nodes.values():
            await known(node.target)
        yield made


async def answer(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    """The status and the error of a response."""
    async with aiohttp.request(
        method, f"{client.origin}/v1/{path}", headers={"Authorization": f"Bearer {client.key}"}, json=body
    ) as response:
        return response.status, (await response.json()).get("error", "")


@asynccontextmanager
async def call_on_a(pair: Cluster, number: str = NUMBER) -> AsyncIterator[tuple[str, PhoneCall]]:
    """A call in progress on node `a`: its id, and the phone's side."""
    since = pair.nodes["a"].log.mark()
    async with pair.client("b") as client, RawPhone(pair.nodes["a"].target) as raw, PhoneCall(raw, number) as phone:
        call_id = (await pair.nodes["a"].event("call.answered", since=since))["call_id"]
        async with asyncio.timeout(10):
            while not await is_in_progress(client, call_id):  # noqa: ASYNC110 - another process stores it
                await asyncio.sleep(0.05)
        yield call_id, phone


async def is_in_progress(client: Client, call_id: str) -> bool:
    """True if the call is stored as such; one that was taken during an outage is stored up to 2 s after that."""
    if await client.status("GET", f"calls/{call_id}") == 404:
        return False
    return bool((await client.v1("GET", f"calls/{call_id}"))["status"] == "in_progress")


async def test_calls_of_a_killed_node_are_closed_by_the_other_with_their_webhook(pair: Cluster) -> None:
    async with pair.client("b") as client, RawPhone(pair.nodes["a"].target) as raw, PhoneCall(raw, NUMBER):
        call_id = (await pair.nodes["a"].event("call.answered"))["call_id"]
        async with asyncio.timeout(10):
            while (await client.v1("GET", f"calls/{call_id}"))["status"] != "in_progress":  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # its answer is stored after the call goes on
        killed_s = time.monotonic()
        await pair.nodes["a"].kill()
        async with asyncio.timeout(2):
            assert await answer(client, "POST", f"calls/{call_id}/hangup") == (409, "The call's node is gone")
            assert (await client.v1("GET", f"calls/{call_id}"))["node"] == "a", "what is stored is told"
        _, body = await pair.receiver.about(call_id, timeout_s=CLOSED_S)
        assert time.monotonic() - killed_s < CLOSED_S
        assert json.loads(body)["status"] == "completed"
        stored = await client.v1("GET", f"calls/{call_id}")
        assert (stored["status"], stored["endedReason"]) == ("completed", "server_restart")
    await pair.nodes["b"].event("node.down", nodes=["a"])
    for lease in ("retention", "knowledge", "audit"):
        await pair.nodes["b"].event("node.lease_acquired", lease=lease)
    await pair.nodes["a"].start()
    async with pair.database() as database, asyncio.timeout(5):
        while [each.state for each in await database.read(nodes.all_of)] != ["up", "up"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [json.loads(body)["callId"] for _, body in pair.receiver.received] == [call_id], "sent once"


async def test_what_only_the_node_of_a_call_can_do_is_passed_on_to_it(pair: Cluster) -> None:
    async with pair.client("b") as client, call_on_a(pair) as (call_id, phone):
        shown = await client.v1("GET", f"calls/{call_id}")
        assert (shown["node"], shown["state"]) == ("a", "listening")
        assert shown["live"] is not None
        assert (await client.v1("POST", f"calls/{call_id}/hold"))["id"] == call_id
        assert (await client.v1("GET", f"calls/{call_id}"))["state"] == "on_hold"
        await client.v1("POST", f"calls/{call_id}/unhold")
        note = await client.v1("POST", f"calls/{call_id}/whisper", {"content": "Be brief"})
        assert note["callId"] == call_id
        assert (await client.v1("GET", f"calls/{call_id}/sip"))["messages"]
        assert await client.status("POST", f"calls/{call_id}/transfer", {"target": "Nobody"}) == 400
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {pair.key}"}) as session,
            session.ws_connect(f"{pair.nodes['b'].origin}/v1/calls/{call_id}/listen") as listening,
        ):
            assert len(await listening.receive_bytes(timeout=10)) > 0
            hanging_up = asyncio.create_task(client.v1("POST", f"calls/{call_id}/hangup"))
            await phone.hung_up()
            ended = await hanging_up
            assert (ended["status"], ended["endedReason"]) == ("completed", "api_hangup")
            async with asyncio.timeout(10):
                while (await listening.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
            assert listening.close_code == aiohttp.WSCloseCode.OK
    async with pair.client("b") as client:
        url = ended["recordingUrl"]
        assert url.startswith(client.origin), "the Host that the client sends"
        status, recording = await client.get(url)
        assert (status, recording[:4]) == (200, b"RIFF")
        assert await client.get(url.replace(client.origin, pair.nodes["a"].origin)) == (200, recording)
        found = await client.v1("GET", "audit?limit=100")
        entries = [each for each in found if (each["object"] or {}).get("id") == call_id]
        actions = [each["action"] for each in entries]
        assert actions == ["call.hangup", "listen", "whisper", "call.unhold", "call.hold"]
        assert {(each["actor"]["type"], each["clientAddress"]) for each in entries} == {("api_key", "127.0.0.1")}


async def test_a_transfer_ordered_at_another_node_is_done_by_the_node_of_the_call(pair: Cluster) -> None:
    async with pair.client("b") as client:
        target = {"name": "Desk", "description": "Bills", "number": "555", "mode": "cold"}
        agent = await client.agent(customerSilenceMs=0, transferTargets=[target])
        await client.number("101", agent, sipTransferMethod="refer")
        async with call_on_a(pair, "101") as (call_id, phone):
            await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
            refer = await phone.phone.next_request("REFER")
            assert "555" in refer.header("Refer-To")
            phone.phone.reply(refer, "603 Decline")
            await pair.nodes["a"].event("transfer.ended", call_id=call_id, sip_status=603)
            await phone.hang_up()


async def test_a_call_is_answered_without_a_question_to_another_node(pair: Cluster) -> None:
    b = pair.nodes["b"]
    since = b.log.mark()
    b.signal(signal.SIGSTOP)
    try:
        async with RawPhone(pair.nodes["a"].target) as raw, PhoneCall(raw, NUMBER) as phone:
            await phone.hears(5)
            await phone.hang_up()
    finally:
        b.signal(signal.SIGCONT)
    async with pair.client("b") as client:
        await client.v1("GET", "agents")
    await b.event("api.request", since=since, path="/v1/agents")
    assert [each["path"] for each in b.log.all("api.request", since)] == ["/v1/agents"]


async def test_a_person_at_another_node_takes_a_call_over(pair: Cluster) -> None:
    async with pair.client("b") as client, call_on_a(pair) as (call_id, phone):
        taken = await client.v1("POST", f"calls/{call_id}/takeover")
        url = taken["websocketUrl"]
        assert (taken["call"]["id"], taken["call"]["node"]) == (call_id, "a")
        assert url.startswith(client.origin.replace("http", "ws")), "the Host that the client sends"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            async with open_socket(f"{url[:-4]}abcd"):
                pass
        async with open_socket(url) as browser:
            await pair.nodes["a"].event("call.taken_over", call_id=call_id)
            phone.say(tone(8000, CALLER_HZ, 3))
            browser.say(tone(RATE, TARGET_HZ, 3))
            await asyncio.gather(browser.hears(50), phone.hears(50))
            at_person, at_caller = await asyncio.gather(browser.hears(50), phone.hears(50))
            assert loudest_hz(at_person, RATE) == pytest.approx(CALLER_HZ, abs=5)
            assert loudest_hz(at_caller, 8000) == pytest.approx(TARGET_HZ, abs=5)
            assert await client.status("POST", f"calls/{call_id}/takeover") == 409
            await browser.send(type="hangup")
            await phone.hung_up()
            assert (await browser.message(type="ended"))["endedReason"] == "agent_ended"
            assert await browser.closed() == aiohttp.WSCloseCode.OK
        entries = [each for each in await client.v1("GET", "audit") if (each["object"] or {}).get("id") == call_id]
        assert [each["action"] for each in entries] == ["takeover"]


async def test_a_test_call_of_one_node_is_held_through_another(pair: Cluster) -> None:
    async with pair.client("a") as here, pair.client("b") as there:
        created = await here.v1("POST", "calls/test", {"agentId": await here.agent(customerSilenceMs=0)})
        call_id = created["call"]["id"]
        url = created["websocketUrl"].replace(here.origin.removeprefix("http"), there.origin.removeprefix("http"))
        async with open_socket(url) as browser:
            await browser.hears(5)
            await browser.send(type="hangup")
            assert (await browser.message(type="ended"))["endedReason"] == "customer_ended"
            assert await browser.closed() == aiohttp.WSCloseCode.OK
        assert (await there.v1("GET", f"calls/{call_id}"))["node"] == "a"


async def test_a_chat_of_one_node_goes_on_at_another(pair: Cluster) -> None:
    async with pair.client("a") as here, pair.client("b") as there:
        agent = await here.agent(firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Hello")
        chat = (await here.v1("POST", "calls/chat", {"agentId": agent}))["id"]
        assert (await there.v1("GET", f"calls/{chat}"))["node"] == "a"
        said = await there.v1("POST", f"calls/{chat}/messages", {"content": "Good day"})
        assert (said["turn"], said["ended"], bool(said["content"])) == (1, False, True)
        again = await there.v1("POST", f"calls/{chat}/messages", {"content": "How are you?", "editTurn": 1})
        assert (again["turn"], again["ended"]) == (1, False)
        status, error = await answer(there, "POST", f"calls/{NO_ID}/messages", {"content": "Good day"})
        assert (status, error) == (404, "Call not found")
        await there.v1("POST", f"calls/{chat}/hangup")
        stored = await there.v1("GET", f"calls/{chat}")
        assert (stored["endedReason"], stored["node"]) == ("api_hangup", "a")
        assert [each["content"] for each in stored["transcript"]][:2] == ["Hello", "How are you?"]
        assert (await answer(there, "POST", f"calls/{chat}/messages", {"content": "Good day"}))[0] == 409


async def test_a_node_that_hangs_is_told_in_time(pair: Cluster) -> None:
    """It takes connections, and has some already."""
    async with pair.client("b") as client, call_on_a(pair) as (call_id, phone):
        taken = await client.v1("POST", f"calls/{call_id}/takeover")
        async with open_socket(taken["websocketUrl"]) as browser:
            await browser.hears(5)
            pair.nodes["a"].signal(signal.SIGSTOP)
            try:
                await hung_node_is_told(client, call_id)
                async with asyncio.timeout(SOCKET_CLOSED_S):
                    assert await browser.closed() == aiohttp.WSCloseCode.GOING_AWAY
            finally:
                pair.nodes["a"].signal(signal.SIGCONT)
        await phone.hung_up()
    async with pair.client("b") as client, asyncio.timeout(CLOSED_S):
        while (await client.v1("GET", f"calls/{call_id}"))["status"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await client.status("GET", "calls?status=in_progress") == 200


async def hung_node_is_told(client: Client, call_id: str) -> None:
    """Each request for a call of a node that hangs, and each list of what all nodes have, is answered in time."""

    async def timed(request: Awaitable[Any]) -> Any:
        began_s = time.monotonic()
        answered = await request
        assert time.monotonic() - began_s < TOLD_S
        return answered

    async def follow() -> None:
        async with following(client.origin, client.key):
            pass

    paths = (f"calls/{call_id}", f"calls/{call_id}/sip", "calls", "capacity", "phone-numbers")
    (shown, trace, listed, capacity, numbers), refused, _ = await asyncio.gather(
        asyncio.gather(*(timed(client.v1("GET", path)) for path in paths)),
        asyncio.gather(*(timed(answer(client, "POST", f"calls/{call_id}/{each}")) for each in ("hangup", "takeover"))),
        timed(follow()),
    )
    assert refused == [(409, "The call's node is gone")] * 2
    assert (shown["node"], shown["status"]) == ("a", "in_progress"), "what is stored is told"
    assert trace["callId"] == call_id
    assert call_id in [each["id"] for each in listed]
    assert [each["name"] for each in capacity["nodes"]] == ["a", "b"]
    assert NUMBER in [each["number"] for each in numbers]


async def test_an_organization_does_not_reach_the_call_of_another_through_another_node(pair: Cluster) -> None:
    def create(conn: sa.Connection) -> str:
        return api_keys.create(conn, organizations.create(conn, "neighbour").id)[1]

    async with pair.database() as database:
        key = await database.write(create)
    async with call_on_a(pair) as (call_id, phone):
        async with Client(pair.nodes["b"].origin, key, set()) as other:
            for action in ("hangup", "hold"):
                assert await answer(other, "POST", f"calls/{call_id}/{action}") == (404, "Call not found")
        assert not pair.nodes["a"].log.all("api.request", path=f"/v1/calls/{call_id}/hangup")
        await phone.hang_up()


async def test_the_nodes_are_listed_where_no_server_runs(pair: Cluster) -> None:
    process = await asyncio.create_subprocess_exec(
        TRUNKLINE, "nodes", "--json", env=pair.nodes["b"].environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(each["name"], each["url"], each["state"]) for each in rows] == [
        (name, node.origin, "up") for name, node in pair.nodes.items()
    ]
    assert sum(each["leases"] for each in rows) >= len(("retention", "knowledge", "knowledge index", "audit"))


async def test_the_metrics_of_a_node_have_its_name_and_its_leases(pair: Cluster) -> None:
    leases = 0.0
    for name in ("a", "b"):
        async with pair.client(name) as client:
            text = (await client.get("/metrics"))[1].decode()
        assert f'trunkline_node_info{{node="{name}",version=' in text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("trunkline_"))
        assert float(values["trunkline_node_heartbeat_age_seconds"]) < 5
        leases += float(values["trunkline_node_leases"])
    assert leases >= 4
    assert float(values['trunkline_node_forwarded_requests_total{outcome="answered"}']) > 0


async def test_requests_between_nodes_are_authenticated_and_valid_once(pair: Cluster) -> None:
    async with pair.database() as database:
        (node,) = (each for each in await database.read(nodes.all_of) if each.name == "a")
        (key,) = await database.read(lambda conn: api_keys.all_of(conn)[:1])
    forwarded = ForwardedClient("b", "192.0.2.1", Principal.of_key(key)).encoded()
    server, path = pair.nodes["a"], f"/v1/calls/{NO_ID}"
    since = server.log.mark()

    def signed(secret: str = SECRET, target: str = path, ahead_ms: int = 0, instance: str = "") -> dict[str, str]:
        request = SignedRequest(instance or node.instance, "GET", target, sha256_of(b""), forwarded)
        return sign(secret.encode(), request, now_ms() + ahead_ms)

    async def ask(headers: dict[str, str], target: str = path) -> tuple[int, str]:
        async with aiohttp.request("GET", f"{server.origin}{target}", headers=headers) as response:
            return response.status, (await response.json())["error"]

    valid = signed()
    assert await ask(valid) == (404, "Call not found")
    refused: dict[str, dict[str, str]] = {
        "repeated": valid,
        "wrong signature": signed(secret=SECRET[::-1]),
        "wrong time": signed(ahead_ms=-11_000),
        "malformed": {SIGNATURE: "x"},
    }
    for why, headers in refused.items():
        assert (await ask(headers))[0] == 401
        await server.event("node.request_refused", since=since, why=why)
    assert (await ask(signed(instance=NO_ID)))[0] == 401, "meant for another node"
    assert (await ask(signed() | {FORWARDED_CLIENT: forwarded[::-1]}))[0] == 401, "another client"
    assert (await ask(signed(target="/v1/calls"), "/v1/calls"))[0] == 401, "not passed on by nodes"
    assert (await ask({FORWARDED_CLIENT: forwarded}))[0] == 401


async def test_queued_calls_of_a_killed_node_are_dialled_by_the_other_each_once(pair: Cluster) -> None:
    destinations = [f"+4930{number}" for number in range(6)]
    dialled: dict[str, set[str]] = {each: set() for each in destinations}
    async with pair.client("a") as client, RawPhone(pair.nodes["a"].target) as phone:

        async def next_invite() -> None:
            """Note the Call-ID of the next INVITE, which is not answered."""
            invite = (await RawCallee.wait_for_invite(phone)).invite
            dialled[invite.first_line.split("sip:")[1].split("@")[0]].add(invite.header("Call-ID"))

        agent = await client.agent()
        number = await client.number("+49301", None, sipPort=phone.sip.port)
        request = {"agentId": agent, "phoneNumberId": number}
        calls = [(await client.v1("POST", "calls", {**request, "to": to}))["id"] for to in destinations]
        await next_invite()
        await pair.nodes["a"].kill()
        async with asyncio.timeout(40):
            while not all(dialled.values()):
                await next_invite()
        assert {to: len(ids) for to, ids in dialled.items()} == dict.fromkeys(destinations, 1)
    async with pair.client("b") as client:
        for call in calls:
            stored = await client.v1("GET", f"calls/{call}")
            if stored["node"] == "a":  # it was dialled before the kill
                assert (stored["status"], stored["endedReason"]) == ("failed", "server_restart")
            else:
                await client.v1("POST", f"calls/{call}/hangup")
        assert {(await client.v1("GET", f"calls/{call}"))["node"] for call in calls[2:]} == {"b"}
    await pair.nodes["a"].start()


async def test_one_idempotency_key_at_two_nodes_at_once_creates_one_object(pair: Cluster) -> None:
    async def create(name: str, key: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {pair.key}", "Idempotency-Key": key}
        async with aiohttp.request(
            "POST", f"{pair.nodes[name].origin}/v1/agents", headers=headers, json={"name": f"once {key}"}
        ) as response:
            return response.status, (await response.json())["data"]["id"]

    for number in range(5):
        key = f"key-{number}"
        answers = await asyncio.gather(*(create(name, key) for name in ("a", "b", "a", "b")))
        assert len(set(answers)) == 1, answers
        assert answers[0][0] == 201
    async with pair.client("b") as client:
        names = [each["name"] for each in await client.v1("GET", "agents?limit=100")]
    assert sorted(name for name in names if name.startswith("once")) == [f"once key-{number}" for number in range(5)]


async def test_two_nodes_together_allow_no_more_requests_than_a_key_may_send(pair: Cluster) -> None:
    def limited(conn: sa.Connection) -> str:
        owner = organizations.create(conn, "limited").id
        return api_keys.create(conn, owner, requests_per_minute=20)[1]

    async with pair.database() as database:
        key = await database.write(limited)

    async def status(name: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.request("GET", f"{pair.nodes[name].origin}/v1/agents", headers=headers) as response:
            return response.status

    statuses = await asyncio.gather(*(status(name) for _ in range(20) for name in ("a", "b")))
    assert sorted(statuses) == [200] * 20 + [429] * 20


async def test_calls_go_on_while_the_database_is_away_and_their_ends_are_stored_afterwards(pair: Cluster) -> None:
    node, server = pair.nodes["b"], await asyncio.to_thread(postgresql.server)
    since = node.log.mark()
    async with pair.client("b") as client, RawPhone(node.target) as raw, PhoneCall(raw, NUMBER) as call:
        call_id = (await node.event("call.answered", since=since))["call_id"]
        await asyncio.to_thread(server.stop)
        try:
            await call.hears(50)
            assert (await client.get("/healthz"))[0] == 200
            assert (await client.get("/readyz"))[0] == 503
            await call.hang_up()
            await node.event("call.end_not_stored", since=since, call_id=call_id)
        finally:
            await asyncio.to_thread(server.start)
        _, body = await pair.receiver.about(call_id)
        assert json.loads(body)["status"] == "completed"
        assert (await client.v1("GET", f"calls/{call_id}"))["endedReason"] == "customer_ended"
        async with RawPhone(node.target) as other, PhoneCall(other, NUMBER) as next_call:
            await next_call.hang_up()


async def recorded_on_a(pair: Cluster) -> tuple[str, Path]:
    """The id of an ended call on node `a`, and its recording."""
    node = pair.nodes["a"]
    since = node.log.mark()
    async with call_on_a(pair) as (call_id, phone):
        await phone.hears(10)
        await phone.hang_up()
    await node.event("call.ended", since=since, call_id=call_id)
    async with pair.client("b") as client, asyncio.timeout(10):
        while (await client.v1("GET", f"calls/{call_id}"))["status"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    (path,) = await asyncio.to_thread(lambda: list((node.data_dir / "recordings").rglob(f"{call_id}.wav")))
    return call_id, path


async def gone(path: Path) -> None:
    """Wait until a file is removed."""
    async with asyncio.timeout(5):
        while await asyncio.to_thread(path.exists):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_what_needs_a_recording_is_done_by_the_node_that_has_it_or_names_it(pair: Cluster) -> None:
    call_id, _ = await recorded_on_a(pair)
    async with pair.client("b") as client:
        status, archive = await client.get(f"/v1/calls/{call_id}/export")
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            assert status == 200 and files.read("recording.wav")[:4] == b"RIFF"
        replayed = await client.v1("POST", f"calls/{call_id}/replay", {})
        assert replayed["callId"] == call_id
        pair.nodes["a"].signal(signal.SIGTERM)
        await pair.nodes["a"].ended()
        for method, part in (("GET", "recording"), ("GET", "waveform"), ("GET", "export"), ("POST", "replay")):
            expected = (503, "The recording is on node a, which cannot be reached")
            assert await answer(client, method, f"calls/{call_id}/{part}") == expected, part
    await pair.nodes["a"].start()


async def test_a_recording_is_removed_on_the_node_that_has_it(pair: Cluster) -> None:
    deleted, deleted_file = await recorded_on_a(pair)
    expired, expired_file = await recorded_on_a(pair)
    async with pair.client("b") as client:
        owner = (await client.v1("GET", f"calls/{expired}"))["organizationId"]
        await client.v1("DELETE", f"calls/{deleted}")
    await gone(deleted_file)
    async with pair.database() as database:  # as the round of retention does, on whichever node
        before = utc_now() + timedelta(minutes=1)
        await database.write(lambda conn: deletion.delete_recordings(conn, owner, before, 100))
    await gone(expired_file)


async def test_a_recording_is_removed_when_the_node_that_has_it_starts_again(pair: Cluster) -> None:
    deleted, file = await recorded_on_a(pair)
    kept, kept_file = await recorded_on_a(pair)
    pair.nodes["a"].signal(signal.SIGTERM)
    await pair.nodes["a"].ended()
    async with pair.client("b") as client:
        await client.v1("DELETE", f"calls/{deleted}")
        async with pair.database() as database:
            moved = sa.update(tables.calls).where(tables.calls.c.id == kept).values(node="b")
            await database.write(lambda conn: conn.execute(moved))
        assert await asyncio.to_thread(file.exists)
        await pair.nodes["a"].start()
        await gone(file)
        async with asyncio.timeout(5):
            while await client.status("GET", f"calls/{kept}/recording") != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await client.v1("DELETE", f"calls/{kept}")
        await gone(kept_file)


async def test_a_killed_node_waits_for_the_database_and_stores_the_end_from_its_journal(pair: Cluster) -> None:
    node, server = pair.nodes["b"], await asyncio.to_thread(postgresql.server)
    since = node.log.mark()
    async with RawPhone(node.target) as raw, PhoneCall(raw, NUMBER) as call:
        call_id = (await node.event("call.answered", since=since))["call_id"]
        await call.hears(50)
        await asyncio.to_thread(server.stop)
        try:
            await call.hang_up()
            await node.event("call.end_not_stored", since=since, call_id=call_id)
            await node.kill()
            since = node.log.mark()
            starting = asyncio.create_task(node.start())
            await asyncio.sleep(0)  # its log begins
            await node.event("database.awaited", since=since)
            async with aiohttp.request("GET", f"{node.origin}/healthz") as response:
                assert response.status == 200
            async with aiohttp.request("GET", f"{node.origin}/readyz") as response:
                assert response.status == 503
        finally:
            await asyncio.to_thread(server.start)
        await starting
    await node.event("call_journal.replayed", since=since)
    async with pair.client("a") as client, asyncio.timeout(20):
        while (found := await client.v1("GET", f"calls/{call_id}"))["endedReason"] != "customer_ended":  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # another node may have closed the call first
    assert found["status"] == "completed"
    _, body = await pair.receiver.about(call_id)
    assert json.loads(body)["event"] == "call.completed"
