"""Body and views of `/calls/{id}/replay`: a recorded call's turns with other turn-taking settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, create_model

from api.schemas.agents import AgentUpdate
from api.schemas.base import Body, IdView, View, without_defaults
from media.turn_taking.settings import TurnSettings

SETTING_NAMES: Final = tuple(each.name for each in fields(TurnSettings))
ReplayDropReason = Literal["short", "cooldown", "protected", "no_words", "backchannel", "unrecognized"]
Ms = Annotated[int, Field(ge=0)]


class _SettingsBase(Body):
    model_config = ConfigDict(json_schema_extra=without_defaults)


def _same_fields_as_agents() -> dict[str, Any]:
    """The turn-taking fields of an agent: names, types and bounds."""
    return {name: (AgentUpdate.model_fields[name].annotation, AgentUpdate.model_fields[name]) for name in SETTING_NAMES}


CallReplayRequest: Final[type[Body]] = create_model(
    "CallReplayRequest",
    __base__=_SettingsBase,
    __doc__="Turn-taking settings to try, as in an agent. An absent one is as in the call.",
    __module__=__name__,
    **_same_fields_as_agents(),
)


def _like_agents(name: str) -> Any:
    """A field of a view with the description of an agent's field."""
    return Field(description=AgentUpdate.model_fields[name].description)


class ReplaySettings(View):
    """Turn-taking settings, as an agent has them."""

    turn_endpoint_delay: int | None = _like_agents("turn_endpoint_delay")
    min_turn_duration: int | None = _like_agents("min_turn_duration")
    min_interruption_duration: int | None = _like_agents("min_interruption_duration")
    frame_activation_threshold: float | None = _like_agents("frame_activation_threshold")
    post_speech_cooldown: int | None = _like_agents("post_speech_cooldown")
    ultravad_eot_threshold: float | None = _like_agents("ultravad_eot_threshold")
    speculative_silence_ms: int | None = _like_agents("speculative_silence_ms")
    fallback_silence_ms: int | None = _like_agents("fallback_silence_ms")


class ReplayTurn(View):
    """A turn of the caller. Times are ms from the beginning of the recording."""

    speech_start_ms: int = Field(description="The caller began to speak, ms")
    speech_end_ms: int = Field(description="The caller's last speech of the turn ended, ms")
    turn_end_ms: int = Field(description="The end of the turn was detected, ms")
    wait_ms: int = Field(description="From speechEndMs to turnEndMs", json_schema_extra={"example": 300})
    ended_by: Literal["model", "delay", "fallback"] = Field(
        description="What ended the turn: the end-of-turn model, turnEndpointDelay alone, or fallbackSilenceMs"
    )
    eot_probability: float | None = Field(
        description="Result of the end-of-turn model (probability of the end of the turn, 0..1), if it ended the turn"
    )
    response_gap_ms: int | None = Field(
        description="From speechEndMs to the agent's first audio, ms; null without a response before the next turn. "
        "`call` and `before`: as recorded; `after`: as expected, the one of `before` changed by as much as waitMs"
    )
    interrupts_agent: bool = Field(description="The caller interrupted the agent")
    ended_too_early: bool | None = Field(
        description="The caller went on within 1.5 s, before a response, or more than half a second of one, was heard; "
        "null for `call`, where such a turn is one with what follows"
    )


class ReplayRow(View):
    """Turns whose speech overlaps; null where there is none."""

    call: ReplayTurn | None = Field(description="As it was")
    before: ReplayTurn | None = Field(description="Replayed with the settings of the call")
    after: ReplayTurn | None = Field(description="Replayed with the settings of the request")
    turn_end_moved_ms: int | None = Field(
        description="By how much later the turn ends in `after` than in `before`, ms; negative: earlier. Null unless "
        "both have the turn"
    )


class ReplayPercentiles(View):
    """Percentiles of the turns' times, ms; null without any."""

    median: int | None = Field(description="Half of the turns have at most this, ms")
    p95: int | None = Field(description="95 % of the turns have at most this, ms")


class ReplayDrop(View):
    """Speech that took no turn, by the reason."""

    reason: ReplayDropReason = Field(
        description="`short`: shorter than minTurnDuration; `cooldown`: over before the end of postSpeechCooldown; "
        "`protected`: over an uninterruptible message; `no_words`: over the agent without words; `backchannel`: over "
        'the agent with words such as "mm-hmm"; `unrecognized`: a turn in which nothing was recognized'
    )
    count: int = Field(description="How often")


class ReplayTotals(View):
    """Figures of all turns. Those that are not stored with a call are null for `call`."""

    turns: int = Field(description="Turns of the caller")
    wait_ms: ReplayPercentiles = Field(description="Waits for the ends of turns")
    response_gap_ms: ReplayPercentiles = Field(description="Response gaps")
    interruptions: int = Field(description="How often the caller interrupted the agent")
    ended_too_early: int | None = Field(description="Turns that ended before the caller had finished")
    pauses: int | None = Field(description="How often speech paused the agent")
    resumes: int | None = Field(description="How often the agent went on after a pause")
    dropped: list[ReplayDrop] | None = Field(description="Speech that took no turn")


class ReplayTotalsOfAll(View):
    """Figures of the call and of both replays."""

    call: ReplayTotals = Field(description="As it was")
    before: ReplayTotals = Field(description="Replayed with the settings of the call")
    after: ReplayTotals = Field(description="Replayed with the settings of the request")


class ReplaySettingsOfBoth(View):
    """The settings of both replays."""

    before: ReplaySettings = Field(description="Those of the call")
    after: ReplaySettings = Field(description="Those of the request")


SettingsSource = Literal["version", "agent", "defaults"]


class CallReplay(View):
    """A recorded call, replayed with the settings that it had and with others."""

    call_id: IdView
    duration_ms: Ms = Field(description="Length of the recording, ms")
    settings_from: SettingsSource = Field(
        description="Where the settings of the call are from: `version`, its version of the agent; `agent`, the agent "
        "as it is now, because that version is not stored; `defaults`, because the agent was deleted"
    )
    settings: ReplaySettingsOfBoth = Field(description="The turn-taking settings of both replays")
    turns: list[ReplayRow] = Field(description="Turns side by side, in order of time")
    totals: ReplayTotalsOfAll = Field(description="Figures of all turns")
