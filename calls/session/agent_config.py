"""The configuration of an agent for one call, from the stored agent: models, conversation and turn taking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from uuid import UUID

import structlog

from calls.call_record import sip_metadata
from calls.call_record.context_variables import ContextValue, call_values, substitute
from calls.conversation.config import ConversationConfig
from config.errors import NotFound
from media.turn_taking.settings import TurnSettings
from models.loading.catalogue import Catalogue
from models.protocols import EndOfTurn, LanguageModel, SpeechToText, TextToSpeech
from sipcore.dialogs.leg import InviteFacts
from storage.agents.agents import Agent
from storage.calls.calls import Call
from storage.tables.agent_fields import AgentFields

log = structlog.get_logger()


@dataclass(frozen=True)
class AgentModels:
    """The models that an agent uses. `voice_name` is one of the voices of `tts`."""

    llm: LanguageModel
    stt: SpeechToText
    tts: TextToSpeech
    voice_name: str
    end_of_turn: EndOfTurn

    @property
    def names(self) -> list[str]:
        """The names of speech recognizer, language model and voice, for the log."""
        return [self.stt.name, self.llm.name, self.voice_name]


def models_for(agent: Agent, catalogue: Catalogue) -> AgentModels:
    """Returns the models of the agent. One that is no longer installed is replaced by the default and logged."""
    llm_id = _parse_uuid(agent.slm_model_id)
    voice_id = _parse_uuid(agent.voice_id)
    try:
        llm = catalogue.llm(llm_id)
    except NotFound:
        log.warning("agent.model_missing", agent_id=agent.id, field="slmModelId", id=str(llm_id))
        llm = catalogue.llm(None)
    try:
        tts, voice_name = catalogue.voice(voice_id, agent.language_hint)
    except NotFound:
        log.warning("agent.model_missing", agent_id=agent.id, field="voiceId", id=str(voice_id))
        tts, voice_name = catalogue.voice(None, agent.language_hint)
    return AgentModels(llm, catalogue.stt(agent.language_hint), tts, voice_name, catalogue.eot)


def _parse_uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def context_values(call: Call, number: str, facts: InviteFacts) -> dict[str, ContextValue]:
    """Returns the values of placeholders in this call. `number` is our phone number."""
    return call_values(
        call.context_variables,
        call_id=call.id,
        customer_number=call.customer_number,
        phone_number=number,
        sip_variables=sip_metadata.sip_variables(call, number, facts),
    )


def conversation_config(agent: Agent, values: Mapping[str, ContextValue], call_id: str) -> ConversationConfig:
    """Returns the agent's configuration for a conversation, its placeholders filled with `values`."""
    greeting = (agent.agent_greeting or "").strip() if agent.agent_greeting_enabled else ""
    speaks_first = agent.first_speaker == "agent"
    announcement = (agent.recording_announcement or "") if agent.recording_enabled else ""
    return ConversationConfig(
        system_prompt=substitute(agent.system_prompt or "", values, call_id=call_id),
        greeting=substitute(greeting, values, call_id=call_id).strip() or None if speaks_first else None,
        speaks_first=speaks_first,
        first_message_delay_ms=agent.first_message_delay,
        first_message_uninterruptible=agent.first_message_uninterruptible,
        language=agent.language_hint,
        user_idle_ms=agent.customer_silence_ms,
        announcement=substitute(announcement, values, call_id=call_id).strip() or None,
    )


def has_protected_opening(agent: AgentFields) -> bool:
    """True if the agent speaks first, and its first message cannot be interrupted."""
    return agent.first_speaker == "agent" and agent.first_message_uninterruptible


def turn_settings(agent: AgentFields) -> TurnSettings:
    """Returns the turn-taking settings of an agent, whose fields have the same names."""
    return TurnSettings(**{each.name: getattr(agent, each.name) for each in fields(TurnSettings)})
