"""Hold music: what plays in a slot, and what follows it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import uuid4

import numpy as np
import pytest
from structlog.testing import capture_logs

from calls.session.audio_loop_cache import AudioLoopCache, resample_loop
from calls.session.background_audio import BackgroundSounds
from calls.session.hold_music import DUCKED_VOLUME, HoldMusic
from media.audio_port import Samples
from media.hold_music.pieces import PIECES, Piece
from sipcore.audio.pump import Pump
from storage.agents.agents import Agent
from storage.background_sounds.sounds import path_of, write_file
from tests.calls.session.test_background_audio import RecordingPump
from tests.sipcore.tones import tone

RATE = 8000
SLOT = 7
AT = datetime(2026, 5, 1, tzinfo=UTC)


class HoldHarness:
    """Hold music and background sounds on a pump that records what it gets."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.pump = RecordingPump()
        loops = AudioLoopCache(cast(Pump, self.pump))
        self.music = HoldMusic(loops, data_dir, BackgroundSounds(loops, data_dir))

    async def file(self, hertz: float = 700) -> str:
        """Store a sound; returns its id."""
        sound_id = str(uuid4())
        await asyncio.to_thread(write_file, self.data_dir, sound_id, tone(16000, hertz, 1.0))
        return sound_id

    async def play(self, agent: Agent, call_id: str = "a", rate: int = RATE) -> None:
        await self.music.play(SLOT, rate, agent, call_id)

    async def stop(self, agent: Agent) -> None:
        await self.music.stop(SLOT, RATE, agent, "a")

    @property
    def playing(self) -> tuple[Samples | None, float, float]:
        """The loop that the slot plays, and its two volumes."""
        sound, volume, ducked = self.pump.played[SLOT]
        return None if sound is None else self.pump.samples_of(sound), volume, ducked


def agent(hold_music_id: str | None = None, background_sound_id: str | None = None) -> Agent:
    return Agent(
        id="b",
        organization_id="c",
        name="a",
        created_at=AT,
        updated_at=AT,
        hold_music_id=hold_music_id,
        background_sound_id=background_sound_id,
        background_sound_volume=0.3,
    )


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Samples]:
    """Three short pieces in place of the built-in ones."""
    rendered = [tone(16000, 300 + 100 * number, 1.0) for number in range(3)]
    short = tuple(Piece(f"{number}", lambda loop=loop: loop) for number, loop in enumerate(rendered))  # type: ignore[misc]
    monkeypatch.setattr("calls.session.hold_music.PIECES", short)
    return rendered


@pytest.fixture
def harness(tmp_path: Path) -> HoldHarness:
    return HoldHarness(tmp_path)


def is_loop(playing: Samples | None, samples: Samples, rate: int = RATE) -> bool:
    return playing is not None and np.array_equal(playing, resample_loop(samples, rate))


async def test_the_agents_music_plays_at_full_volume_and_recedes_by_14_db(harness: HoldHarness) -> None:
    for rate in (8000, 16000):
        await harness.play(agent(await harness.file(700)), rate=rate)
        loop, *volumes = harness.playing
        assert is_loop(loop, tone(16000, 700, 1.0), rate)
        assert volumes == [1.0, DUCKED_VOLUME]
    assert 20 * np.log10(DUCKED_VOLUME) == pytest.approx(-14)


async def test_a_call_hears_one_built_in_piece_and_calls_take_turns(
    harness: HoldHarness, pieces: list[Samples]
) -> None:
    heard: dict[str, int] = {}
    for call_id in [str(uuid4()) for _ in range(60)]:
        for _ in range(2):
            await harness.play(agent(), call_id)
            loop, *_ = harness.playing
            number = next(number for number, piece in enumerate(pieces) if is_loop(loop, piece))
            assert heard.setdefault(call_id, number) == number
    assert set(heard.values()) == {0, 1, 2}
    assert len(harness.pump.loops) == 3, "each was made once"


async def test_music_that_cannot_be_read_is_a_built_in_piece(harness: HoldHarness, pieces: list[Samples]) -> None:
    music_id = await harness.file()
    path_of(harness.data_dir, music_id).unlink()
    with capture_logs() as logs:
        await harness.play(agent(music_id))
    loop, *_ = harness.playing
    assert any(is_loop(loop, piece) for piece in pieces)
    assert [(log["event"], log["call_id"], log["agent_id"]) for log in logs] == [("call.without_hold_music", "a", "b")]


async def test_after_the_music_the_background_sound_plays_again(harness: HoldHarness) -> None:
    held = agent(await harness.file(700), await harness.file(900))
    await harness.play(held)
    await harness.stop(held)
    loop, *volumes = harness.playing
    assert is_loop(loop, tone(16000, 900, 1.0))
    assert volumes == pytest.approx([0.3, 0.3 * 10**-0.5])


async def test_after_the_music_an_agent_without_background_sound_is_silent(harness: HoldHarness) -> None:
    held = agent(await harness.file(700))
    await harness.play(held)
    await harness.stop(held)
    assert harness.playing == (None, 0.0, 0.0)


async def test_a_background_sound_that_cannot_be_read_is_logged_and_the_music_stops(harness: HoldHarness) -> None:
    held = agent(await harness.file(700), str(uuid4()))
    await harness.play(held)
    with capture_logs() as logs:
        await harness.stop(held)
    assert harness.playing == (None, 0.0, 0.0)
    assert [(log["event"], log["call_id"]) for log in logs] == [("call.without_background", "a")]


async def test_a_cancelled_play_changes_nothing(harness: HoldHarness) -> None:
    held = agent(await harness.file(700))
    playing = asyncio.create_task(harness.play(held))
    await asyncio.sleep(0)
    playing.cancel()
    await asyncio.wait([playing])
    assert (playing.cancelled(), harness.pump.played) == (True, {})


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_built_in_piece_keeps_its_length_at_each_rate(rate: int) -> None:
    samples = PIECES[1].render()
    assert len(resample_loop(samples, rate)) * 16000 == len(samples) * rate
