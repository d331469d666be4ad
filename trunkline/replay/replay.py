"""`trunkline replay`: a recorded call once more, with the agent's settings as they are now and with others beside them.

It only reads, and works beside a running server: no file of an older version is brought up to date.

The caller's sound is recorded when the jitter buffer lets it go; turn taking counts from when it arrived. How deep the
buffer was is not stored, but it shows: the recording has the agent's answers and the caller's speech by different times
later than the timeline.
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
from media.turns.settings import TurnSettings
from models.loading import loader
from models.loading.catalogue import Catalogue
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls, recordings
from storage.calls.calls import Call
from storage.database.database import Database
from storage.database.read_only import read_only as look_into
from trunkline.replay.report import Column, Report, as_json, as_text
from trunkline.replay.runner import Replay, ReplayModels
from trunkline.replay.settings import changed
from trunkline.replay.turn_comparison import ReplayOutcome, apart, of_stored
from trunkline.wiring.remote_models import without_remote_models

ONSET_NEAR_MS: Final = 1000
"""A stored beginning of an answer and one in the recording this near to each other are the same."""
MOST_JITTER_MS: Final = 400.0
"""The jitter buffer is not believed to have been deeper."""

Jitter = NDArray[np.float64]


@dataclass(frozen=True)
class ReplayCase:
    """What is to be replayed; `call` None: a recording alone. `agent` None: it is not known, defaults stand in."""

    sound: RecordedCall
    call: Call | None = None
    agent: Agent | None = None

    @property
    def timeline(self) -> Sequence[dict[str, Any]]:
        """That of the call, as it was stored."""
        return self.call.timeline if self.call is not None else ()

    @property
    def settings(self) -> TurnSettings:
        """Those that the agent has now."""
        return TurnSettings() if self.agent is None else turn_settings(self.agent)

    @property
    def language(self) -> str | None:
        """What the agent listens for, a BCP 47 tag."""
        return None if self.agent is None else self.agent.language_hint

    @property
    def protected(self) -> bool:
        """Whether the agent's first message cannot be interrupted."""
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
    """Print the timelines. Raises `TrunklineError` for what cannot be replayed and for a setting that cannot be."""
    logs.configure("warning", settings.log_format)  # the tables are what is asked for
    changed(TurnSettings(), assignments)  # a mistake is told before anything takes time
    case = await find(settings, call_id, recording)
    runs = [("as set now" if case.agent else "defaults", case.settings)]
    if assignments:
        runs.append((" ".join(assignments), changed(case.settings, assignments)))
    models = await asyncio.to_thread(_load_models, await without_remote_models(settings))
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
    sound, hearing = case.sound, ReplayModels(models.stt(case.language), models.eot, case.language)
    audible, answers_apart = _audible(case)

    async def replayed(settings: TurnSettings, jitter_ms: Jitter | None) -> ReplayOutcome:
        run = Replay(sound, audible, settings, hearing, jitter_ms=jitter_ms, protected=case.protected)
        return await run.run()

    stored, jitter_ms, moved_ms = of_stored(case.timeline), np.zeros(sound.ticks), answers_apart or 0.0
    if stored.turns:
        speech_apart = apart(stored, await replayed(case.settings, None))
        if answers_apart is not None:
            jitter_ms = _jitter(speech_apart, answers_apart, sound.ticks)
        elif speech_apart:
            moved_ms = median(late for _, late in speech_apart)
    columns = [Column(title, await replayed(settings, jitter_ms), settings) for title, settings in runs]
    if case.call is not None:
        columns.insert(0, Column("the call", stored.moved(moved_ms)))
    call_id = None if case.call is None else case.call.id
    deepest = round(float(jitter_ms.max()))
    return Report(call_id, sound.ticks * TICK_MS / 1000, sound.rate, deepest, columns, _notes(case))


def _jitter(speech_apart: Sequence[tuple[float, float]], answers_apart: float, ticks: int) -> Jitter:
    """How deep the jitter buffer was in each tick, ms: what the ends of speech show, and between them on a line."""
    if not speech_apart:
        return np.zeros(ticks)
    at, late = np.array(sorted(speech_apart)).T
    depth = np.clip(late - answers_apart, 0.0, MOST_JITTER_MS)
    between: Jitter = np.interp(np.arange(ticks) * TICK_MS, at, depth)
    return between


def _audible(case: ReplayCase) -> tuple[Ticks, float | None]:
    """When the agent was audible: while it is heard, and from the beginning to the end of each stored answer, whose
    pauses belong to it. With that, how much later the recording has the answers than the timeline, ms."""
    sounding = agent_audible(case.sound)
    spans = [
        (turn["agent_start_ms"], turn["agent_end_ms"])
        for turn in case.timeline
        if turn["agent_start_ms"] is not None and turn["agent_end_ms"] is not None
    ]
    began = (audible_onsets(sounding) + 1) * float(TICK_MS)  # a tick's sound has its time when the tick is over
    near = [float(min(began - start, key=abs)) for start, _ in spans if len(began)]
    near = [each for each in near if abs(each) < ONSET_NEAR_MS]
    if not near:
        return sounding, None
    apart = median(near)
    for span in spans:
        first, last = (max(round((at + apart) / TICK_MS) - 1, 0) for at in span)
        sounding[first:last] = True
    return sounding, apart


def _notes(case: ReplayCase) -> list[str]:
    """What the reader should know of this case."""
    notes = []
    if case.call is None:
        notes.append("a recording alone: the settings start from the defaults")
    elif case.agent is None:
        notes.append("the agent was deleted: the settings start from the defaults")
    elif case.call.started_at is None or case.agent.updated_at > case.call.started_at:
        notes.append("the agent was changed after this call: it may have had other settings then")
    return notes


async def find(settings: Settings, call_id: str | None, recording: Path | None = None) -> ReplayCase:
    """What is asked for, `recording` in the place of the call's own. Raises `NotFound`, `InvalidRecording`."""
    if call_id is None:
        if recording is None:
            raise NotFound("name a call, or a file with --recording")
        return ReplayCase(await asyncio.to_thread(read_recording, recording))
    call, agent = await _stored(settings, call_id)
    if recording is None:
        recording = await asyncio.to_thread(_recording_of, settings, call)
    return ReplayCase(await asyncio.to_thread(read_recording, recording), call, agent)


async def _stored(settings: Settings, call_id: str) -> tuple[Call, Agent | None]:
    """The call, and its agent as it is now, unless it was deleted."""

    def look(conn: sa.Connection) -> tuple[Call, Agent | None]:
        call = calls.get_by_id(conn, call_id.lower())
        if call is None:
            raise NotFound(f"there is no call {call_id}")
        return call, None if call.agent_id is None else agents.get(conn, call.organization_id, call.agent_id)

    path = Database(settings.database_url).path
    if not await asyncio.to_thread(path.exists):
        raise NotFound(f"there is no call {call_id}: there is no database {path}")
    return await asyncio.to_thread(look_into, path, look)


def _recording_of(settings: Settings, call: Call) -> Path:
    if call.ended_at is None:
        raise NotFound(f"call {call.id} goes on: it can be replayed when it has ended")
    path = recordings.path_of(settings.data_dir, call.id, call.created_at)
    if not call.recorded:
        raise NotFound(f"call {call.id} has no recording")
    if not path.exists():
        raise NotFound(f"the recording of call {call.id} was deleted: {path} does not exist")
    return path
