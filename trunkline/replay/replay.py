"""`trunkline replay`: runs turn taking on a recorded call again, with the agent's current settings and with changed
ones.

It only reads, also while a server runs, and migrates no database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from calls.session.agent_config import has_protected_opening, turn_settings
from config import logging as logs
from config.errors import NotFound
from config.settings import Settings
from media.audio_port import TICK_MS
from media.replay.recording_reader import RecordedCall, read_recording
from media.turn_taking.settings import TurnSettings
from models.loading import loader
from models.loading.catalogue import Catalogue
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.database import Database
from storage.database.read_only import read_only
from trunkline.replay.comparison import ReplayInput
from trunkline.replay.comparison import compare as replay_with_each
from trunkline.replay.report import Column, Report, as_json, as_text
from trunkline.replay.settings import with_assignments
from trunkline.wiring.models.remote_models import local_model_settings
from trunkline.wiring.storage.recordings import open_recordings


@dataclass(frozen=True)
class ReplayCase:
    """What is replayed: a recording, its call (None for a recording file without a call), and the call's agent (None if
    it is unknown or deleted: then defaults are used)."""

    recording: RecordedCall
    call: Call | None = None
    agent: Agent | None = None

    @property
    def timeline(self) -> Sequence[dict[str, Any]]:
        """The stored turns of the call."""
        return [each for each in self.call.timeline if "turn" in each] if self.call is not None else ()

    @property
    def settings(self) -> TurnSettings:
        """The current turn-taking settings of the agent."""
        return TurnSettings() if self.agent is None else turn_settings(self.agent)

    @property
    def input(self) -> ReplayInput:
        """The recording with what is known of its call."""
        agent = self.agent
        language = None if agent is None else agent.language_hint
        return ReplayInput(
            self.recording, self.timeline, self.settings, language, agent is not None and has_protected_opening(agent)
        )


async def replay(
    settings: Settings,
    call_id: str | None,
    assignments: Sequence[str],
    *,
    recording: Path | None = None,
    machine_readable: bool = False,
) -> int:
    """Replay a call, and print its turns with each of the settings. Raises `TrunklineError` for a call that cannot be
    replayed and for an invalid setting."""
    logs.configure("warning", settings.log_format)  # the output is the report
    with_assignments(TurnSettings(), assignments)  # invalid ones are reported before the models are loaded
    case = await find_case(settings, call_id, recording)
    runs = [("as set now" if case.agent else "defaults", case.settings)]
    if assignments:
        runs.append((" ".join(assignments), with_assignments(case.settings, assignments)))
    models = await asyncio.to_thread(_load_models, await local_model_settings(settings))
    try:
        report = await compare(case, runs, models)
    finally:
        await asyncio.to_thread(models.close)
    print(as_json(report) if machine_readable else as_text(report))
    return 0


def _load_models(settings: Settings) -> Catalogue:
    chosen = settings.models
    return loader.load_turn_models(settings.models_dir, chosen.stt, chosen.eot, chosen.stt_second)


async def compare(case: ReplayCase, runs: Sequence[tuple[str, TurnSettings]], models: Catalogue) -> Report:
    """Replay the case with each of the settings, whose columns have these titles."""
    recording = case.recording
    found = await replay_with_each(case.input, [settings for _, settings in runs], models)
    columns = [
        Column(title, outcome, settings) for (title, settings), outcome in zip(runs, found.outcomes, strict=True)
    ]
    if case.call is not None:
        columns.insert(0, Column("the call", found.stored))
    call_id = None if case.call is None else case.call.id
    seconds = recording.ticks * TICK_MS / 1000
    return Report(call_id, seconds, recording.rate, found.jitter_ms, columns, _notes(case))


def _notes(case: ReplayCase) -> list[str]:
    """Reasons why the agent's current settings may not be those of the call."""
    notes = []
    if case.call is None:
        notes.append("a recording without a call: the settings start from the defaults")
    elif case.agent is None:
        notes.append("the agent was deleted: the settings start from the defaults")
    elif case.call.started_at is None or case.agent.updated_at > case.call.started_at:
        notes.append("the agent was changed after this call: it may have had other settings then")
    return notes


async def find_case(settings: Settings, call_id: str | None, recording: Path | None = None) -> ReplayCase:
    """Returns the call with its recording, or with `recording` instead of it. Raises `NotFound`, `InvalidRecording`."""
    if call_id is None:
        if recording is None:
            raise NotFound("name a call, or a file with --recording")
        return ReplayCase(await asyncio.to_thread(read_recording, recording))
    call, agent = await _read_call(settings, call_id)
    if recording is not None:
        return ReplayCase(await asyncio.to_thread(read_recording, recording), call, agent)
    return ReplayCase(await _read_recording_of(settings, call), call, agent)


async def _read_call(settings: Settings, call_id: str) -> tuple[Call, Agent | None]:
    """The call, and its agent as it is now; None if the agent was deleted."""

    def read(conn: sa.Connection) -> tuple[Call, Agent | None]:
        call = calls.get_by_id(conn, call_id.lower())
        if call is None:
            raise NotFound(f"there is no call {call_id}")
        return call, None if call.agent_id is None else agents.get(conn, call.organization_id, call.agent_id)

    database = Database(settings.database_url)
    if database.is_sqlite and not await asyncio.to_thread(database.path.exists):
        raise NotFound(f"there is no call {call_id}: there is no database {database.path}")
    return await asyncio.to_thread(read_only, settings.database_url, read)


async def _read_recording_of(settings: Settings, call: Call) -> RecordedCall:
    """Raises `NotFound` if the call is live, or has no recording; `StoreUnavailable`, `InvalidRecording`."""
    if call.ended_at is None:
        raise NotFound(f"call {call.id} is live: it can be replayed after its end")
    if not call.recorded:
        raise NotFound(f"call {call.id} has no recording")
    files = await open_recordings(settings, reads_only=True)
    async with files.as_file(call) as path:
        if path is None:
            raise NotFound(f"the recording of call {call.id} was deleted: {files.path_of(call)} does not exist")
        return await asyncio.to_thread(read_recording, path)
