"""Three servers behind Kamailio, with the configuration of docs/how-to/pbx/kamailio-cluster."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.peers.baresip import Baresip
from tests.peers.dnsmasq import NameServer
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.faults.dialog_recovery import entries
from tests.trunkline.pbx.kamailio_cluster import (
    NODE_SIDE,
    NUMBER,
    PBX,
    TRUNK_SIDE,
    Cluster,
    Node,
    Phone,
    TcpPhone,
    open_cluster,
)
from tests.trunkline.phone_calls import together
from tests.trunkline.sip_phone import PhoneCall, known

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
CALLS_OF_A_NODE = 6
SIPFRAG = b"SIP/2.0 200 OK\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with open_cluster(
        tmp_path_factory.mktemp("cluster"),
        limits={"max_calls": CALLS_OF_A_NODE, "max_outbound_per_second": 50},
        sip={"drain_timeout_s": 60},
        patience=2,  # on a loaded machine
    ) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(_cluster: Cluster) -> Cluster:
    """The cluster, with three nodes that take calls."""
    await _cluster.all_active()
    return _cluster


@pytest.fixture(params=["udp", "tcp"])
def phone(request: pytest.FixtureRequest) -> Phone:
    """Opens a phone of the trunk with this transport."""
    return RawPhone if request.param == "udp" else TcpPhone


async def test_calls_are_spread_and_name_the_trunk_that_they_came_from(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(cluster.calling()) for _ in range(6)]
        owners = Counter(cluster.owner(each.dialog.target).host for each in calls)
        for call in calls:
            await call.hang_up()
    assert sorted(owners.values()) == [2, 2, 2]
    for node, client in zip(cluster.nodes, cluster.clients, strict=True):
        incoming = node.log.all("call.incoming")[-1]
        assert incoming["source"] == NODE_SIDE
        assert (await client.call(incoming["call_id"]))["metadata"]["sip.X-Trunk-Source"] == PBX


async def test_requests_within_a_dialog_reach_the_node_that_has_the_call(cluster: Cluster, phone: Phone) -> None:
    """Hold, INFO, REFER of the node with its NOTIFY, and BYE, with a double Record-Route."""
    targets = [{"name": "Desk", "description": "Berths", "number": "555", "mode": "cold"}]
    await cluster.number("101", {"systemPrompt": "Yes.", "transferTargets": targets}, sipTransferMethod="refer")
    marks = {node: node.log.mark() for node in cluster.nodes}
    async with cluster.calls_to_each(phone, "101") as calls:
        await together(*(hold_and_transfer(cluster, node, call, marks[node]) for node, call in calls.items()))


async def hold_and_transfer(cluster: Cluster, node: Node, call: PhoneCall, since: int) -> None:
    """Hold and resume a call of the node, send it a digit by INFO, and have the node transfer it."""
    call_id = (await node.event("call.incoming", since=since))["call_id"]
    assert "a=recvonly" in (await call.reinvite(call.offer("0 101", "sendonly"))).body
    while (resumed := await call.reinvite(call.offer("0 101", "sendrecv"))).status == 500:
        assert resumed.header("Retry-After"), "the INVITE overtook the ACK before it, in another worker of Kamailio"
    assert "a=sendrecv" in resumed.body
    assert await call.phone.info(call.dialog, "dtmf-relay", b"Signal=7\r\nDuration=160\r\n") == 200
    await cluster.client_of(node).v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
    await take_refer(call)
    await node.event("call.ended", call_id=call_id, reason="transferred")


async def take_refer(call: PhoneCall) -> None:
    """Accept the REFER, report that the target has answered, and take the BYE."""
    refer = await call.phone.next_request("REFER")
    assert [TRUNK_SIDE in refer.headers("Via")[0], len(refer.headers("Via"))] == [True, 2]
    call.phone.reply(refer, "202 Accepted")
    call.dialog.cseq += 1
    headers = ("Event: refer", "Subscription-State: terminated", "Content-Type: message/sipfrag")
    notify = call.phone.request("NOTIFY", call.dialog, headers=headers)
    call.phone.send(notify.replace(b"Content-Length: 0", b"Content-Length: %d" % len(SIPFRAG)) + SIPFRAG)
    await call.hung_up()


async def test_an_invite_that_replaces_a_call_reaches_the_node_that_has_it(cluster: Cluster) -> None:
    async with cluster.calls_to_each() as calls, RawPhone(cluster.proxy.target, PBX) as other:
        for node, call in calls.items():
            to_tag = call.dialog.to.split("tag=")[1]
            replaces = f"Replaces: {call.dialog.call_id};to-tag={to_tag};from-tag={call.dialog.tag}"
            dialog = PhoneCall(other, NUMBER).dialog
            other.invite(dialog, other.offer(), (replaces, "Require: replaces"))
            await other.complete_invite(dialog)
            assert cluster.owner(dialog.target) is node
            await call.hung_up()
            await other.bye(dialog)


async def test_a_challenged_invite_returns_to_the_node_whose_nonce_it_has(cluster: Cluster) -> None:
    fields = {"sipInboundAuth": True, "sipUsername": "harbour", "sipPassword": "hush-hush"}
    await cluster.number("102", {"systemPrompt": "Yes."}, **fields)
    async with Baresip("PCMU/8000/1", host=PBX, credentials=("harbour", "hush-hush")) as caller:
        for _ in cluster.nodes:
            await caller.command("dial", f"sip:102@{cluster.proxy.target}")
            await caller.event("CALL_ESTABLISHED")
            await caller.command("hangup")
            await caller.event("CALL_CLOSED")


async def test_a_retransmitted_invite_is_one_call(cluster: Cluster) -> None:
    marks = {node: node.log.mark() for node in cluster.nodes}
    async with RawPhone(cluster.proxy.target, PBX) as phone:
        call = PhoneCall(phone, NUMBER)
        invite = phone.request("INVITE", call.dialog, body=call.offer(), branch=phone.branch())
        for _ in range(3):
            phone.send(invite)
        await phone.complete_invite(call.dialog)
        phone.send(invite)
        await call.hang_up()
    owner = cluster.owner(call.dialog.target)
    await owner.event("call.ended", since=marks[owner])
    assert sum(len(node.log.all("call.incoming", since)) for node, since in marks.items()) == 1


async def test_calls_of_each_node_reach_the_trunk_and_its_requests_the_node(cluster: Cluster) -> None:
    numbers = await cluster.number("103", {"systemPrompt": "Yes."})
    for node, client, number_id in zip(cluster.nodes, cluster.clients, numbers, strict=True):
        since = node.log.mark()
        agent_id = (await client.v1("GET", f"phone-numbers/{number_id}"))["agentId"]
        body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550199"}
        call_id = (await client.v1("POST", "calls", body))["id"]
        callee = await RawCallee.wait_for_invite(cluster.pbx)
        assert [TRUNK_SIDE in each for each in callee.invite.routes] == [True, False]
        async with ReceivedCall(callee) as call:
            await call.hears(5)
            await call.hang_up()
        ended = await node.event("call.ended", since=since, call_id=call_id)
        assert ended["reason"] == "customer_ended"


async def test_a_draining_node_gets_no_call_and_keeps_its_own_to_its_end(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    async with cluster.calls_to_each() as calls:
        node.signal(signal.SIGTERM)
        await node.event("draining")
        for _ in range(4):
            assert await cluster.answering_node() is not node
        await cluster.proxy.wait_for_state(node, "I")
        assert (await calls[node].reinvite(calls[node].offer())).status == 200
        await calls[node].hears(5)
        assert node.serves
        for call in calls.values():
            await call.hang_up()
        assert await node.ended() == 0


async def test_killed_nodes_get_calls_again_after_their_start(cluster: Cluster) -> None:
    """Until the probe or the first call has found a dead node, by UDP or TCP, calls that would have gone to it go to
    the next one. Its next start ends the calls that it had."""
    by_udp, alive, by_tcp = cluster.nodes
    async with cluster.calls_to_each() as calls, cluster.calls_to_each() as more_calls:
        for node in (by_udp, by_tcp):
            await dialogs_stored(node, 2)
        await together(by_udp.kill(), by_tcp.kill())
        assert {await cluster.answering_node() for _ in cluster.nodes} == {alive}
        byes = await together(*(bye_status(each) for each in calls.values()))
        assert dict(zip(calls, byes, strict=True)) == {by_udp: 481, alive: 200, by_tcp: 481}
        await cluster.all_active()
        await more_calls.pop(alive).hang_up()
        for call in more_calls.values():
            await call.hung_up()
    async with cluster.calls_to_each() as calls:
        for call in calls.values():
            await call.hang_up()


async def dialogs_stored(node: Node, count: int) -> None:
    """Wait until the node has stored so many dialogs of live calls."""
    async with asyncio.timeout(10):
        while len(entries(node)) < count:  # noqa: ASYNC110 - another process stores them
            await asyncio.sleep(0.02)


async def bye_status(call: PhoneCall) -> int:
    """Send BYE; returns the status of its response."""
    call.phone.send_in_dialog("BYE", call.dialog)
    return (await call.phone.final_response("BYE")).status


async def test_a_node_that_hangs_loses_its_call_to_the_next_one(cluster: Cluster) -> None:
    """Once it goes on, the call that it still has to begin is cancelled."""
    node = cluster.nodes[0]
    since = node.log.mark()
    node.signal(signal.SIGSTOP)
    try:
        owners = [await cluster.answering_node() for _ in cluster.nodes]
    finally:
        node.signal(signal.SIGCONT)
    assert node not in owners
    await node.event("call.ended", since=since, reason="no_answer", sip_status=487)


async def test_a_cancelled_call_ends_at_its_node(cluster: Cluster) -> None:
    """The CANCEL arrives before any response of the node, which alone takes calls."""
    node, *others = cluster.nodes
    for each in others:
        await cluster.proxy.set_state(each, "d")
    try:
        await cancel_at_hanging(cluster, node)
    finally:
        for each in others:
            await cluster.proxy.set_state(each, "ap")


async def cancel_at_hanging(cluster: Cluster, node: Node) -> None:
    """Send INVITE and CANCEL while the node does not respond."""
    since = node.log.mark()
    async with RawPhone(cluster.proxy.target, PBX) as phone:
        call = PhoneCall(phone, NUMBER)
        node.signal(signal.SIGSTOP)
        try:
            branch = phone.invite(call.dialog, call.offer())
            assert (await phone.next_message()).status == 100
            phone.send(phone.request("CANCEL", call.dialog, branch=branch))
            assert (await phone.final_response("CANCEL")).status == 200
        finally:
            node.signal(signal.SIGCONT)
        answer = await phone.final_response("INVITE")
        phone.acknowledge(call.dialog, answer, branch)
        assert answer.status == 487
    await node.event("call.ended", since=since, reason="customer_ended", sip_status=487)


async def test_a_full_cluster_responds_with_503_and_retry_after(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        calls = await fill(cluster, stack)
        for _ in range(2):  # the second one finds no active node
            answer = await cluster.invite()
            assert (answer.status, answer.header("Retry-After")) == (503, "10")
        for node in cluster.nodes:
            await cluster.proxy.wait_for_state(node, "I")
        async with RawPhone(cluster.proxy.target, PBX) as phone:
            phone.send(phone.request("OPTIONS", phone.dialog()))
            assert (await phone.final_response("OPTIONS")).status == 503
        for call in calls:
            await call.hang_up()
    await cluster.all_active()
    assert (await cluster.invite()).status == 200


async def fill(cluster: Cluster, stack: AsyncExitStack) -> list[PhoneCall]:
    """Make as many calls as the nodes take. A late response to a probe may take a node with room out for a while."""
    calls: list[PhoneCall] = []
    while len(calls) < CALLS_OF_A_NODE * len(cluster.nodes):
        taken = Counter(cluster.owner(each.dialog.target) for each in calls)
        for node in cluster.nodes:
            if taken[node] < CALLS_OF_A_NODE:
                await cluster.proxy.wait_for_state(node, "A")
        calls.append(await stack.enter_async_context(cluster.calling()))
    return calls


async def test_an_unknown_source_gets_no_response(cluster: Cluster) -> None:
    async with RawPhone(cluster.proxy.target, "127.0.0.41") as stranger, RawPhone(cluster.proxy.target, PBX) as phone:
        stranger.invite(stranger.dialog(), stranger.offer())
        await phone.wait_processed()
        assert stranger.sip.received.empty()
    assert "unknown source 127.0.0.41" in cluster.proxy.output()


async def test_a_trunk_cannot_reach_others_than_the_nodes(cluster: Cluster) -> None:
    """A request with a To tag whose Route goes past the nodes."""
    async with RawPhone(cluster.proxy.target, PBX) as phone, RawPhone(cluster.proxy.target, "127.0.0.41") as victim:
        dialog = Dialog("forged", "a", "<sip:100@127.0.0.1>;tag=b", f"sip:100@127.0.0.41:{victim.sip.port}")
        dialog.routes = [f"<sip:{cluster.proxy.target};lr>"]
        phone.send(phone.request("BYE", dialog))
        assert (await phone.final_response("BYE")).status == 481
        assert victim.sip.received.empty()


def srv_records(cluster: Cluster) -> list[str]:
    """`_sip._udp.trunk.test` with two nodes of equal weight, and one for when these do not take the call."""
    records = []
    for at, (node, priority) in enumerate(zip(cluster.nodes, (10, 10, 20), strict=True)):
        name = f"node{at}.trunk.test"
        records += [f"srv-host=_sip._udp.trunk.test,{name},{node.sip_port},{priority},50"]
        records += [f"host-record={name},{node.host}"]
    return records


async def test_a_caller_by_srv_goes_to_the_next_node_after_503(cluster: Cluster) -> None:
    """Without Kamailio: baresip, whose calls go to the first node, and to the next ones while this one drains."""
    await cluster.number("104", {"systemPrompt": "Yes."}, sipSources=[PBX])
    first, second, reserve = cluster.nodes
    async with NameServer(*srv_records(cluster)) as names, AsyncExitStack() as stack:
        for node in cluster.nodes:
            await known(node.target, PBX)
        host, port = names.address
        caller = await stack.enter_async_context(Baresip("PCMU/8000/1", host=PBX, name_server=f"{host}:{port}"))
        calls = await stack.enter_async_context(cluster.calls_to_each())
        for draining in (first, second):
            draining.signal(signal.SIGTERM)
            await draining.event("draining")
            marks = {node: node.log.mark() for node in cluster.nodes}
            await caller.command("dial", "sip:104@trunk.test")
            await caller.event("CALL_ESTABLISHED")
            await caller.command("hangup")
            await caller.event("CALL_CLOSED")
            answered = [node for node, since in marks.items() if node.log.all("call.incoming", since)]
            assert answered == [second if draining is first else reserve]
        for call in calls.values():
            await call.hang_up()
        await together(first.ended(), second.ended())
