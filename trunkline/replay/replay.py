"""`trunkline replay`: runs turn taking on a recorded call again, with the agent's current settings and with changed
ones.

It only reads, also while a server runs, and migrates no database.

The caller's audio is recorded when it leaves the jitter buffer, while turn taking counts from its arrival. The depth of
the buffer is not stored, but can be computed: compared with the timeline, the caller's speech is later in the recording
by more than the agent's answers are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from calls.session.agent_config import turn_settings
from config import logging as logs
from config.errors import NotFound
from config.settings import Settings
from media.audio_port import TICK_MS
from media.replay.recording_reader import RecordedCall, Ticks, agent_audible, audible_onsets, read_recording
from media.turn_taking.settings import TurnSettings
from models.loading import loader
from models.loading.catalogue import Catalogue
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls, recordings
from storage.calls.calls import Call
from storage.database.database import Database
from storage.database.read_only import read_only
from trunkline.replay.report import Column, Report, as_json, as_text
from trunkline.replay.runner import Replay, ReplayModels
from trunkline.replay.settings import with_assignments
from trunkline.replay.turn_comparison import ReplayOutcome, outcome_of_timeline, speech_end_offsets
from trunkline.wiring.remote_models import local_model_settings

MAX_ONSET_DISTANCE_MS: Final = 1000
"""The start of an answer in the timeline and an onset in the recording are matched if they are closer than this."""
MAX_JITTER_MS: Final = 400.0
"""Computed depths of the jitter buffer are limited to this."""

Jitter = NDArray[np.float64]


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
    def language(self) -> str | None:
        """The language of the agent's speech recognition, a BCP 47 tag."""
        return None if self.agent is None else self.agent.language_hint

    @property
    def first_message_uninterruptible(self) -> bool:
        """True if the agent speaks first, and its first message cannot be interrupted."""
        agent = self.agent
        return agent is not None and agent.first_speaker == "agent" and agent.first_message_uninterruptible


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
    return loader.load(settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second)


async def compare(case: ReplayCase, runs: Sequence[tuple[str, TurnSettings]], models: Catalogue) -> Report:
    """Replay the case with each of the settings, whose columns have these titles."""
    recording, replay_models = case.recording, ReplayModels(models.stt(case.language), models.eot, case.language)
    audible, answer_offset_ms = _agent_audible(case)

    async def run(settings: TurnSettings, jitter_ms: Jitter | None) -> ReplayOutcome:
        uninterruptible = case.first_message_uninterruptible
        return await Replay(
            recording,
            audible,
            settings,
            replay_models,
            jitter_ms=jitter_ms,
            first_message_uninterruptible=uninterruptible,
        ).run()

    stored, jitter_ms = outcome_of_timeline(case.timeline), np.zeros(recording.ticks)
    timeline_offset_ms = answer_offset_ms or 0.0
    if stored.turns:
        offsets = speech_end_offsets(stored, await run(case.settings, None))
        if answer_offset_ms is not None:
            jitter_ms = _jitter(offsets, answer_offset_ms, recording.ticks)
        elif offsets:
            timeline_offset_ms = median(offset_ms for _, offset_ms in offsets)
    columns = [Column(title, await run(settings, jitter_ms), settings) for title, settings in runs]
    if case.call is not None:
        columns.insert(0, Column("the call", stored.shifted(timeline_offset_ms)))
    call_id = None if case.call is None else case.call.id
    max_jitter_ms = round(float(jitter_ms.max()))
    return Report(call_id, recording.ticks * TICK_MS / 1000, recording.rate, max_jitter_ms, columns, _notes(case))


def _jitter(speech_end_offsets: Sequence[tuple[float, float]], answer_offset_ms: float, ticks: int) -> Jitter:
    """The depth of the jitter buffer at each tick, ms: at the ends of speech the difference of the two offsets,
    interpolated between them."""
    if not speech_end_offsets:
        return np.zeros(ticks)
    at_ms, offset_ms = np.array(sorted(speech_end_offsets)).T
    depth_ms = np.clip(offset_ms - answer_offset_ms, 0.0, MAX_JITTER_MS)
    interpolated: Jitter = np.interp(np.arange(ticks) * TICK_MS, at_ms, depth_ms)
    return interpolated


def _agent_audible(case: ReplayCase) -> tuple[Ticks, float | None]:
    """The ticks in which the agent is audible in the recording, with the pauses inside of its stored answers; and by
    how many ms the answers are later in the recording than in the timeline (None if none can be matched)."""
    audible = agent_audible(case.recording)
    spans = [
        (turn["agent_start_ms"], turn["agent_end_ms"])
        for turn in case.timeline
        if turn["agent_start_ms"] is not None and turn["agent_end_ms"] is not None
    ]
    onsets_ms = (audible_onsets(audible) + 1) * float(TICK_MS)  # audio has the time of its tick's end
    offsets = [float(min(onsets_ms - start, key=abs)) for start, _ in spans if len(onsets_ms)]
    offsets = [offset for offset in offsets if abs(offset) < MAX_ONSET_DISTANCE_MS]
    if not offsets:
        return audible, None
    offset_ms = median(offsets)
    for span in spans:
        first, last = (max(round((at + offset_ms) / TICK_MS) - 1, 0) for at in span)
        audible[first:last] = True
    return audible, offset_ms


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
    if recording is None:
        recording = await asyncio.to_thread(_recording_path, settings, call)
    return ReplayCase(await asyncio.to_thread(read_recording, recording), call, agent)


async def _read_call(settings: Settings, call_id: str) -> tuple[Call, Agent | None]:
    """The call, and its agent as it is now; None if the agent was deleted."""

    def read(conn: sa.Connection) -> tuple[Call, Agent | None]:
        call = calls.get_by_id(conn, call_id.lower())
        if call is None:
            raise NotFound(f"there is no call {call_id}")
        return call, None if call.agent_id is None else agents.get(conn, call.organization_id, call.agent_id)

    path = Database(settings.database_url).path
    if not await asyncio.to_thread(path.exists):
        raise NotFound(f"there is no call {call_id}: there is no database {path}")
    return await asyncio.to_thread(read_only, path, read)


def _recording_path(settings: Settings, call: Call) -> Path:
    """Raises `NotFound` if the call is live, or has no recording."""
    if call.ended_at is None:
        raise NotFound(f"call {call.id} is live: it can be replayed after its end")
    path = recordings.path_of(settings.data_dir, call.id, call.created_at)
    if not call.recorded:
        raise NotFound(f"call {call.id} has no recording")
    if not path.exists():
        raise NotFound(f"the recording of call {call.id} was deleted: {path} does not exist")
    return path
