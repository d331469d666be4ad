"""`trunkline replay` of a call over SIP: the replayed turns compared with those of the call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pytest
import pytest_asyncio

from api.services import ReplayOrder
from config.errors import Conflict, Unavailable
from config.settings import Settings
from media.turn_taking.settings import TurnSettings
from models.loading.catalogue import Catalogue
from storage.calls import recordings
from tests.fakes.fake_models import ready_models
from tests.media.speech import silence, speech
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import calling
from trunkline.replay.replay import ReplayCase, compare, find_case
from trunkline.replay.replayer import CallReplayer
from trunkline.replay.report import Report, as_json, as_text
from trunkline.replay.settings import with_assignments
from trunkline.replay.turn_comparison import ReplayOutcome

pytestmark = pytest.mark.asyncio(loop_scope="module")
DELAY_MS = 300
"""`turnEndpointDelay` of the agent: longer than the jitter buffer's depth on a busy machine."""
HESITATION_MS = 600
"""The caller's pause in the middle of the last turn."""
CALLER_VOICE = "rms"
"""Another voice than the agent's: the same synthetic voice can pass for its echo."""


@dataclass(frozen=True)
class RecordedConversation:
    """An ended call, models to replay it with, and its server."""

    case: ReplayCase
    models: Catalogue
    server: LocalServer

    @property
    def call_id(self) -> str:
        assert self.case.call is not None
        return self.case.call.id

    async def report(self, *assignments: str) -> Report:
        """The report with the agent's settings, and with changed ones."""
        runs = [("as set now", self.case.settings)]
        if assignments:
            runs.append((" ".join(assignments), with_assignments(self.case.settings, assignments)))
        return await compare(self.case, runs, self.models)

    async def replayed(self, *assignments: str) -> ReplayOutcome:
        """The outcome with the last of the settings."""
        return (await self.report(*assignments)).columns[-1].outcome


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RecordedConversation]:
    """A caller with three turns, who hesitates in the last one, so that it ends too early."""
    folder = tmp_path_factory.mktemp("server")
    opening, monday, thanks, all_said = (
        speech(text, voice=CALLER_VOICE)
        for text in ("when do you open", "are you open on monday", "no thank you", "that is all")
    )
    hesitating = np.concatenate([thanks, silence(HESITATION_MS), all_said])
    async with open_local_server(folder) as local_server:
        number = await local_server.number_with_agent(
            "We are open from nine to five.",
            turnEndpointDelay=DELAY_MS,
            ultravadEotThreshold=None,
            firstSpeaker="agent",
            agentGreetingEnabled=True,
            agentGreeting="Good morning.",
        )
        since = local_server.log.mark()
        async with calling(local_server.target, number) as call:
            call_id = await local_server.answered(since)
            await local_server.log.event("turn.agent", call_id=call_id)
            for answers, said in enumerate((opening, monday, hesitating), 2):
                await call.hears(50)
                call.say(said)
                await call.has_said()
                await local_server.log.events_of("turn.agent", answers, call_id=call_id)
            await call.hears(120)
            await call.hang_up()
        await local_server.ended(call_id)
        models = ready_models(Settings())
        yield RecordedConversation(await find_case(Settings(data_dir=folder), call_id), models, local_server)
        models.close()


async def test_the_same_settings_give_the_turns_of_the_call(conversation: RecordedConversation) -> None:
    stored, replayed = (column.outcome for column in (await conversation.report()).columns)
    assert len(stored.turns) == len(replayed.turns) == len(conversation.case.timeline) - 1
    for before, after in zip(stored.turns, replayed.turns, strict=True):
        assert after.end_ms == pytest.approx(before.end_ms, abs=40)
        assert after.answer_ms == pytest.approx(before.answer_ms, abs=40)
        assert (after.ended_by, before.ended_by) == ("delay", "delay")
    late = [before.decided_ms - after.decided_ms for before, after in zip(stored.turns, replayed.turns, strict=True)]
    assert min(late) >= -120, "a busy machine decides late, never early"
    assert abs(median(late)) <= 40
    assert stored.interruptions == replayed.interruptions


async def test_a_longer_delay_ends_turns_later_or_joins_them(conversation: RecordedConversation) -> None:
    before, after = await conversation.replayed(), await conversation.replayed("turnEndpointDelay=1200")
    for was, turn in zip(before.turns[:2], after.turns[:2], strict=True):
        assert turn.end_ms == was.end_ms
        assert turn.decided_ms - was.decided_ms == pytest.approx(900, abs=100)
    assert len(after.turns) == len(before.turns) - 1, "the hesitation is none any more"
    assert after.turns[-1].end_ms == before.turns[-1].end_ms
    assert (before.early_ends, after.early_ends) == (1, 0)
    assert [turn.ended_early for turn in before.turns] == [False, False, True, False]


async def test_a_higher_threshold_detects_fewer_turns(conversation: RecordedConversation) -> None:
    before, after = await conversation.replayed(), await conversation.replayed("frameActivationThreshold=1")
    assert len(after.turns) < len(before.turns), "voice activity is never that sure for long"


async def test_a_replay_is_deterministic(conversation: RecordedConversation) -> None:
    assert as_json(await conversation.report("turnEndpointDelay=500")) == as_json(
        await conversation.report("turnEndpointDelay=500")
    )


async def test_a_dropped_short_turn_is_counted_with_its_reason(conversation: RecordedConversation) -> None:
    before, after = await conversation.replayed(), await conversation.replayed("minTurnDuration=2000")
    assert before.dropped is not None and after.dropped is not None
    assert before.dropped.get("short", 0) == 0
    assert after.dropped["short"] >= 2
    assert len(after.turns) <= len(before.turns) - 2, "what interrupts the agent counts, however short it is"


async def test_the_text_report_has_the_turns_side_by_side(conversation: RecordedConversation) -> None:
    lines = as_text(await conversation.report("turnEndpointDelay=1200")).splitlines()
    assert lines[0].startswith(f"call {conversation.case.call.id if conversation.case.call else None}: ")
    assert [title in lines[2] for title in ("the call", "as set now", "turnEndpointDelay=1200")] == [True] * 3
    rows = [line for line in lines if line[:4].strip().isdigit()]
    assert len(rows) == len(conversation.case.timeline) - 1
    assert [row.count("delay") for row in rows] == [3, 3, 3, 2]
    assert rows[2].count("!") == 1
    (counted,) = [line.split() for line in lines if line.startswith("turns")]
    assert counted == ["turns", "4", "4", "3"]
    assert all(len(line) <= 140 for line in lines)


async def test_the_json_report_has_the_apis_names(conversation: RecordedConversation) -> None:
    found = json.loads(as_json(await conversation.report("turnEndpointDelay=1200", "ultravadEotThreshold=null")))
    call, now, other = found["timelines"]
    assert call["settings"] is None
    assert (now["settings"]["turnEndpointDelay"], other["settings"]["turnEndpointDelay"]) == (DELAY_MS, 1200)
    first = call["turns"][0]
    assert first["waitMs"] == pytest.approx(first["turnEndMs"] - first["speechEndMs"], abs=1)
    assert first["responseGapMs"] == pytest.approx(conversation.case.timeline[1]["response_gap_ms"], abs=1)
    assert now["turns"][0]["responseGapMs"] == pytest.approx(first["responseGapMs"], abs=80), "as it was recorded"
    assert (call["endedTooEarly"], now["endedTooEarly"], other["endedTooEarly"]) == (None, 1, 0)


async def test_a_changed_or_deleted_agent_is_noted(conversation: RecordedConversation) -> None:
    assert (await conversation.report()).notes == []
    agent, call = conversation.case.agent, conversation.case.call
    assert agent is not None and call is not None
    later = replace(agent, updated_at=call.updated_at)
    for case, note in (
        (replace(conversation.case, agent=later), "the agent was changed after this call"),
        (replace(conversation.case, agent=None), "the agent was deleted"),
        (replace(conversation.case, agent=None, call=None), "a recording without a call"),
    ):
        (told,) = (await replace(conversation, case=case).report()).notes
        assert told.startswith(note)


async def test_the_api_compares_the_settings_of_the_calls_version_with_others(
    conversation: RecordedConversation,
) -> None:
    client, agent = conversation.server.client, conversation.case.agent
    assert agent is not None
    await client.v1("PATCH", f"agents/{agent.id}", {"turnEndpointDelay": 700})
    found = await client.v1("POST", f"calls/{conversation.call_id}/replay", {"turnEndpointDelay": 1200})
    assert (found["callId"], found["settingsFrom"]) == (conversation.call_id, "version")
    assert found["settings"]["before"]["turnEndpointDelay"] == DELAY_MS, "not the present one"
    assert found["settings"]["after"] == {**found["settings"]["before"], "turnEndpointDelay": 1200}
    assert [row["call"] is not None for row in found["turns"]] == [True] * 4
    for row in found["turns"][:2]:
        assert row["turnEndMovedMs"] == pytest.approx(900, abs=100)
        assert row["before"]["responseGapMs"] == pytest.approx(row["call"]["responseGapMs"], abs=80)
        assert row["after"]["responseGapMs"] == pytest.approx(row["before"]["responseGapMs"] + 900, abs=120)
    assert [row["before"]["endedTooEarly"] for row in found["turns"]] == [False, False, True, False]
    assert (found["turns"][3]["after"], found["turns"][3]["turnEndMovedMs"]) == (None, None), "one turn with the third"
    call, before, after = (found["totals"][each] for each in ("call", "before", "after"))
    assert (call["turns"], before["turns"], after["turns"]) == (4, 4, 3)
    assert (call["endedTooEarly"], before["endedTooEarly"], after["endedTooEarly"]) == (None, 1, 0)


async def test_a_client_that_leaves_ends_its_replay_and_no_other_runs_meanwhile(
    conversation: RecordedConversation,
) -> None:
    client, log, path = conversation.server.client, conversation.server.log, f"calls/{conversation.call_id}/replay"
    since = log.mark()
    request = asyncio.create_task(client.v1("POST", path, {}))
    await log.event("call.replay_started", since=since)
    assert await client.status("POST", path, {}) == 429
    request.cancel()
    await log.event("call.replay_stopped", since=since)
    assert (await client.v1("POST", path, {}))["totals"]["after"]["turns"] == 4


async def test_calls_of_two_organizations_are_not_replayed_at_once(conversation: RecordedConversation) -> None:
    call = conversation.case.call
    assert call is not None
    path = recordings.path_of(conversation.server.server.settings.data_dir, call.id, call.created_at)
    order = ReplayOrder("one", call.id, path, (), None, False, "defaults", TurnSettings(), TurnSettings())
    replayer, since = CallReplayer(Settings()), conversation.server.log.mark()
    running = asyncio.create_task(replayer.replay(order))
    await conversation.server.log.event("call.replay_started", since=since)
    with pytest.raises(Unavailable, match="Another call is being replayed"):
        await replayer.replay(replace(order, organization_id="other"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    damaged = path.with_name("damaged.wav")
    await asyncio.to_thread(damaged.write_bytes, b"RIFF")
    with pytest.raises(Conflict, match="cannot be read"):
        await replayer.replay(replace(order, organization_id="other", recording=damaged))
