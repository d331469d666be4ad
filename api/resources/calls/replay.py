"""The handler of `/calls/{id}/replay`: a recorded call's turns with other turn-taking settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.schemas.call_replay import CallReplay, CallReplayRequest, SettingsSource
from api.services import ReplayOrder
from calls.session.agent_config import has_protected_opening, turn_settings
from config.errors import Conflict, NotFound, Unavailable
from media.turn_taking.settings import TurnSettings
from storage.agents import agents, versions
from storage.calls import calls
from storage.tables.agent_fields import AgentFields

RETRY_AFTER_S: Final = 30
NO_RECORDING: Final = "The call has no recording: it was not recorded, or the recording was deleted"
NO_REPLAY: Final = "The server takes no calls at this moment, and replays none"


@dataclass(frozen=True)
class _StoredCall:
    """A call with the agent's fields that it ran with; None: the agent was deleted."""

    call: calls.Call
    agent: AgentFields | None
    settings_from: SettingsSource


async def replay(checked: CheckedRequest[Any, NoQuery]) -> CallReplay:
    """Replay the call, before the transaction of POST /calls/{id}/replay."""
    services = checked.services
    stored = await services.database.read(lambda conn: _read(conn, checked.owner, checked.item), owner=checked.owner)
    call, agent = stored.call, stored.agent
    if call.ended_at is None:
        raise Conflict("The call is live: it can be replayed after its end")
    if not call.recorded:
        raise Conflict(NO_RECORDING)
    if services.recording_files.store is not None and services.call_rejection_reason() is not None:
        raise Unavailable(NO_REPLAY, RETRY_AFTER_S)  # before the recording is downloaded
    async with services.recording_files.as_file(call) as path:
        if path is None:
            raise Conflict(NO_RECORDING)
        if services.call_rejection_reason() is not None:
            raise Unavailable(NO_REPLAY, RETRY_AFTER_S)
        before = TurnSettings() if agent is None else turn_settings(agent)
        return await services.replay(
            ReplayOrder(
                organization_id=checked.owner,
                call_id=call.id,
                recording=path,
                timeline=[each for each in call.timeline if "turn" in each],
                language=None if agent is None else agent.language_hint,
                first_message_uninterruptible=agent is not None and has_protected_opening(agent),
                settings_from=stored.settings_from,
                before=before,
                after=replace(before, **checked.body.model_dump(exclude_unset=True)),
            )
        )


def _read(conn: sa.Connection, owner: str, call_id: str) -> _StoredCall:
    call = calls.get(conn, owner, call_id)
    if call is None:
        raise NotFound("Call not found")
    agent = None if call.agent_id is None else agents.get(conn, owner, call.agent_id)
    if agent is None:
        return _StoredCall(call, None, "defaults")
    version = None if call.agent_version is None else versions.get(conn, agent.id, call.agent_version)
    return _StoredCall(call, agent, "agent") if version is None else _StoredCall(call, version.fields, "version")


def replayed(context: RequestContext[Any, NoQuery]) -> CallReplay:
    """POST /calls/{id}/replay"""
    found: CallReplay = context.prepared
    return found


ROUTES = (
    Route(
        method="POST",
        path="/calls/{id}/replay",
        name="replayCall",
        role="editor",
        tag="Calls",
        summary="Try other turn-taking settings on a recorded call",
        description=(
            "Runs the recording through voice activity detection, speech recognition, the end-of-turn model and turn "
            "taking again, with the settings of the call and with those of the request, and answers the turns side by "
            "side. Nothing is stored or changed. The agent's audio stays where it was recorded. It takes a part of the "
            "recording's length, at low priority; it ends when the client disconnects. 409: the call is live, has no "
            "recording, or one of more than an hour. 429: another call of the organization is being replayed. 503: one "
            "of another organization is, or the server is busy."
        ),
        prepare=replay,
        handler=replayed,
        read_only=True,
        ends_with_client=True,
        body=CallReplayRequest,
        example={"turnEndpointDelay": 400, "ultravadEotThreshold": 0.3},
        item="Call",
        response=DataResponse(CallReplay),
        errors=(409,),
    ),
)
