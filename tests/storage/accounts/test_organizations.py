"""The deletion of an organization in one transaction."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from config.errors import Conflict
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import calls
from storage.database.database import Database


async def test_an_organization_with_a_call_that_has_not_ended_is_not_deleted(database: Database) -> None:
    def begin_call(conn: sa.Connection) -> Organization:
        owner = organizations.create(conn, "office")
        calls.create_outbound(
            conn, organization_id=owner.id, agent_id="agent", phone_number_id="number", provider="sip",
            customer_number="100", context_variables={}, metadata={},
        )  # fmt: skip
        return owner

    owner = await database.write(begin_call)
    with pytest.raises(Conflict, match="office has a call that has not ended"):
        await database.write(lambda conn: organizations.delete(conn, owner))
    assert await database.read(lambda conn: organizations.get(conn, owner.id)) == owner
