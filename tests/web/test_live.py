"""The page of live calls, and how lists and pages follow what happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from playwright.async_api import Page, Route, expect

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.outcome import CallOutcome
from calls.call_record.timeline import Timeline, TimelineTurn, ToolRun
from calls.conversation.idle_timer import HoldChanged
from calls.live.capacity import CallCapacity, Capacity
from calls.live.events import LiveEvents
from calls.live.live_call import TurnNews
from calls.live.live_calls import LiveCalls
from calls.live.node_capacity import NodeCapacity
from calls.live.number_feed import NumberNews
from calls.live.server_state import ModelLoad, ServerState
from config.clock import utc_now
from media.turn_taking.events import AgentStarted, TurnEnded
from sipcore.audio.call_quality import CallQuality, DirectionQuality
from sipcore.dialogs.call_leg import CallLeg
from sipcore.trunks.trunk import TrunkStatus
from storage.calls import calls
from storage.calls.calls import Call
from storage.calls.sip_traces import SipTrace, StoredSipMessage
from storage.nodes.nodes import Node
from storage.phone_numbers import phone_numbers
from tests.api.conftest import Api, StartApi
from tests.web.conftest import address, dashboard_of
from tests.web.dashboard import Dashboard
from tests.web.stored_calls import HOSTILE, invite


@dataclass
class LiveServer:
    """A server whose calls are these."""

    api: Api
    live: LiveCalls
    hung_up: list[str]
    sip: list[StoredSipMessage]
    """The messages of each live call."""

    async def call(self, customer: str = "+4940654321", provider: Any = "sip", *, answered: bool = True) -> Call:
        """Begin a call, which is answered at once unless it shall ring."""

        def store(conn: Any) -> Call:
            call = calls.create_inbound(
                conn,
                organization_id=self.api.organization_id,
                agent_id="",
                phone_number_id="",
                provider=provider,
                call_sid="x",
                customer_number=customer,
                called_number="+4940123456",
            )
            if answered:
                calls.mark_answered(conn, call.id, call.created_at)
            return calls.get_by_id(conn, call.id) or call

        call = await self.api.services.database.write(store)
        self.live.begin(call)
        return call

    def cut_connections(self) -> None:
        """Cut all connections of browsers."""
        runner = self.api.client.server.runner
        assert runner is not None and runner.server is not None
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def turn(self, call: Call, sequence: int, role: Any, text: str, start_ms: int) -> None:
        """Tell a finished turn."""
        turn = FinishedTurn(role, text, start_ms, start_ms + 800)
        times = TimelineTurn(sequence).to_json(0.0)
        self.live.publish_turn(call.organization_id, TurnNews(call.id, sequence, turn, times))

    async def end(self, call: Call) -> None:
        """The caller hangs up."""
        outcome = CallOutcome("completed", "customer_ended", utc_now(), answered_at=call.started_at)
        await self.api.services.database.write(
            lambda conn: calls.finish(
                conn, call.id, status="completed", ended_reason="customer_ended", ended_at=outcome.ended_at
            )
        )
        self.live.end(call.id, outcome)

    def capacity(self, now: Capacity) -> None:
        """Tell the capacity."""
        self.live.events.publish(self.api.organization_id, "capacity.updated", lambda: now)


IDLE = Capacity(CallCapacity(0, 10, 10), ServerState(models=ModelLoad(0.1, 3.0, 12, False)))


@pytest.fixture
async def server(start_api: StartApi) -> LiveServer:
    live, hung_up, sip = LiveCalls(LiveEvents()), list[str](), list[StoredSipMessage]()

    async def sip_trace(call_id: str) -> SipTrace:
        return SipTrace(list(sip))

    async def hangup(call_id: str) -> bool:
        hung_up.append(call_id)
        end: dict[str, Any] = {"status": "completed", "ended_reason": "api_hangup", "ended_at": utc_now()}
        await api.services.database.write(lambda conn: calls.finish(conn, call_id, **end))
        live.end(call_id)
        return True

    permitted = {"dashboard": {"listen": True}}
    details: dict[str, Any] = {"events": live.events, "live_call": live.details, "capacity": lambda *_: IDLE}
    api: Api = await start_api(permitted, **details, hangup=hangup, sip_trace=sip_trace)
    return LiveServer(api, live, hung_up, sip)


@pytest.fixture
async def browser(server: LiveServer) -> AsyncIterator[Dashboard]:
    async with dashboard_of(server.api, "owner") as opened:
        yield opened


async def opened(browser: Dashboard, path: str = "/live") -> Page:
    page = await browser.open(path)
    await expect(page.get_by_text("Up to date")).to_be_visible()
    return page


async def test_calls_appear_change_and_go(server: LiveServer, browser: Dashboard) -> None:
    page = await opened(browser)
    await expect(page.get_by_text("No call is live.")).to_be_visible()
    call = await server.call()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="+4940654321"))
    await expect(row).to_contain_text("Listening")
    listen = row.get_by_role("link", name="Listen in to the call with +4940654321")
    await expect(listen).to_have_attribute("href", f"/calls/{call.id}")
    server.live.of(call).on_event(HoldChanged(True))
    await expect(row).to_contain_text("On hold")
    await server.end(call)
    await expect(row).to_contain_text("Ended")
    await expect(page.get_by_text("No call is live.")).to_be_visible()


async def test_listening_is_not_offered_where_it_is_switched_off(start_api: StartApi) -> None:
    live = LiveCalls(LiveEvents())
    server = LiveServer(
        await start_api(events=live.events, live_call=live.details, capacity=lambda *_: IDLE), live, [], []
    )
    call = await server.call()
    async with dashboard_of(server.api, "owner") as browser:
        page = await opened(browser)
        await expect(page.get_by_text("Listening in is switched off on this server")).to_be_visible()
        await expect(page.get_by_role("row").get_by_role("button", name="Listen in")).to_be_disabled()
        await browser.assert_accessible(page)
        await page.goto(f"{browser.address}/calls/{call.id}")
        await expect(page.get_by_text("Listening in is switched off on this server")).to_be_visible()
        await expect(page.get_by_role("button", name="Listen in")).to_be_disabled()
        await expect(page.get_by_role("button", name="Take over")).to_be_enabled()
        await browser.assert_accessible(page)


class MeasuredLeg:
    """A leg whose audio has these figures."""

    def quality(self) -> CallQuality:
        received, sent = DirectionQuality(99, 1, 0.01, 1.0, 2.0, 4.1), DirectionQuality(99, 2, 0.02, 1.0, 2.0, 3.9)
        return CallQuality("PCMU", received, sent, 0.0, 0, 0, 0, 0, 99, None, None)


async def test_states_and_figures_follow_a_call(server: LiveServer, browser: Dashboard) -> None:
    call = await server.call(answered=False)
    page = await opened(browser, f"/live?call={call.id}")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="+4940654321", exact=True))
    await expect(row).to_contain_text("Ringing")
    live = server.live.of(call)
    live.on_answered(utc_now() - timedelta(seconds=65), cast(CallLeg, MeasuredLeg()))
    await expect(row).to_contain_text("Listening")
    await expect(row).to_contain_text(re.compile(r"1:\d\d"))
    await expect(row).to_contain_text("1 %4.1")
    live.on_event(TurnEnded(0.0, 0.0, 0.0, "model"))
    await expect(row).to_contain_text("Thinking")
    tool = ToolRun(1, 1, "find", 10)
    live.on_tool(tool)
    await expect(row).to_contain_text("Using a tool")
    live.on_tool(replace(tool, end_ms=20, ok=True))
    live.on_event(AgentStarted(0.0))
    await expect(row).to_contain_text("Speaking")
    timeline = Timeline(0.0, lambda: 1640.0)
    timeline.add_caller_turn(1, TurnEnded(1200.0, 0.0, 1000.0, "model"))
    timeline.turn.agent_start_ms = 1640.0
    live.on_turn(FinishedTurn("assistant", "Good day.", 0, 800), timeline)
    await expect(row).to_contain_text("640 ms")
    live.on_transfer(True)
    await expect(row).to_contain_text("Transferring")
    chosen = page.get_by_role("region", name="Chosen call").locator(".facts")
    facts = r"Duration1:\d\d.*Last response gap640 msLoss1 % received, 2 % sentMOS4\.1 received, 3\.9 sent$"
    await expect(chosen).to_have_text(re.compile(facts))
    capacity = page.get_by_role("region", name="Capacity")
    await expect(capacity.get_by_role("definition")).to_have_text(
        ["0 of 10", "10", "In time responses wait 0.1 s, at most 3 s are accepted", "12 calls"]
    )
    await expect(capacity.get_by_role("term")).to_have_text(["Calls", "Room for", "Models", "Models keep up with"])


async def test_the_words_of_the_chosen_call_come_as_they_are_said(server: LiveServer, browser: Dashboard) -> None:
    call = await server.call()
    page = await opened(browser)
    await page.get_by_role("link", name="+4940654321", exact=True).click()
    said = page.get_by_role("log", name="What is said")
    await expect(said).to_contain_text("Nothing was said")
    server.turn(call, 1, "user", HOSTILE, 100)
    server.turn(call, 2, "assistant", "Good day.", 1200)
    await expect(said.get_by_role("listitem")).to_have_count(2)
    await expect(said.get_by_text(HOSTILE)).to_be_visible()
    live = server.live.of(call)
    live.allow_partials()
    live.on_partial_transcript("are you op")
    await expect(said).to_contain_text("are you op …")
    await browser.assert_accessible(page)


async def test_a_call_is_hung_up_after_a_question_that_names_it(server: LiveServer, browser: Dashboard) -> None:
    call = await server.call()
    page = await opened(browser, f"/live?call={call.id}")
    await page.get_by_role("button", name="Hang up").click()
    question = page.get_by_role("dialog", name="Hang up the call with +4940654321?")
    await question.get_by_role("button", name="Hang up").click()
    await expect(page.get_by_text("The call with +4940654321 was hung up.")).to_be_visible()
    assert server.hung_up == [call.id]
    await expect(page.get_by_text("This call is over.")).to_be_visible()


async def test_a_test_call_is_named_in_words(server: LiveServer, browser: Dashboard) -> None:
    call = await server.call("web", provider="web")
    page = await opened(browser)
    await expect(page.get_by_role("link", name="Listen in to the call with a browser")).to_be_visible()
    await page.get_by_role("link", name="Test call from a browser").click()
    await expect(page.get_by_role("heading", name="Test call from a browser")).to_be_visible()
    await page.get_by_role("button", name="Hang up").click()
    await expect(page.get_by_role("dialog", name="Hang up the call with a browser?")).to_be_visible()
    await page.goto(f"{browser.address}/calls/{call.id}")
    await expect(page.get_by_role("heading", name="Test call from a browser")).to_be_visible()
    await page.get_by_role("button", name="Take over").click()
    await expect(page.get_by_role("dialog", name="Take over the call with a browser?")).to_be_visible()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await server.end(call)
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="Delete the call with a browser of")).to_be_visible()


async def test_a_failed_registration_and_what_is_wrong_stand_out(server: LiveServer, browser: Dashboard) -> None:
    number = await server.api.create("/phone-numbers", {"number": "4711", "provider": "sip", "name": HOSTILE})
    page = await opened(browser)
    await expect(page.get_by_role("row").filter(has_text="4711")).to_contain_text("Not registered")
    stored = await server.api.services.database.read(
        lambda conn: phone_numbers.get(conn, server.api.organization_id, number["id"])
    )
    assert stored is not None
    failed = NumberNews(stored, TrunkStatus("failed", "403 Forbidden"))
    server.live.events.publish(stored.organization_id, "number.updated", lambda: failed)
    await expect(page.get_by_role("row").filter(has_text="4711")).to_contain_text("403 Forbidden")
    server.capacity(
        Capacity(CallCapacity(9, 10, 1), ServerState("full", ModelLoad(4.0, 3.0, 12, True), {"disk": HOSTILE}))
    )
    await expect(page.get_by_role("alert")).to_contain_text(
        f"New calls are rejected or wait: the server has as many calls as it takesDisk: {HOSTILE}"
    )
    await expect(page.get_by_text("9 of 10")).to_be_visible()
    assert await page.locator("img").count() == 0
    await browser.assert_accessible(page)


def node(name: str, version: str, calls: int) -> Node:
    """A node that is up."""
    now = utc_now()
    return Node(name, name, "http://192.0.2.1", version, "up", calls, 250, now, now)


async def test_several_nodes_are_listed_with_their_load_and_for_operators_with_their_versions(
    start_api: StartApi,
) -> None:
    several = replace(
        IDLE,
        nodes=(
            NodeCapacity("node1", "up", 3, 247, ServerState()),
            NodeCapacity("node2", "draining", 0, 0, ServerState("draining", None, {"disk": HOSTILE})),
        ),
    )
    stored = [node("node1", "1.1", 7), node("node2", "1.0", 5)]
    details: dict[str, Any] = {"capacity": lambda *_: several, "nodes": lambda _: stored}
    api = await start_api(**details)
    async with dashboard_of(api, "viewer") as browser:
        page = await opened(browser)
        row = page.get_by_role("row").filter(has_text="node2")
        await expect(row).to_contain_text(f"New calls are rejected or wait: the server is being stoppedDisk: {HOSTILE}")
        await expect(page.get_by_role("columnheader", name="Version")).to_have_count(0)
        await browser.assert_accessible(page)
    async with dashboard_of(api, "operator") as browser:
        page = await opened(browser)
        await expect(page.get_by_role("row").filter(has_text="node1")).to_contain_text("Up32477 of 25001.1")
        await expect(page.get_by_text("The nodes have different versions")).to_be_visible()
        await browser.assert_accessible(page)


async def test_a_broken_stream_is_said_and_goes_on_where_it_was_cut(server: LiveServer, browser: Dashboard) -> None:
    page = await opened(browser)
    await expect(page.get_by_text("No call is live.")).to_be_visible()
    await expect(page.get_by_text("Loading…")).to_have_count(0)
    server.cut_connections()
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    await server.call("+4940111")
    await expect(page.get_by_text("Connection lost, trying again…")).to_be_visible()
    await expect(page.get_by_role("link", name="+4940111", exact=True)).to_be_visible(timeout=60_000)
    await expect(page.get_by_text("Up to date")).to_be_visible()
    assert {url.removeprefix(address(server.api)) for url in loaded} == {"/api/events"}
    assert all("net::ERR_" in each for each in browser.problems), browser.problems
    browser.problems.clear()  # how Chromium logs a request that was cut


async def test_what_could_not_be_loaded_is_loaded_when_the_server_answers_again(
    server: LiveServer, browser: Dashboard
) -> None:
    await server.call("+4940113")
    refused: list[str] = []

    async def refuse_once(route: Route) -> None:
        if route.request.url in refused:
            await route.fallback()
        else:
            refused.append(route.request.url)
            await route.abort()

    await browser.context.route("**/v1/calls?**", refuse_once)
    page = await opened(browser)
    await expect(page.get_by_text("The server does not answer.")).to_be_visible()
    server.cut_connections()
    await expect(page.get_by_role("link", name="+4940113", exact=True)).to_be_visible(timeout=20_000)
    browser.problems.clear()  # how Chromium logs requests that were cut


async def test_what_happens_before_the_stream_has_begun_is_not_missed(server: LiveServer, browser: Dashboard) -> None:
    may_begin = asyncio.Event()

    async def late(route: Route) -> None:
        await may_begin.wait()
        await route.fallback()

    await browser.context.route("**/api/events", late)
    page = await browser.open("/live")
    await expect(page.get_by_text("No call is live.")).to_be_visible()
    await server.call("+4940112")
    may_begin.set()
    await expect(page.get_by_role("link", name="+4940112", exact=True)).to_be_visible()


async def test_the_list_of_calls_and_the_page_of_a_call_follow(server: LiveServer, browser: Dashboard) -> None:
    page = await browser.open("/calls")
    await expect(page.get_by_text("No calls yet.")).to_be_visible()
    call = await server.call()
    row = page.get_by_role("row").nth(1)
    await expect(row).to_contain_text("In progress")
    own = await browser.open(f"/calls/{call.id}")
    await expect(own.get_by_text("In progress")).to_be_visible()
    await own.get_by_role("tab", name="SIP").click()
    await expect(own.get_by_text("No SIP messages are kept of this call.")).to_be_visible()
    server.sip.append(invite())
    server.live.of(call).on_event(HoldChanged(True))
    await expect(own.get_by_role("list", name="SIP messages in order of time").get_by_role("listitem")).to_have_count(1)
    await server.end(call)
    await expect(own.get_by_text("the customer hung up")).to_be_visible()
    await page.bring_to_front()
    await expect(row).to_contain_text("Completed")


async def test_a_viewer_hangs_nothing_up(server: LiveServer) -> None:
    call = await server.call()
    async with dashboard_of(server.api, "viewer", "ben") as viewers:
        page = await opened(viewers, f"/live?call={call.id}")
        await expect(page.get_by_role("button", name="Hang up")).to_be_disabled()
