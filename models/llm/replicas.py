"""Language models that are replicas of one another: which one an agent begins with. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from models.protocols import LanguageModel


class ReplicaOrder:
    """Orders replicas by rendezvous hashing (Thaler and Ravishankar 1998) of an agent's id: every node of a cluster
    sends an agent's calls to the same replica, whose prefix cache then has the agent's prompt, and the agents spread
    evenly. Without a replica, only its own agents go to others."""

    def __init__(self, names: Collection[str]) -> None:
        """`names`: those of the replicas."""
        self._names = frozenset(names)

    def ordered(self, models: Sequence[LanguageModel], agent_id: str) -> list[LanguageModel]:
        """The replicas among the models, best first for this agent, and then the others in their order. An unknown
        agent ("") gets the order of `models`."""
        replicas = [model for model in models if model.name in self._names]
        if agent_id:
            replicas.sort(key=lambda model: hashlib.sha256(f"{agent_id}/{model.name}".encode()).digest())
        return [*replicas, *(model for model in models if model.name not in self._names)]
