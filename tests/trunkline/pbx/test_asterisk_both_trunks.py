"""One Asterisk with both kinds of trunk of docs/how-to/pbx/asterisk.md, which runs before the server does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.ports import free_port
from tests.trunkline.pbx.test_asterisk import PAGE, TESTS, call_outcome, configuration, pjsip_of
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import until

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]

KINDS = ("by address", "by registration")
QUALIFY = "pjsip qualify trunkline"
"""The command that the page names."""
OFTEN = """
[often]
type=endpoint
aors=often

[often]
type=aor
contact=sip:127.0.0.1:{sip_port}
qualify_frequency=1
"""
"""A second contact at the same server, which Asterisk qualifies every second."""
CALLED = re.compile(r'Executing \[41000011@from-trunkline:1\] Goto\("PJSIP/([\w-]+)-[0-9a-f]{8}"')


def both_trunks(sip_port: int) -> Asterisk:
    """Asterisk with every block of the page for both kinds, for a server at this port."""
    files = {
        "pjsip.conf": pjsip_of(f"127.0.0.1:{sip_port}", 0, *KINDS) + OFTEN,
        "extensions.conf": configuration("extensions.conf", *KINDS) + TESTS,
    }
    return Asterisk(files, sip_port=sip_port)


async def until_contact(asterisk: Asterisk, state: str, aor: str = "trunkline", timeout_s: float = 20) -> None:
    """Wait until the contact of this AOR has this state."""
    async with asyncio.timeout(timeout_s):
        shown = re.compile(rf"{aor}/sip:\S+ +\S+ +{state}\b")
        while not shown.search(await asterisk.cli("pjsip show contacts")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # its console reports no event


async def until_qualified(asterisk: Asterisk) -> None:
    """Give the page's command until the contact is available: on a busy machine an OPTIONS may time out after 3 s."""
    for _ in range(3):
        await asterisk.cli(QUALIFY)
        with suppress(TimeoutError):
            return await until_contact(asterisk, "Avail", timeout_s=10)
    raise TimeoutError("the contact has not become available")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asterisk_and_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Asterisk, LocalServer]]:
    """Asterisk, which has found that the server does not respond, and the server, which has started since."""
    sip_port = free_port()
    async with both_trunks(sip_port) as asterisk:
        await asterisk.cli(QUALIFY)
        await until_contact(asterisk, "Unavail")
        await until_contact(asterisk, "Unavail", "often")
        async with open_local_server(tmp_path_factory.mktemp("server"), sip={"port": sip_port}) as local_server:
            yield asterisk, local_server


async def test_both_kinds_of_trunk_take_calls_in_both_directions(
    asterisk_and_server: tuple[Asterisk, LocalServer],
) -> None:
    asterisk, local_server = asterisk_and_server
    client = local_server.client
    agent_id = await client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
    by_address = await client.number("711", agent_id, sipPort=asterisk.port)
    registered = await client.number(
        "712", agent_id, sipMode="registration", sipUsername="trunkline-reg", sipPassword="a-long-password",
        sipProxy=f"127.0.0.1:{asterisk.port}",
    )  # fmt: skip
    await local_server.log.event("trunk.registered")

    before = len(asterisk.output())
    await asterisk.cli("channel originate Local/711@phones extension talk@tests")
    await until(lambda: "Everyone is busy/congested at this time" in asterisk.output()[before:])
    for number_id in (by_address, registered):
        assert await call_outcome(local_server, number_id, "+41000011") == ("completed", "agent_ended")
    assert CALLED.findall(asterisk.output()[before:]) == ["trunkline", "trunkline-reg"]
    assert await number_called(local_server, asterisk, "700") == registered
    await until_contact(asterisk, "Unavail")

    assert f"`{QUALIFY}`" in PAGE.read_text()
    await until_qualified(asterisk)
    assert await number_called(local_server, asterisk, "711") == by_address


async def test_a_contact_is_available_again_after_the_next_qualify_at_the_latest(
    asterisk_and_server: tuple[Asterisk, LocalServer],
) -> None:
    """The page's time is the frequency that Asterisk loaded from its block, and no command is needed."""
    asterisk, local_server = asterisk_and_server
    await local_server.client.number("713", None, sipPort=asterisk.port)
    await until_contact(asterisk, "Avail", "often")
    loaded = re.search(r"qualify_frequency +: (\d+)", await asterisk.cli("pjsip show aor trunkline"))
    assert loaded is not None
    assert f"lasts at most {loaded[1]} s." in PAGE.read_text()


async def number_called(local_server: LocalServer, asterisk: Asterisk, extension: str) -> str:
    """Dial an extension of Asterisk, until the agent hangs up; returns the id of the phone number that was called."""
    since = local_server.log.mark()
    await asterisk.cli(f"channel originate Local/{extension}@phones extension talk@tests")
    call = await local_server.ended(await local_server.answered(since))
    assert call["endedReason"] == "agent_ended"
    return str(call["phoneNumberId"])
