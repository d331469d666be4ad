"""Agents whose language or voice the loaded models lack."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from models.loading.catalogue import Catalogue
from models.loading.language_gaps import language_gaps
from storage.agents import agents
from storage.database.database import Database


@dataclass(frozen=True)
class AgentsWithGap:
    """`agents` of all organizations have this gap in their calls, which `problem` describes."""

    agents: int
    problem: str


async def agents_with_gaps(database: Database, models: Catalogue) -> list[AgentsWithGap]:
    """Returns each gap with the number of agents that have it. Raises `StorageUnavailable`."""
    counts: dict[str, int] = {}
    for language, voice, number in await database.read(agents.languages):
        for gap in language_gaps(models, language, None if voice is None else UUID(voice)):
            counts[gap.text] = counts.get(gap.text, 0) + number
    return [AgentsWithGap(number, problem) for problem, number in counts.items()]
