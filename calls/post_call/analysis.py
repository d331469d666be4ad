"""Call analysis: a summary, and the values that the agent extracts, by the agent's language model, else by rules
(`models.rule_based.summary`, `models.rule_based.field_extraction`)."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, cast
from uuid import UUID

import structlog

from calls.call_record.metering import NO_USAGE, CallUsage
from calls.post_call.analysis_prompts import (
    AnalysisPrompt,
    ValueForm,
    join_prompt,
    summary_prompt,
    transcript_parts,
    value_forms,
    values_prompt,
)
from calls.post_call.analysis_validation import (
    MAX_SUMMARY_LENGTH,
    InvalidModelOutput,
    merged,
    parse_summary,
    parse_values,
    truncated,
)
from config.errors import ModelError, NotFound
from models.errors import RemoteModelError
from models.loading.catalogue import Catalogue
from models.protocols import ChatMessage, ChatPrompt, LanguageModel, SupportsJsonSchema
from models.rule_based.field_extraction import FieldSpec, extract_values
from models.rule_based.summary import summarize
from models.token_usage import TokenUsage
from storage.agents.agents import Agent
from storage.calls.calls import Analysis, TranscriptItem

ATTEMPTS: Final = 2
"""A model that fails is asked once more."""
CONCURRENT_ANALYSES: Final = 4
"""Calls that one model analyzes at once: when many calls end together, some analyses are done in time rather than none,
and a remote server, which knows no priorities, keeps room for active calls. No model waits for another one."""
RETRY_HINT: Final = " Answer in plain words."
"""Added to the second request, because the same request gets the same answer."""
STOPPED: Final = "the server stopped"
RULES_RESERVE_S: Final = 0.5
"""The part of the longest wait that is left for the rules."""
CANCEL_GRACE_S: Final = 0.2
"""The time that a cancelled model has to stop."""
DEFAULT_CONTEXT_LENGTH: Final = 4096
"""Tokens of a model that does not give its context length."""

log = structlog.get_logger()
T = TypeVar("T")
Kind = Literal["string", "boolean", "number"]


def is_analysis_wanted(agent: Agent, transcript: Sequence[TranscriptItem]) -> bool:
    """True if the agent asks for an analysis and the caller said something."""
    asked = agent.post_call_summary_enabled or bool(agent.post_call_extraction_schema)
    return asked and any(item["role"] == "user" and item["content"].strip() for item in transcript)


def unknown_values(agent: Agent) -> dict[str, Any]:
    """Every value that the agent extracts, as None."""
    return {each["name"]: None for each in agent.post_call_extraction_schema}


class _Failed(Exception):
    """The model failed twice."""


@dataclass
class _ModelAnalysis:
    """The analysis of one call by a model. `failures`: what the model failed at, in words."""

    call_id: str
    agent: Agent
    transcript: Sequence[TranscriptItem]
    model: SupportsJsonSchema
    slots: asyncio.Semaphore
    context_length: int
    tokens: TokenUsage = field(default_factory=TokenUsage)
    failures: list[str] = field(default_factory=list)


class CallAnalyzer:
    """Analyzes calls, each for at most `max_wait_s`."""

    def __init__(self, models: Catalogue, max_wait_s: float = 30.0) -> None:
        self._models = models
        self._max_wait_s = max_wait_s
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, CONCURRENT_ANALYSES))
        """By the model's name."""

    async def analyze(
        self, call_id: str, agent: Agent, transcript: Sequence[TranscriptItem], model_skipped: asyncio.Event
    ) -> tuple[Analysis, CallUsage]:
        """Returns the analysis, and what it used. Rules do it if the agent's model cannot be constrained to a JSON
        schema, fails twice or takes too long, or `model_skipped` is set."""
        model, context_length = self._model_of(agent)
        summary, values = None, None
        trouble: list[str] = []
        usage = NO_USAGE
        if isinstance(model, SupportsJsonSchema):
            work = _ModelAnalysis(call_id, agent, transcript, model, self._slots[model.name], context_length)
            summary, values = await self._by_model(work, model_skipped)
            trouble = work.failures
            usage = CallUsage(prompt_tokens=work.tokens.prompt_tokens, completion_tokens=work.tokens.completion_tokens)
        by_model = isinstance(model, SupportsJsonSchema) and not trouble
        if not by_model:
            try:
                summary, values = await asyncio.to_thread(_by_rules, agent, transcript, summary, values)
            except Exception as fault:  # noqa: BLE001 - the call is closed whatever is wrong with its rules
                trouble.append(_log_fault(call_id, fault))
                values = unknown_values(agent) if values is None else values
        found = Analysis(summary=summary, extractions=values or {}, method="model" if by_model else "extractive")
        return Analysis(**found, error="; ".join(trouble)) if trouble else found, usage

    def _model_of(self, agent: Agent) -> tuple[LanguageModel, int]:
        """Returns the agent's model, else the default one, and its context length in tokens."""
        wanted = None if agent.slm_model_id is None else UUID(agent.slm_model_id)
        try:
            model = self._models.llm(wanted)
        except NotFound:
            model, wanted = self._models.llm(None), None
        for info in self._models.language_models():
            if info.id == wanted or (wanted is None and info.is_default):
                return model, info.context_length or DEFAULT_CONTEXT_LENGTH
        return model, DEFAULT_CONTEXT_LENGTH

    async def _by_model(
        self, work: _ModelAnalysis, model_skipped: asyncio.Event
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Returns the summary and the values, each None if the model did not give it."""
        if model_skipped.is_set():
            work.failures.append(STOPPED)
            return None, None
        found: list[Any] = [None, None]
        asking = asyncio.create_task(self._ask_in_slot(work, found))
        stopped = asyncio.create_task(model_skipped.wait())
        limit_s = max(self._max_wait_s - RULES_RESERVE_S, self._max_wait_s / 2)
        await asyncio.wait((asking, stopped), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not asking.done():
            work.failures.append(STOPPED if model_skipped.is_set() else f"not done within {self._max_wait_s:g} s")
            log.warning("call.analysis_cut_short", call_id=work.call_id, error=work.failures[-1])
            asking.cancel()
            await asyncio.wait((asking,), timeout=CANCEL_GRACE_S)
        elif fault := _fault_of(asking):
            work.failures.append(_log_fault(work.call_id, fault))
        return found[0], found[1]

    async def _ask_in_slot(self, work: _ModelAnalysis, found: list[Any]) -> None:
        async with work.slots:
            await self._ask(work, found)

    async def _ask(self, work: _ModelAnalysis, found: list[Any]) -> None:
        """Each part of the transcript gets all its questions before the next part, so that the model can reuse the
        prompt."""
        parts = await asyncio.to_thread(transcript_parts, work.transcript, work.context_length)
        forms = await asyncio.to_thread(value_forms, work.agent.post_call_extraction_schema, work.context_length)
        summed = _PartialResult[list[str]](work, "summary", [], work.agent.post_call_summary_enabled)
        values = _PartialResult(
            work, "extraction", unknown_values(work.agent), bool(work.agent.post_call_extraction_schema)
        )
        for place, text in enumerate(parts, 1):
            await summed.ask(partial(_summarize, work, text))
            if place == len(parts) == 1 and summed.found:
                found[0] = summed.found[0]
            await values.ask(partial(_extract, work, text, forms))
        found[1] = values.found
        if len(parts) > 1:
            await summed.ask(partial(_join_summaries, work))
            found[0] = None if summed.found is None else summed.found[0]


def _fault_of(work: asyncio.Task[None]) -> BaseException | None:
    """The exception that ended `work`, also if the model cancelled it."""
    return asyncio.CancelledError("called off by the model") if work.cancelled() else work.exception()


def _log_fault(call_id: str, fault: BaseException) -> str:
    """Log a fault in our code. Returns it in words."""
    log.error("call.analysis_fault", call_id=call_id, error=repr(fault), exc_info=fault)
    return f"the analysis broke: {type(fault).__name__}"


class _PartialResult(Generic[T]):
    """The result so far of something that is `wanted`: None if it is not, or if the model has failed at it."""

    def __init__(self, work: _ModelAnalysis, what: str, nothing: T, wanted: bool) -> None:
        self._work = work
        self._what = what
        self.found: T | None = nothing if wanted else None

    async def ask(self, more: Callable[[T], Awaitable[T]]) -> None:
        """Extend the result by a request to the model."""
        if self.found is None:
            return
        try:
            self.found = await more(self.found)
        except _Failed as failed:
            self._work.failures.append(f"{self._what}: {failed}")
            self.found = None


async def _summarize(work: _ModelAnalysis, text: str, said: list[str]) -> list[str]:
    return [*said, await _ask_model(work, summary_prompt(text, work.agent.language_hint), parse_summary)]


async def _join_summaries(work: _ModelAnalysis, said: list[str]) -> list[str]:
    """Join several summaries, and the summaries of these, until one is left."""
    while len(said) > 1:
        texts = transcript_parts([TranscriptItem(role="", content=each) for each in said], work.context_length)
        if len(texts) >= len(said):
            return [truncated(" ".join(said), MAX_SUMMARY_LENGTH)]
        said = [await _ask_model(work, join_prompt(text, work.agent.language_hint), parse_summary) for text in texts]
    return said


async def _extract(
    work: _ModelAnalysis, text: str, forms: Sequence[ValueForm], found: dict[str, Any]
) -> dict[str, Any]:
    """Later values replace earlier ones."""
    for form in forms:
        check = partial(parse_values, names=form.names, kinds=form.kinds)
        found = merged(found, await _ask_model(work, values_prompt(text, form), check))
    return found


async def _ask_model(work: _ModelAnalysis, question: AnalysisPrompt, check: Callable[[str], T]) -> T:
    """Returns one checked answer of the model, which is asked again if it fails. Raises `_Failed` if it fails again."""
    (system, text), schema = question
    failure, shown = "", ""
    for left in reversed(range(ATTEMPTS)):
        started_s = time.monotonic()
        said = [ChatMessage("user", text + RETRY_HINT if failure else text)]
        asked = ChatPrompt(work.call_id, system, said, work.agent.language_hint, tokens=work.tokens)
        try:
            return check(await work.model.complete_json(asked, schema))
        except (ModelError, InvalidModelOutput) as error:
            failure, shown = str(error), _public_failure(error)
        except Exception as error:
            failure = shown = f"the model broke: {type(error).__name__}"
            log.error("call.analysis_fault", call_id=work.call_id, error=repr(error), exc_info=error)
        took_s = round(time.monotonic() - started_s, 2)
        log.warning("call.analysis_failed", call_id=work.call_id, error=failure, took_s=took_s, tries_left=left)
    raise _Failed(shown)


def _public_failure(error: ModelError | InvalidModelOutput) -> str:
    """The failure as clients see it: addresses, files and the words of remote servers are only logged."""
    return f"the model's server: {error.kind}" if isinstance(error, RemoteModelError) else str(error).partition(": ")[0]


def _by_rules(
    agent: Agent, transcript: Sequence[TranscriptItem], summary: str | None, values: dict[str, Any] | None
) -> tuple[str | None, dict[str, Any]]:
    """Fills in what is missing of summary and values."""
    turns = [("user" if item["role"] == "user" else "assistant", item["content"]) for item in transcript]
    if agent.post_call_summary_enabled and summary is None:
        summary = summarize(turns, agent.language_hint)
    if values is None:
        wanted = [
            FieldSpec(each["name"], each["description"], cast(Kind, each["type"]))
            for each in agent.post_call_extraction_schema
        ]
        values = extract_values(wanted, turns)
    return summary, values
