"""Versions of agents in responses."""

from __future__ import annotations

from pydantic import Field
from pydantic.alias_generators import to_camel

from api.schemas.agents import AgentOfVersion, version_view
from api.schemas.base import Instant, View
from storage.agents.versions import StoredVersion, VersionWithFields


class AgentVersion(View):
    """A version of an agent in a list."""

    version: int = Field(description="1 is the new agent; each save that changes a field adds 1")
    author: str | None = Field(
        description="Name of the API key that saved it (its prefix if it has no name), or the operating system's user "
        "of the command line; null for what was stored before there were versions"
    )
    created_at: Instant
    changes: list[str] = Field(description="The fields that differ from the version before; none in version 1")

    @classmethod
    def of(cls, stored: StoredVersion) -> AgentVersion:
        """Returns the view of a stored version."""
        return cls(**_values(stored))


class AgentVersionDetail(AgentVersion):
    """A version of an agent with the agent's fields."""

    agent: AgentOfVersion = Field(description="The agent's fields in this version; never the webhook's secret")

    @classmethod
    def of_fields(cls, stored: VersionWithFields) -> AgentVersionDetail:
        """Returns the view of a stored version with its fields."""
        return cls(**_values(stored), agent=version_view(stored.fields))


def _values(stored: StoredVersion) -> dict[str, object]:
    names = [to_camel(name.removesuffix("_encrypted")) for name in stored.changes]
    return {"version": stored.version, "author": stored.author, "created_at": stored.created_at, "changes": names}
