"""Which recordings are moved to the store, by the calls in the database."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.calls.calls import Call
from storage.database.database import Database
from storage.recording_store.upload_candidates import ended_and_recorded, mark_recorded_before_restart
from tests.calls.post_call.past_calls import past_call

_t = tables.calls


async def test_recordings_of_ended_calls_are_moved_and_those_that_another_node_did_not_see_are_marked(
    database: Database, organization_id: str
) -> None:
    def store(conn: sa.Connection) -> list[Call]:
        made = [past_call(conn, organization_id, utc_now(), ended=number > 0) for number in range(5)]
        removed = {"recording_removed_at": utc_now(), "recording_absent_reason": "retention"}
        by_node = {"ended_reason": "server_restart"}
        changes: tuple[dict[str, Any], ...] = ({}, by_node, {**by_node, **removed})
        for call, values in zip(made[2:], changes, strict=True):
            conn.execute(sa.update(_t).where(_t.c.id == call.id).values(recorded=False, **values))
        return made

    _live, ended, not_recorded, by_node, expired = await database.write(store)
    ids = [each.id for each in (_live, ended, not_recorded, by_node, expired)] + [str(uuid4())]
    read = partial(ended_and_recorded, call_ids=ids)
    assert [(each.id, each.created_at) for each in await database.read(read)] == [(ended.id, ended.created_at)]
    assert await database.write(partial(mark_recorded_before_restart, call_ids=ids)) == 1
    assert {each.id for each in await database.read(read)} == {ended.id, by_node.id}
