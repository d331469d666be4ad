"""The list of calls and the page of a call."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta

from playwright.async_api import Page, Route, expect

from api.schemas.call_replay import CallReplay
from api.services import ReplayOrder
from calls.call_record.timeline import Timeline, TimelineTurn
from config.clock import iso, utc_now
from config.errors import LimitExceeded
from storage.calls import transfers
from storage.calls.calls import TranscriptItem
from storage.calls.transfers import Transfer, TransferAttempt
from tests.api.conftest import Api, StartApi
from tests.fakes.fake_replayer import FakeReplayer
from tests.web.conftest import address, dashboard_of
from tests.web.dashboard import Dashboard, assert_painted_in_the_pages_colours
from tests.web.stored_calls import HOSTILE, store_call, transcript

SECOND = timedelta(seconds=1)


async def open_call(api: Api, signed_in: Dashboard, query: str = "") -> Page:
    agent = await api.create("/agents", {"name": HOSTILE})
    call = await store_call(api, agent["id"])
    page = await signed_in.open(f"/calls/{call.id}{query}")
    await expect(page.get_by_role("heading", name="Call with +4940654321")).to_be_visible()
    return page


async def test_a_call_of_the_list_is_opened(api: Api, signed_in: Dashboard) -> None:
    call = await store_call(api, None)
    page = await signed_in.open("/calls?status=completed")
    await page.get_by_role("row").nth(1).get_by_role("link").click()
    await expect(page).to_have_url(f"{address(api)}/calls/{call.id}")
    await expect(page.get_by_text("the customer hung up")).to_be_visible()


async def test_the_transcript_seeks_and_follows_the_recording(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("button", name="Play from 0:07").click()
    await expect(page.locator("[aria-current=true].entry")).to_contain_text("Thank you")
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await page.get_by_role("button", name="Play", exact=True).click()
    await expect(page.locator("[aria-current=true].entry")).to_contain_text("Goodbye then.", timeout=10_000)
    await expect(page.locator(".word-current")).to_have_text("then.")
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_text("valid.", exact=True).click()  # 4.9 s, by the lengths of the three words
    await expect(page.get_by_text("0:04 of 0:12")).to_be_visible()
    await expect(page.locator(".word-current")).to_have_text("valid.")


async def test_a_link_leads_to_a_moment(api: Api, signed_in: Dashboard) -> None:
    await signed_in.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await open_call(api, signed_in, "?t=7.5")
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await page.get_by_role("slider").press("ArrowRight")
    await page.get_by_role("button", name="Copy a link to this moment").click()
    await expect(page.get_by_text("Copied.")).to_be_visible()
    assert (await page.evaluate("navigator.clipboard.readText()")).endswith("?t=12.0")


async def test_a_turn_shows_what_its_answer_waited_for(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Turns").click()
    first, second = page.get_by_role("tabpanel").locator(".turn").nth(0), page.locator(".turn").nth(1)
    await expect(first).to_contain_text("1000 ms until the answer · end of turn with a probability of 97 %")
    await expect(first.get_by_role("img", name="end of turn: 300 ms")).to_be_visible()
    await expect(second).to_contain_text("ended by the pause that ends a turn")
    await expect(first.get_by_role("listitem")).to_have_text(
        [f"Tool {HOSTILE}: 300 ms", f"Passage 2 of “{HOSTILE}”, score 0.50 Open the document"]
    )
    document = first.get_by_role("link", name="Open the document")
    await expect(document).to_have_attribute("href", re.compile(r"^/knowledge\?agentId=[\w-]+&document=8f0c4f6e-"))
    await page.get_by_role("button", name="Interruption").click()
    await expect(page.get_by_text("0:05 of 0:12")).to_be_visible()


async def test_redacted_text_stands_out(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await expect(page.locator("mark")).to_have_text("[card]")
    await page.get_by_role("tabpanel").locator("summary").click()
    await expect(page.get_by_role("tabpanel").locator("pre")).to_have_text([re.compile('"question": "<img'), HOSTILE])


async def test_the_waveform_has_the_colours_of_the_page(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await expect(page.get_by_role("slider")).to_be_visible()
    await assert_painted_in_the_pages_colours(page)


async def test_a_webhook_is_sent_again(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Webhooks").click()
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_text("Pending")).to_be_visible()
    assert len(api.webhook_wakes) == 1


async def test_a_call_is_deleted_after_a_question_that_names_it(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Delete the call with +4940654321 of ")
    await signed_in.assert_accessible(page)
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No calls yet.")).to_be_visible()


async def test_a_call_is_exported(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    async with page.expect_download() as started:
        await page.get_by_role("button", name="Export").click()
    download = await started.value
    assert download.suggested_filename == f"call-{page.url.rsplit('/', 1)[1]}.zip"


async def test_the_operator_downloads_the_sip_messages(api: Api) -> None:
    call = await store_call(api, None)
    async with dashboard_of(api, "operator") as operator:
        page = await operator.open(f"/calls/{call.id}")
        await page.get_by_role("tab", name="SIP").click()
        ladder = page.get_by_role("list", name="SIP messages in order of time").get_by_role("listitem")
        await expect(ladder.locator("summary")).to_have_text("0.000 sINVITE sip:100@192.0.2.1, received from the peer")
        await operator.assert_accessible(page)
        await page.get_by_text("INVITE sip:100@192.0.2.1", exact=True).click()
        await expect(page.get_by_text(HOSTILE)).to_be_visible()
        async with page.expect_download() as started:
            await page.get_by_role("button", name="Download as pcap").click()
        assert (await started.value).suggested_filename == f"call-{call.id}.pcap"


async def test_facts_quality_and_keys_are_shown(api: Api, signed_in: Dashboard) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    await api("PATCH", f"/agents/{agent['id']}", {"name": "Berta"})
    pressed: TranscriptItem = {"role": "user", "content": "42#", "startMs": 7100, "endMs": 7900}
    turn = TimelineTurn(1, ended_by="digits", turn_end_ms=8400.0, agent_start_ms=9000.0, agent_end_ms=11000.0)
    figures = {"lost": 1, "lossPercent": 0.25, "jitterMs": 1.5, "maxJitterMs": 3.0, "mos": 4.4}
    counts = {"duplicate": 0, "reordered": 2, "foreign": 3, "malformed": 0, "discardedMs": 20}
    call = await store_call(
        api,
        agent["id"],
        agent_version=1,
        cost=2.5,
        ended_reason="api_hangup",
        timeline=[turn.to_json(0.0)],
        transcript=[*transcript()[:2], pressed],
        media_quality={
            "codec": "PCMU",
            "received": {"packets": 1999, **figures, **counts},
            "sent": {"packets": 2000, **figures},
            "roundTripMs": 12.5,
            "maxRoundTripMs": None,
        },
    )
    page = await signed_in.open(f"/calls/{call.id}")
    for fact in ("Cost2.5000", "AgentBerta version 1, now 2", "it was ended in the dashboard or through the API"):
        await expect(page.locator(".facts")).to_contain_text(fact)
    begun = page.locator(".facts").get_by_role("time").first
    await expect(begun).to_have_text(re.compile(r"^1 hour ago \(\d+ \w+ \d{4}, [\d:]+\)$"))
    keys = page.get_by_role("list", name="Events on the recording").get_by_role("button", name="0:07 DTMF digits: 42#")
    await keys.click()
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await page.get_by_role("tab", name="Media quality").click()
    await expect(page.get_by_role("row", name="Packets", exact=False).first).to_have_text("Packets1,9992,000")
    await expect(page.get_by_role("row", name="Loss, %")).to_have_text("Loss, %0.250.25")
    await expect(page.get_by_role("row", name="Discarded audio, ms")).to_have_text("Discarded audio, ms20")
    await expect(page.get_by_text("Round-trip time 13 ms on average, 13 ms at most.")).to_be_visible()
    await page.get_by_role("tab", name="SIP").click()
    await expect(page.get_by_text("INVITE sip:100@192.0.2.1", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Download as pcap")).to_have_count(0)


async def test_transfers_are_told_in_words(api: Api, signed_in: Dashboard) -> None:
    call, at = await store_call(api, None), utc_now()
    attempts: list[TransferAttempt] = [
        {"number": "100", "startedAt": iso(at), "endedAt": iso(at), "sipStatus": 486, "outcome": "busy"},
        {"number": "101", "startedAt": iso(at + SECOND), "endedAt": iso(at), "sipStatus": 200, "outcome": "no_audio"},
    ]
    transfer = Transfer(
        id="3f6d1a52-6a0f-4a53-9d3b-1f4d6f1e2b90", organization_id=api.organization_id, parent_call_id=call.id,
        mode="warm_briefing", status="declined", target_name="Berths", number="100", reason="a complaint",
        summary="the boat is lost", requested_by="agent", created_at=at, decline_reason="at lunch", ended_at=at,
        attempts=attempts,
    )  # fmt: skip
    await api.services.database.write(lambda conn: transfers.insert(conn, transfer))
    page = await signed_in.open(f"/calls/{call.id}?tab=transfers")
    panel = page.get_by_role("tabpanel")
    await expect(panel.get_by_role("heading", name="To Berths")).to_be_visible()
    await expect(panel.get_by_role("definition")).to_have_text(
        ["declined", "with a briefing of the target", "100", "0:00", "a complaint", "the boat is lost", "at lunch"]
    )
    await expect(panel.locator("ul").get_by_role("listitem")).to_have_text(
        ["100: busy 486", "101: answered without audio in common 200"]
    )


async def test_a_recording_that_cannot_be_played_is_said_and_tried_again(api: Api, signed_in: Dashboard) -> None:
    refused: list[str] = []

    async def refuse_once(route: Route) -> None:
        if refused:
            await route.fallback()
        else:
            refused.append(route.request.url)
            await route.fulfill(status=404)

    await signed_in.context.route(re.compile(r"/recording(\?|$)"), refuse_once)
    page = await open_call(api, signed_in)
    await expect(page.get_by_role("alert").get_by_text("The recording cannot be played.")).to_be_visible()
    await expect(page.get_by_role("button", name="Play", exact=True)).to_be_disabled()
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("0:00 of 0:12")).to_be_visible()
    await expect(page.get_by_text("The recording cannot be played.")).to_have_count(0)


async def test_tabs_move_by_arrow_keys(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Transcript").press("ArrowRight")
    await expect(page.get_by_role("tab", name="Turns")).to_be_focused()
    await page.keyboard.press("End")
    await expect(page.get_by_role("tab", name="Webhooks")).to_have_attribute("aria-selected", "true")


async def test_what_people_did_stands_in_the_transcript(api: Api, signed_in: Dashboard) -> None:
    timeline = Timeline(0.0, iter([3200.0, 3400.0, 6500.0, 7900.0]).__next__)
    timeline.add_note(HOSTILE, "anna")
    timeline.end_listening(timeline.begin_listening(f"bert {HOSTILE}"))
    timeline.set_taken_over("carla")
    said: TranscriptItem = {"role": "user", "content": "Carla here.", "startMs": 9000, "endMs": 9900}
    said["speaker"] = "target"
    call = await store_call(
        api, None, timeline=timeline.items(), transcript=[*transcript()[:3], said], ended_reason="agent_ended"
    )
    page = await signed_in.open(f"/calls/{call.id}")
    entries = page.get_by_role("tabpanel").locator(".entry")
    await expect(entries).to_contain_text(
        [
            "Customer",
            f"Note to the agent by anna0:03{HOSTILE}",
            f"bert {HOSTILE} listened in from 0:03 to 0:06",
            "Agent",
            "Customer",
            "carla took the call over from the agent0:07",
            "carla, in the agent's place0:09Carla here.",
        ]
    )
    await expect(page.get_by_role("definition").filter(has_text="carla hung up")).to_be_visible()
    await page.get_by_role("list", name="Events on the recording").get_by_role("button", name="carla").click()
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await signed_in.assert_accessible(page)


async def test_removed_data_says_since_when_and_why(api: Api, signed_in: Dashboard) -> None:
    removed = {"recorded": False, "recording_absent_reason": "retention", "recording_removed_at": utc_now()}
    call = await store_call(api, None, **removed, talk_removed_at=utc_now() - timedelta(days=3), transcript=[])
    page = await signed_in.open(f"/calls/{call.id}")
    since = r"deleted (now|\d+ seconds? ago) \(.* the time that the organization keeps them was over\."
    await expect(page.get_by_text(re.compile(f"The recording was {since}"))).to_be_visible()
    for tab in ("Transcript", "Turns", "Summary", "SIP", "Webhooks"):
        await page.get_by_role("tab", name=tab).click()
        await expect(page.get_by_role("tabpanel").locator(".notice")).to_have_text(
            re.compile(
                "^Transcript, turns, summary, context variables, SIP messages, webhooks, and the reasons and "
                r"briefings of transfers were deleted 3 days ago \(.*\): the time that the organization keeps them was "
                r"over\.$"
            )
        )
    await signed_in.assert_accessible(page)


async def test_a_viewer_can_neither_delete_nor_export(api: Api) -> None:
    call = await store_call(api, None)
    async with dashboard_of(api, "viewer") as viewer:
        page = await viewer.open(f"/calls/{call.id}")
        await expect(page.get_by_role("tab", name="Webhooks")).to_be_visible()
        await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
        await expect(page.get_by_role("button", name="Export")).to_have_count(0)


async def test_other_turn_settings_are_tried_on_a_call_and_taken_to_its_agent(start_api: StartApi) -> None:
    begun, goes_on, replayer, asked = asyncio.Event(), asyncio.Event(), FakeReplayer(), list[ReplayOrder]()

    async def replay(order: ReplayOrder) -> CallReplay:
        asked.append(order)
        if len(asked) == 1:
            begun.set()
            await goes_on.wait()
        if len(asked) == 2:
            raise LimitExceeded("Another call of your organization is being replayed")
        return await replayer.replay(order)

    api: Api = await start_api(replay=replay)
    agent = await api.create("/agents", {"name": "Anna", "turnEndpointDelay": 300})
    await api("PATCH", f"/agents/{agent['id']}", {"turnEndpointDelay": 900})
    call = await store_call(api, agent["id"], agent_version=1)
    async with dashboard_of(api, "editor") as editor:
        page = await editor.open(f"/calls/{call.id}")
        await page.get_by_role("tab", name="Try other turn settings").click()
        pause, run = page.get_by_label("Pause that ends a turn, ms"), page.get_by_role("button", name="Replay")
        await expect(pause).to_have_value("300")
        await expect(run).to_be_disabled()
        await pause.fill("800")
        await run.click()
        await expect(page.get_by_role("progressbar")).to_be_visible()
        await begun.wait()
        await page.get_by_role("button", name="Cancel").click()
        goes_on.set()
        await expect(page.get_by_role("progressbar")).to_have_count(0)
        await run.click()
        await expect(page.get_by_text("Another call of your organization is being replayed")).to_be_visible()
        await run.click()
        turns = page.get_by_role("region", name="Turn by turn").get_by_role("row")
        await expect(turns.nth(1)).to_contain_text("500 ms later")
        await expect(turns.nth(2)).to_contain_text("no turn of its own any more")
        await expect(page.get_by_role("row", name="Ended too early")).to_contain_text("\N{MINUS SIGN}1")
        order = asked[-1]
        assert order.after == replace(order.before, turn_endpoint_delay=800)
        await editor.assert_accessible(page)
        await turns.nth(2).get_by_role("button", name="Play from 0:07").click()
        await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
        await page.get_by_role("link", name="Open the agent with these values").click()
        await expect(page.get_by_label("Pause that ends a turn, ms")).to_have_value("800")
        await expect(page.get_by_text("1 unsaved change")).to_be_visible()
    async with dashboard_of(api, "viewer") as viewer:
        page = await viewer.open(f"/calls/{call.id}")
        await page.get_by_role("tab", name="Try other turn settings").click()
        await expect(page.get_by_text("Trying other turn settings needs the role editor.")).to_be_visible()
