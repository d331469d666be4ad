"""The chats of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from calls.active_calls import ActiveCall
from calls.chat.chat_session import HAS_ENDED, ChatReply, ChatSession
from calls.session.dependencies import CallDependencies
from config.errors import Conflict, LimitExceeded, Unavailable
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call, TranscriptItem

MAX_CHATS_OF_ORGANIZATION: Final = 20
"""Chats of one organization at once."""
MAX_CHATS: Final = 100
"""Chats of the process at once."""
RETRY_AFTER_S: Final = 30


def require_room(conn: sa.Connection, organization_id: str) -> None:
    """For the transaction that stores a chat. Raises `LimitExceeded` if the organization has its maximum of them,
    `Unavailable` if the server has."""
    open_chats = calls.count_open_chats(conn, organization_id)
    if open_chats.organization >= MAX_CHATS_OF_ORGANIZATION:
        raise LimitExceeded(f"There are {MAX_CHATS_OF_ORGANIZATION} chats already: end one first")
    if open_chats.total >= MAX_CHATS:
        raise Unavailable("The server has its maximum number of chats", RETRY_AFTER_S)


class Chats:
    """Event loop only. `start` is called with each chat that is to be run."""

    def __init__(self, deps: CallDependencies, start: Callable[[ActiveCall], None]) -> None:
        self._deps = deps
        self._start = start
        self._sessions: dict[str, ChatSession] = {}

    async def open(self, call: Call, agent: Agent) -> list[TranscriptItem]:
        """Run a chat that was stored. Returns the transcript after the agent's first message, if it speaks first."""
        session = self._sessions[call.id] = ChatSession(call, agent, self._deps, self._on_over)
        self._start(session)
        return await session.wait_opening()

    async def send(self, call_id: str, content: str, edit_turn: int | None) -> ChatReply:
        """See `ChatSession.send`. Raises `Conflict` also for a call that is no chat of this process."""
        session = self._sessions.get(call_id)
        if session is None:
            raise Conflict(HAS_ENDED)
        return await session.send(content, edit_turn)

    def _on_over(self, call_id: str) -> None:
        del self._sessions[call_id]
