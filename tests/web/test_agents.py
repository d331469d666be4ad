"""The list of agents and the editor of an agent."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Dialog, Page, expect

from api.routes import openapi_json
from tests.api.conftest import Api
from tests.web.conftest import address, dashboard_of
from tests.web.dashboard import Dashboard
from tests.web.stored_calls import HOSTILE


async def open_agent(api: Api, signed_in: Dashboard, **fields: Any) -> tuple[Page, str]:
    """Returns the page of a new agent, and the agent's id."""
    agent = await api.create("/agents", {"name": "Reception", **fields})
    page = await signed_in.open(f"/agents/{agent['id']}")
    await expect(page.get_by_role("heading", name=agent["name"])).to_be_visible()
    return page, agent["id"]


async def stored(api: Api, agent_id: str) -> dict[str, Any]:
    data: dict[str, Any] = (await api("GET", f"/agents/{agent_id}"))[1]["data"]
    return data


async def test_an_agent_is_created_changed_and_found(api: Api, signed_in: Dashboard) -> None:
    page = await signed_in.open("/agents")
    await expect(page.get_by_text("No agents yet.")).to_be_visible()
    await page.get_by_role("button", name="New agent").click()
    dialog = page.get_by_role("dialog")
    await signed_in.assert_accessible(page)
    await dialog.get_by_label("Name").fill("Harbour office")
    await dialog.get_by_role("button", name="New agent").click()
    await expect(page.get_by_role("heading", name="Harbour office")).to_be_visible()
    await page.get_by_label("System prompt").fill("You answer the telephone.")
    await page.get_by_label("Speed").fill("1.2")
    await expect(page.get_by_text("2 unsaved changes")).to_be_visible()
    async with page.expect_request("**/v1/agents/*") as saving:
        await page.get_by_role("button", name="Save").click()
    assert (await saving.value).post_data_json == {"systemPrompt": "You answer the telephone.", "voiceSpeed": 1.2}
    await expect(page.get_by_text("Saved as version 2.")).to_be_visible()
    await page.get_by_role("link", name="All agents").click()
    await page.get_by_label("Search by name").fill("harb")
    await expect(page).to_have_url(f"{address(api)}/agents?search=harb")
    await expect(page.get_by_role("row")).to_have_count(2)
    await signed_in.assert_accessible(page)
    await page.get_by_label("Search by name").fill("lighthouse")
    await expect(page.get_by_text("No agent's name contains “lighthouse”.")).to_be_visible()


async def test_every_field_of_the_api_has_a_control_with_its_bounds_and_default(api: Api, signed_in: Dashboard) -> None:
    page, _ = await open_agent(api, signed_in, firstSpeaker="agent")
    properties = json.loads(openapi_json())["components"]["schemas"]["AgentCreate"]["properties"]
    for name, schema in properties.items():
        control = page.locator(f'[name="{name}"], [data-field="{name}"]').first
        await expect(control, name).to_be_attached()
        if schema.get("type") in ("integer", "number"):
            bounds = [await control.get_attribute(bound) for bound in ("min", "max")]
            assert [float(bound or "nan") for bound in bounds] == [schema["minimum"], schema["maximum"]], name
            described = page.locator(f"#{(await control.get_attribute('aria-describedby') or '').split()[0]}")
            for figure in (schema["minimum"], schema["maximum"], schema["default"]):
                await expect(described, name).to_contain_text(f"{figure:,}")
        elif "maxLength" in schema and name not in ("languageHint", "postCallWebhookSecret"):
            assert await control.get_attribute("maxlength") == str(schema["maxLength"]), name


async def test_what_the_server_refuses_stands_at_its_field(api: Api, signed_in: Dashboard) -> None:
    page, agent_id = await open_agent(api, signed_in)
    await page.get_by_label("Speed").fill("9")
    await page.get_by_role("button", name="Add a target").click()
    target = page.get_by_role("group", name="Target 1")
    await target.get_by_label("Name").fill("Harbour master")
    await target.get_by_label("Number").fill("seven")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_label("Speed")).to_have_attribute("aria-invalid", "true")
    await expect(target.get_by_label("Number")).to_have_attribute("aria-invalid", "true")
    await expect(target.get_by_label("Name")).to_have_attribute("aria-invalid", "false")
    await expect(page.get_by_role("alert")).to_contain_text("Speed:")
    await expect(page.get_by_role("alert")).to_contain_text("Targets of transfers:")
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name="Discard changes").click()
    await expect(page.get_by_label("Speed")).to_have_value("1")
    assert (await stored(api, agent_id))["version"] == 1


async def test_lists_and_the_secret_are_saved(api: Api, signed_in: Dashboard) -> None:
    page, agent_id = await open_agent(api, signed_in)
    await page.get_by_role("button", name="Add a value").click()
    value = page.get_by_role("group", name="Value 1")
    await value.get_by_label("Name").fill("nights")
    await value.get_by_label("Type").select_option("number")
    await page.get_by_label("Webhook", exact=True).fill("https://office.example/calls")
    await page.get_by_label("Set a new secret").check()
    await page.get_by_label("New secret", exact=True).fill("quiet water")
    await page.get_by_label("The call was answered").check()
    await page.get_by_label("Only these:").check()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("A secret is set.")).to_be_visible()
    saved = await stored(api, agent_id)
    assert saved["postCallExtractionSchema"] == [{"name": "nights", "description": "", "type": "number"}]
    assert saved["postCallWebhookEvents"] == ["call.answered", "call.completed"]
    assert (saved["toolIds"], saved["postCallWebhookSecretSet"]) == ([], True)
    await page.get_by_label("Remove the secret").check()
    await page.get_by_role("button", name="Remove “nights”").click()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("No secret is set")).to_be_visible()
    assert (await stored(api, agent_id))["postCallExtractionSchema"] == []


async def test_variables_of_a_prompt_are_explained_and_previewed(api: Api, signed_in: Dashboard) -> None:
    page, _ = await open_agent(api, signed_in, systemPrompt="Greet {{ guest }} at {{customer_number}}.")
    await page.get_by_text("Variables of this text (2)").click()
    await expect(page.get_by_role("listitem").filter(has_text="{{customer_number}}")).to_contain_text("other party")
    await expect(page.get_by_role("listitem").filter(has_text="{{guest}}")).to_contain_text("To be set by the call")
    await page.get_by_label("Value of guest").fill(HOSTILE)
    await expect(page.locator("pre")).to_have_text(f"Greet {HOSTILE} at .")
    await page.get_by_label("System prompt").fill("Greet {{first-name}}.")
    await expect(page.get_by_text("{{first-name}} is refused")).to_be_visible()


async def test_the_greeting_is_spoken_by_the_chosen_voice_with_the_values_of_its_variables(
    api: Api, signed_in: Dashboard
) -> None:
    greeting = "Good day, {{caller_name}}, this is the harbour office."
    page, _ = await open_agent(api, signed_in, agentGreeting=greeting, voiceSpeed=1.2)
    listen = page.get_by_role("button", name="Listen to the greeting")
    await expect(listen).to_be_disabled()
    await expect(page.get_by_text("To hear it, choose a voice below")).to_be_visible()
    await page.get_by_label("Voice", exact=True).select_option(index=1)
    greeting_notes = page.locator(".variable-text").filter(has=page.get_by_label("Greeting", exact=True))
    await greeting_notes.locator("summary").click()
    await greeting_notes.get_by_label("caller_name").fill("Ada & Bob")
    async with page.expect_request("**/preview?**") as asked:
        await listen.click()
    query = parse_qs(urlsplit((await asked.value).url).query)
    assert query == {"text": ["Good day, Ada & Bob, this is the harbour office."], "speed": ["1.2"]}
    await expect(page.get_by_text("The voice cannot speak now.")).to_be_visible()


async def test_leaving_with_unsaved_changes_asks_first(api: Api, signed_in: Dashboard) -> None:
    page = await signed_in.open("/agents")
    agent = await api.create("/agents", {"name": "Reception"})
    await page.reload()
    await page.get_by_role("link", name="Reception").click()
    await page.get_by_label("Speed").fill("1.2")
    asked: list[str] = []
    answers = [False, False, True]

    async def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        await (dialog.accept() if answers.pop(0) else dialog.dismiss())

    page.on("dialog", answer)
    await page.get_by_role("link", name="Calls", exact=True).click()
    await page.evaluate("history.back()")
    await expect(page).to_have_url(f"{address(api)}/agents/{agent['id']}")
    await expect(page.get_by_label("Speed")).to_have_value("1.2")
    await page.evaluate("history.back()")
    await expect(page).to_have_url(f"{address(api)}/agents")
    assert asked == ["confirm"] * 3


async def test_an_agent_is_duplicated_and_deleted(api: Api, signed_in: Dashboard) -> None:
    page, agent_id = await open_agent(api, signed_in, name=HOSTILE, systemPrompt="Be brief.", voiceSpeed=1.2)
    number = {"number": "+4940123456", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1", "agentId": agent_id}
    await api.create("/phone-numbers", {"provider": "sip", "sipPort": 5070, **number})
    await page.get_by_role("button", name="Duplicate").click()
    await page.get_by_label("Name of the copy").fill("Night desk")
    await page.get_by_role("dialog").get_by_role("button", name="Duplicate").click()
    await expect(page.get_by_role("heading", name="Night desk")).to_be_visible()
    copy = await stored(api, page.url.rsplit("/", 1)[1])
    assert (copy["systemPrompt"], copy["voiceSpeed"]) == ("Be brief.", 1.2)
    await page.goto(f"{address(api)}/agents/{agent_id}")
    await page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(f"Delete the agent “{HOSTILE}”?")
    await expect(dialog).to_contain_text("These numbers will have no agent: +4940123456.")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="Night desk")).to_be_visible()
    await expect(page.get_by_role("row")).to_have_count(2)
    assert (await api("GET", f"/agents/{agent_id}"))[0] == 404


async def test_a_viewer_reads_an_agent_and_changes_nothing(api: Api) -> None:
    targets = [{"name": HOSTILE, "description": HOSTILE, "number": "100", "mode": "cold"}]
    agent = await api.create("/agents", {"name": HOSTILE, "systemPrompt": HOSTILE[:-7], "transferTargets": targets})
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as viewer:
        page = await viewer.open("/agents")
        await expect(page.get_by_role("button", name="New agent")).to_have_count(0)
        await page.get_by_role("link", name=HOSTILE).click()
        await expect(page.get_by_text("Changing it needs the role editor.")).to_be_visible()
        for name in ("Save", "Delete", "Duplicate", "Add a target", f"Remove “{HOSTILE}”"):
            await expect(page.get_by_role("button", name=name)).to_have_count(0)
        controls = page.locator("form").locator("input, select, textarea")
        assert await controls.count() > 40
        await expect(page.locator("form").locator(":is(input, select, textarea):enabled")).to_have_count(0)
        assert await page.locator("img").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await viewer.assert_accessible(page)
        assert agent["version"] == 1


async def test_versions_are_compared_and_restored(api: Api, signed_in: Dashboard) -> None:
    prompt = "You answer the telephone.\nBe brief.\nSay goodbye."
    agent = await api.create("/agents", {"name": "Reception", "systemPrompt": prompt})
    await api(
        "PATCH", f"/agents/{agent['id']}", {"systemPrompt": prompt.replace("brief", HOSTILE[:-7]), "voiceSpeed": 1.2}
    )
    page = await signed_in.open(f"/agents/{agent['id']}?version=2")
    await expect(page.get_by_role("row").nth(1)).to_contain_text("System prompt, Speed")
    difference = page.get_by_role("region", name="Difference of version 1 and version 2")
    await expect(difference.locator(".lines-removed pre")).to_have_text(["Be brief.", "1"])
    await expect(difference.locator(".lines-added pre")).to_have_text([f"Be {HOSTILE[:-7]}.", "1.2"])
    assert await page.locator("img").count() == 0
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name="Restore version 1").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Restore version 1 of “Reception”?")
    await dialog.get_by_role("button", name="Restore version 1").click()
    await expect(page.get_by_text("Version 1 is restored as version 3.")).to_be_visible()
    await page.get_by_role("tab", name="Settings").click()
    await expect(page.get_by_label("System prompt")).to_have_value(prompt)
    assert (await stored(api, agent["id"]))["version"] == 3


async def test_without_https_the_page_says_how_this_device_gets_it(api: Api, signed_in: Dashboard) -> None:
    await signed_in.context.add_init_script("Object.defineProperty(window, 'isSecureContext', { value: false })")
    page, agent_id = await open_agent(api, signed_in)
    await page.get_by_role("tab", name="Try it").click()
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("no microphone without HTTPS")
    await page.get_by_text("How to open the dashboard over HTTPS").click()
    await expect(page.get_by_role("link", name="Download the authority's certificate")).to_be_visible()
    await expect(page.get_by_text("open https://127.0.0.1:8443")).to_be_visible()
    await signed_in.assert_accessible(page)
    assert (await api("GET", f"/calls?agentId={agent_id}"))[1]["data"] == []


async def test_an_agent_is_tried_as_it_is_saved(api: Api, signed_in: Dashboard) -> None:
    page, _ = await open_agent(api, signed_in)
    await page.get_by_label("Speed").fill("1.2")
    await page.get_by_role("tab", name="Try it").click()
    await expect(page.get_by_text("There are unsaved changes. A chat can try them")).to_be_visible()
    await expect(page.get_by_role("region", name="Test call")).to_be_visible()
    await page.get_by_role("tab", name="Settings").click()
    await expect(page.get_by_label("Speed")).to_have_value("1.2")
