"""`trunkline replay` as a command, while a server runs: its report and its errors."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import wave
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import alembic.command
import numpy as np
import pytest
import sqlalchemy as sa

from config.clock import utc_now
from config.errors import StartupError, TrunklineError
from config.settings import Settings
from media.audio_port import Samples
from storage.accounts import organizations
from storage.agents import agents
from storage.calls import calls, recordings
from storage.database import migrations
from storage.database.database import Database
from storage.database.sqlite.read_only import read_only
from storage.tables.agent_fields import AgentFields
from tests.media.speech import silence, speech
from tests.trunkline.conftest import Office
from tests.trunkline.server_process import command, environment
from trunkline.replay.replay import find_case

pytestmark = pytest.mark.asyncio(loop_scope="package")
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ANSWERED_MS = 1200
"""The response gap of the recorded call's first turn."""


def recorded_audio() -> tuple[Samples, Samples]:
    """The audio of a caller with two turns, and of an agent that answers the first one."""
    first, answer = speech("what is your address"), speech("we are next to the train station")
    caller = [silence(500), first, silence(ANSWERED_MS + len(answer) // 8 + 800), speech("thank you"), silence(1500)]
    said = np.concatenate([silence(500 + len(first) // 8 + ANSWERED_MS), answer])
    heard = np.concatenate(caller)
    return heard, np.pad(said, (0, len(heard) - len(said)))


def write_recording(path: Path, caller: Samples, agent: Samples) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.stack([caller, agent], 1).astype("<i2").tobytes())
    return path


async def store_call(
    database: Database, *, recording: bool = True, ended: bool = True, timeline: list[Mapping[str, Any]] | None = None
) -> calls.Call:
    """Store a call of a new organization's agent."""

    def work(conn: Any) -> calls.Call:
        owner = organizations.create(conn, f"replay {utc_now().isoformat()}").id
        agent = agents.create(conn, owner, AgentFields(name="tuned", turn_endpoint_delay=200))
        made = calls.create_inbound(
            conn, organization_id=owner, agent_id=agent.id, phone_number_id=agent.id, provider="sip",
            call_sid="replayed", customer_number="+4930123",
        )  # fmt: skip
        calls.mark_answered(conn, made.id, utc_now() + timedelta(seconds=1))
        if not ended:
            return made
        done = calls.finish(
            conn, made.id, status="completed", ended_reason="customer_ended", ended_at=utc_now() + timedelta(seconds=9),
            timeline=timeline or (), recording=recording, turn_count=2,
        )  # fmt: skip
        assert done is not None
        return done

    return await database.write(work)


async def replay(office: Office, folder: Path, *arguments: str) -> tuple[int, str, str]:
    return await command("replay", *arguments, folder=folder, environment=office.server.environment)


async def test_a_call_is_replayed_with_the_real_models_while_the_server_runs(office: Office, tmp_path: Path) -> None:
    heard, said = recorded_audio()
    async with office.server.database() as database:
        call = await store_call(database)
    path = recordings.path_of(office.server.data_dir, call.id, call.created_at)
    await asyncio.to_thread(write_recording, path, heard, said)
    changes = ("--set", "ultravadEotThreshold=null", "--set", "turnEndpointDelay=500")
    status, out, err = await replay(office, tmp_path, call.id, *changes, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["callId"], found["rate"]) == (call.id, 8000)
    recorded, now, other = found["timelines"]
    assert recorded["turns"] == []
    assert (now["settings"]["turnEndpointDelay"], other["settings"]["turnEndpointDelay"]) == (200, 500)
    assert other["settings"]["ultravadEotThreshold"] is None
    first, second = other["turns"]
    assert (first["endedBy"], second["endedBy"]) == ("delay", "delay")
    assert 480 <= first["waitMs"] <= 500
    assert first["responseGapMs"] == pytest.approx(ANSWERED_MS, abs=60)
    assert second["responseGapMs"] is None
    assert len(now["turns"]) == 2
    same = await find_case(Settings(data_dir=office.server.data_dir), call.id.upper())
    assert same.call == call


async def test_a_recording_file_is_replayed_without_a_call(tmp_path: Path) -> None:
    path = await asyncio.to_thread(write_recording, tmp_path / "kept.wav", *recorded_audio())
    status, out, err = await command(
        "replay", "--recording", str(path), "--set", "ultravadEotThreshold=null",
        folder=tmp_path, environment=environment(tmp_path / "data", {}),
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert re.match(r"recording: \d+\.\d s at 8000 Hz, jitter buffer up to 0 ms\n", out)
    assert "note: a recording without a call" in out
    assert out.count(" delay") == 2
    assert not (tmp_path / "data").exists(), "no data directory is created"


async def test_calls_that_cannot_be_replayed_are_reported(office: Office, tmp_path: Path) -> None:
    settings = Settings(data_dir=office.server.data_dir)
    async with office.server.database() as database:
        lost = await store_call(database)
        none = await store_call(database, recording=False)
        going = await store_call(database, ended=False)
    words = tmp_path / "words.wav"
    words.write_text("no sound")
    cases: list[tuple[str | None, Path | None, str]] = [
        (None, None, "name a call, or a file with --recording"),
        (UNKNOWN, None, f"there is no call {UNKNOWN}"),
        (lost.id, None, f"the recording of call {lost.id} was deleted: "),
        (none.id, None, f"call {none.id} has no recording"),
        (going.id, None, f"call {going.id} is live"),
        (lost.id, tmp_path / "none.wav", f"the recording {tmp_path / 'none.wav'} does not exist"),
        (None, words, f"{words} is not a WAV file"),
    ]
    for call_id, recording, complaint in cases:
        with pytest.raises(TrunklineError) as refused:
            await find_case(settings, call_id, recording)
        assert str(refused.value).startswith(complaint)


async def test_an_error_is_one_line(office: Office, tmp_path: Path) -> None:
    for assignment, complaint in (
        ("turnEndpointDelay=300", f"there is no call {UNKNOWN}"),
        ("turnEndpointDelay=10", "invalid setting turnEndpointDelay: Must be greater than or equal to 50"),
    ):
        status, out, err = await replay(office, tmp_path, UNKNOWN, "--set", assignment)
        assert (status, out, err) == (1, "", f"trunkline: {complaint}\n")


async def test_a_database_of_another_version_is_not_migrated(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    path = Database(settings.database_url).path
    for revision in ("0003", "9999"):
        await asyncio.to_thread(_create_database, path, revision)
        before = path.read_bytes()
        with pytest.raises(StartupError) as refused:
            await find_case(settings, UNKNOWN)
        told = str(refused.value)
        assert told.startswith(f"the database {path} is at revision {revision}, ")
        assert "\n" not in told
        assert path.read_bytes() == before
        assert await asyncio.to_thread(os.listdir, tmp_path) == [path.name], "nor is anything beside it"


def _create_database(path: Path, revision: str) -> None:
    """Create a database with the migrations up to 0003, and set its revision."""
    path.unlink(missing_ok=True)
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.begin() as conn:
        upgrade = migrations.alembic_settings()
        upgrade.attributes["connection"] = conn
        alembic.command.upgrade(upgrade, "0003")
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = ?", (revision,))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")


async def test_a_file_that_is_no_database_of_trunkline_is_reported(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    path = Database(settings.database_url).path
    path.write_bytes(b"")
    with pytest.raises(StartupError, match="is no database of Trunkline"):
        await find_case(settings, UNKNOWN)
    path.write_text("words " * 200)
    with pytest.raises(StartupError, match="cannot be read: file is not a database"):
        await find_case(settings, UNKNOWN)


async def test_a_read_only_database_cannot_be_written(office: Office) -> None:
    async with office.server.database() as database:
        call = await store_call(database)
        with pytest.raises(StartupError, match="readonly"):
            await asyncio.to_thread(
                read_only, database.path, lambda conn: calls.mark_answered(conn, call.id, utc_now())
            )


async def test_no_data_directory_is_created(tmp_path: Path) -> None:
    place = environment(tmp_path / "data", {})
    status, _, err = await command("replay", "some-call", folder=tmp_path, environment=place)
    assert (status, err.startswith("trunkline: there is no call some-call")) == (1, True)
    assert not (tmp_path / "data").exists()
