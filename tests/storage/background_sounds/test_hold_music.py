"""Hold music: rows live as long as an agent uses them, however it goes."""

from __future__ import annotations

from uuid import uuid4

import pytest
import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations, quotas
from storage.agents import agents
from storage.agents.agents import Agent
from storage.background_sounds import hold_music, sounds
from storage.background_sounds.hold_music import AgentHoldMusic, HoldMusicFile
from storage.database.database import Database
from storage.database_snapshot import referenced_files
from storage.tables.agent_fields import AgentFields

URL = "https://music.example/a.mp3"
LIMITS = dict.fromkeys(quotas.QUOTAS, 1_000_000)


def music(content: str = "a", stored_bytes: int = 1000) -> HoldMusicFile:
    return HoldMusicFile(id=str(uuid4()), content_sha256=content * 64, duration_ms=2000, stored_bytes=stored_bytes)


def agent_with(conn: sa.Connection, owner: str, file: HoldMusicFile) -> Agent:
    fields = AgentFields(name="a", hold_music_url=URL)
    return agents.create(conn, owner, fields, hold_music.store(conn, owner, file))


def stored_ids(conn: sa.Connection) -> set[str]:
    return set(conn.execute(sa.select(tables.hold_music.c.id)).scalars())


def used_bytes(conn: sa.Connection, owner: str) -> int:
    return quotas.usage(conn, owner, LIMITS)["sound_bytes"].used


async def test_the_same_content_is_stored_once_for_an_organization(database: Database, organization_id: str) -> None:
    def work(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other").id
        first, again, foreign, different = music(), music(), music(), music("b", 10)
        owners = [(organization_id, first), (organization_id, again), (other, foreign), (organization_id, different)]
        found = [agent_with(conn, owner, file).hold_music_id for owner, file in owners]
        assert found == [first.id, first.id, foreign.id, different.id]
        assert (used_bytes(conn, organization_id), used_bytes(conn, other)) == (1010, 1000)

    await database.write(work)


async def test_an_agent_knows_its_file_only_within_its_organization(database: Database, organization_id: str) -> None:
    def work(conn: sa.Connection) -> None:
        file = music()
        agent = agent_with(conn, organization_id, file)
        other = organizations.create(conn, "other").id
        assert agents.get(conn, organization_id, agent.id) == agent
        assert hold_music.of_agent(conn, organization_id, agent.id) == AgentHoldMusic(URL, file.id)
        assert hold_music.of_agent(conn, other, agent.id) is None

    await database.write(work)


@pytest.mark.parametrize("end", ["cleared", "replaced", "deleted"])
async def test_a_row_is_deleted_with_its_last_use_and_its_file_is_to_be_removed(
    database: Database, organization_id: str, end: str
) -> None:
    def work(conn: sa.Connection) -> None:
        file, next_file = music(), music("b", 7)
        for left, agent in ((1, agent_with(conn, organization_id, file)), (0, agent_with(conn, organization_id, file))):
            assert hold_music.exists(conn, file.id)
            if end == "deleted":
                agents.delete(conn, organization_id, agent.id)
            else:
                next_id = hold_music.store(conn, organization_id, next_file) if end == "replaced" else None
                agents.update(conn, organization_id, agent.id, {"hold_music_id": next_id})
            assert hold_music.exists(conn, file.id) is bool(left)
        assert stored_ids(conn) == ({next_file.id} if end == "replaced" else set())
        assert sounds.pending_file_removals(conn) == [file.id]
        assert used_bytes(conn, organization_id) == (7 if end == "replaced" else 0)

    await database.write(work)


async def test_an_update_of_other_fields_keeps_the_row(database: Database, organization_id: str) -> None:
    def work(conn: sa.Connection) -> None:
        file = music()
        agent = agent_with(conn, organization_id, file)
        agents.update(conn, organization_id, agent.id, {"name": "b", "hold_music_id": file.id})
        assert (stored_ids(conn), sounds.pending_file_removals(conn)) == ({file.id}, [])

    await database.write(work)


async def test_the_files_go_with_their_organization(database: Database) -> None:
    def work(conn: sa.Connection) -> None:
        owner = organizations.create(conn, "other").id
        file = music()
        agent_with(conn, owner, file)
        conn.execute(sa.delete(tables.organizations).where(tables.organizations.c.id == owner))
        assert (stored_ids(conn), sounds.pending_file_removals(conn)) == (set(), [file.id])

    await database.write(work)


async def test_a_backup_holds_the_files(database: Database, organization_id: str) -> None:
    file = music()
    await database.write(lambda conn: agent_with(conn, organization_id, file))
    names = await database.read(lambda conn: [each.name for each in referenced_files(conn)])
    assert names == [f"sounds/{file.id}.wav"]
