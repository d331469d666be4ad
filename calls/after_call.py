"""What follows a call: the stored end and the webhook that tells of it, in one transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import structlog

from calls import metrics
from config.clock import iso, utc_now
from config.links import recording_path, signed_url, transcript_path
from config.secrets import Secrets
from storage import agents, calls, recordings, webhook_deliveries
from storage.agents import Agent
from storage.calls import Call, EndedReason, EndStatus, TranscriptItem
from storage.database import Database, StorageTrouble

STORE_AGAIN_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Waits before the end of a call is stored once more, when the database is in trouble. After them the call stays open
in the database and is closed at the next start."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Outcome:
    """How a call ended. `answered_at` is stored if it has not been yet; `recorded`: its recording holds sound."""

    status: EndStatus
    reason: EndedReason
    ended_at: datetime
    answered_at: datetime | None = None
    transcript: Sequence[TranscriptItem] = ()
    timeline: Sequence[dict[str, Any]] = ()
    turn_count: int = 0
    recorded: bool = False
    media_quality: dict[str, Any] | None = None
    """`calls.media_quality.shown`."""
    sip_end: dict[str, Any] | None = None
    """`calls.endings.sip_end_of`."""


def event_body(call: Call, link: Callable[[str], str]) -> bytes:
    """The `call.completed` payload of an ended call, UTF-8 JSON. `link` makes a path an absolute, signed address."""
    payload = {
        "event": "call.completed",
        "callId": call.id,
        "organizationId": call.organization_id,
        "agentId": call.agent_id,
        "phoneNumberId": call.phone_number_id,
        "direction": call.direction,
        "status": call.status,
        "customerNumber": call.customer_number,
        "durationSeconds": call.duration_seconds or 0,
        "startedAt": None if call.started_at is None else iso(call.started_at),
        "endedAt": None if call.ended_at is None else iso(call.ended_at),
        "recordingUrl": link(recording_path(call.id)) if call.recorded else None,
        "transcriptUrl": link(transcript_path(call.id)) if call.transcript else None,
        "summary": call.analysis["summary"] if call.analysis else None,
        "extractedData": call.analysis["extractions"] if call.analysis else {},
        "contextVariables": call.context_variables,
        "metadata": call.metadata,
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


class AfterCall:
    """Ends calls in the database. `origin` is scheme, host and port of links to this server; `wake` is called when a
    webhook is waiting to be sent."""

    def __init__(self, database: Database, secrets: Secrets, origin: str, wake: Callable[[], None]) -> None:
        self._database = database
        self._secrets = secrets
        self._origin = origin
        self._wake = wake

    async def finish(self, call_id: str, outcome: Outcome, agent: Agent | None) -> None:
        """Store the end of a call and its webhook. `agent` counts if it has been deleted meanwhile. When the database
        is in trouble this is tried again for half a minute; then `StorageTrouble`."""
        for wait_s in (*STORE_AGAIN_S, None):
            try:
                call = await self._database.write(partial(self._store, call_id, outcome, agent))
                break
            except StorageTrouble as trouble:
                if wait_s is None:
                    raise
                log.error("call.end_not_stored", call_id=call_id, cause=trouble.cause, again_in_s=wait_s)
                await asyncio.sleep(wait_s)
        if call is not None:
            _note(call)
            self._wake()

    def _store(self, call_id: str, outcome: Outcome, agent: Agent | None, conn: sa.Connection) -> Call | None:
        call = calls.finish(
            conn,
            call_id,
            answered_at=outcome.answered_at,
            status=outcome.status,
            ended_reason=outcome.reason,
            ended_at=outcome.ended_at,
            transcript=outcome.transcript,
            timeline=outcome.timeline,
            recording=outcome.recorded,
            turn_count=outcome.turn_count,
            media_quality=outcome.media_quality,
            sip_end=outcome.sip_end,
        )
        if call is not None:
            self._announce(conn, call, agent)
        return call

    async def recover(self, data_dir: Path) -> int:
        """End the calls that a dead process left open and put their webhooks into the outbox, in one transaction.
        Returns how many there were."""
        closed = await self._database.write(partial(self._close_interrupted, data_dir))
        for call in closed:
            _note(call)
        if closed:
            self._wake()
        return len(closed)

    def _close_interrupted(self, data_dir: Path, conn: sa.Connection) -> list[Call]:
        closed = calls.close_interrupted(conn, partial(recordings.last_written, data_dir))
        for call in closed:
            self._announce(conn, call, None)
        return closed

    def _announce(self, conn: sa.Connection, call: Call, kept: Agent | None) -> None:
        """Put the event into the outbox, if the call's agent (`kept` when it is not stored any more) wants it."""
        agent = agents.get(conn, call.organization_id, call.agent_id) if call.agent_id else None
        agent = agent or kept
        if agent is None or not agent.post_call_webhook_url:
            return
        now = utc_now()
        webhook_deliveries.add(
            conn,
            organization_id=call.organization_id,
            call_id=call.id,
            url=agent.post_call_webhook_url,
            body=event_body(call, lambda path: signed_url(self._secrets, self._origin, path, now)),
            secret_encrypted=agent.post_call_webhook_secret_encrypted,
        )


def _note(call: Call) -> None:
    metrics.ENDED_CALLS.labels(direction=call.direction, reason=call.ended_reason).inc()
    log.info(
        "call.ended",
        call_id=call.id,
        status=call.status,
        reason=call.ended_reason,
        duration=call.duration_seconds,
        turns=call.turn_count,
        recorded=call.recorded,
        sip_status=call.sip_end["statusCode"] if call.sip_end else None,
    )
