"""Replays a recording with several settings, and puts the call's stored turns on the recording's clock.

The caller's audio is recorded when it leaves the jitter buffer, while turn taking counts from its arrival. The depth of
the buffer is not stored, but can be computed: compared with the timeline, the caller's speech is later in the recording
by more than the agent's answers are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import TICK_MS
from media.replay.recording_reader import RecordedCall, Ticks, agent_audible, audible_onsets
from media.turn_taking.settings import TurnSettings
from models.loading.catalogue import Catalogue
from trunkline.replay.runner import Replay, ReplayModels
from trunkline.replay.turn_comparison import ReplayOutcome, outcome_of_timeline, speech_end_offsets

MAX_ONSET_DISTANCE_MS: Final = 1000
"""The start of an answer in the timeline and an onset in the recording are matched if they are closer than this."""
MAX_JITTER_MS: Final = 400.0
"""Computed depths of the jitter buffer are limited to this."""

Jitter = NDArray[np.float64]


@dataclass(frozen=True)
class ReplayInput:
    """What is replayed: a recording, and the stored turns of its call (none for a recording alone). `settings` are
    those of the call, `language` that of its speech recognition, a BCP 47 tag."""

    recording: RecordedCall
    timeline: Sequence[Mapping[str, Any]] = ()
    settings: TurnSettings = field(default_factory=TurnSettings)
    language: str | None = None
    first_message_uninterruptible: bool = False


@dataclass(frozen=True)
class Comparison:
    """The call's stored turns on the recording's clock, and the outcome of each replay. `jitter_ms` is the largest
    computed depth of the jitter buffer."""

    stored: ReplayOutcome
    outcomes: Sequence[ReplayOutcome]
    jitter_ms: int


async def compare(replayed: ReplayInput, runs: Sequence[TurnSettings], models: Catalogue) -> Comparison:
    """Replay the recording with each of the settings. Raises `StartupError` without the voice activity model, and what
    models raise."""
    recording, language = replayed.recording, replayed.language
    replay_models = ReplayModels(models.stt(language), models.eot, language)
    audible, answer_offset_ms = _agent_audible(replayed)

    async def run(settings: TurnSettings, jitter_ms: Jitter | None) -> ReplayOutcome:
        return await Replay(
            recording,
            audible,
            settings,
            replay_models,
            jitter_ms=jitter_ms,
            first_message_uninterruptible=replayed.first_message_uninterruptible,
        ).run()

    stored, jitter_ms = outcome_of_timeline(replayed.timeline), np.zeros(recording.ticks)
    timeline_offset_ms = answer_offset_ms or 0.0
    if stored.turns:
        offsets = speech_end_offsets(stored, await run(replayed.settings, None))
        if answer_offset_ms is not None:
            jitter_ms = _jitter(offsets, answer_offset_ms, recording.ticks)
        elif offsets:
            timeline_offset_ms = median(offset_ms for _, offset_ms in offsets)
    outcomes = [await run(settings, jitter_ms) for settings in runs]
    return Comparison(stored.shifted(timeline_offset_ms), outcomes, round(float(jitter_ms.max())))


def _jitter(speech_end_offsets: Sequence[tuple[float, float]], answer_offset_ms: float, ticks: int) -> Jitter:
    """The depth of the jitter buffer at each tick, ms: at the ends of speech the difference of the two offsets,
    interpolated between them."""
    if not speech_end_offsets:
        return np.zeros(ticks)
    at_ms, offset_ms = np.array(sorted(speech_end_offsets)).T
    depth_ms = np.clip(offset_ms - answer_offset_ms, 0.0, MAX_JITTER_MS)
    interpolated: Jitter = np.interp(np.arange(ticks) * TICK_MS, at_ms, depth_ms)
    return interpolated


def _agent_audible(replayed: ReplayInput) -> tuple[Ticks, float | None]:
    """The ticks in which the agent is audible in the recording, with the pauses inside of its stored answers; and by
    how many ms the answers are later in the recording than in the timeline (None if none can be matched)."""
    audible = agent_audible(replayed.recording)
    spans = [
        (turn["agent_start_ms"], turn["agent_end_ms"])
        for turn in replayed.timeline
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
