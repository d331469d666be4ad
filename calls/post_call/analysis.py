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

from calls import metrics
from calls.call_record.metering import NO_USAGE, CallUsage
from calls.post_call.analysis_prompts import (
    AnalysisPrompt,
    ExtractionGroup,
    extraction_groups,
    join_prompt,
    summary_prompt,
    transcript_parts,
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
from models.runtime.request_context import RequestContext, requests_for
from models.token_usage import TokenUsage
from storage.agents.agents import Agent
from storage.calls.calls import Analysis, TranscriptItem

ATTEMPTS: Final = 2
"""A model that fails is asked once more."""
CONCURRENT_ANALYSES: Final = 4
"""Calls that one model analyzes at once: when many calls end together, some analyses are done in time rather than none,
and a remote server has capacity for active calls. No model waits for another one."""
RETRY_HINT: Final = " Answer in plain words."
"""Appended to the second request, because the same request would get the same answer."""
STOPPED: Final = "the server stopped"
RULES_RESERVE_S: Final = 0.5
"""The part of `max_wait_s` that is reserved for the rules."""
CANCEL_GRACE_S: Final = 0.2
"""Time for a cancelled model to stop."""
DEFAULT_CONTEXT_LENGTH: Final = 4096
"""Tokens; for a model that does not state its context length."""

log = structlog.get_logger()
T = TypeVar("T")
Kind = Literal["string", "boolean", "number"]


def needs_analysis(agent: Agent, transcript: Sequence[TranscriptItem]) -> bool:
    """True if the agent has post-call analysis enabled and the caller said something."""
    enabled = agent.post_call_summary_enabled or bool(agent.post_call_extraction_schema)
    return enabled and any(item["role"] == "user" and item["content"].strip() for item in transcript)


def null_values(agent: Agent) -> dict[str, Any]:
    """Returns every value that the agent extracts, as None."""
    return {each["name"]: None for each in agent.post_call_extraction_schema}


class _Failed(Exception):
    """The model failed twice."""


@dataclass
class _ModelAnalysis:
    """The analysis of one call by a model. `failures`: the model's failures in words."""

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
        """Returns the analysis, and its usage. Rules do it if the agent's model cannot be constrained to a JSON schema,
        fails twice or takes too long, or `model_skipped` is set."""
        model, context_length = self._model_of(agent)
        summary, values = None, None
        failures: list[str] = []
        usage = NO_USAGE
        if isinstance(model, SupportsJsonSchema):
            work = _ModelAnalysis(call_id, agent, transcript, model, self._slots[model.name], context_length)
            summary, values = await self._by_model(work, model_skipped)
            failures = work.failures
            usage = CallUsage(prompt_tokens=work.tokens.prompt_tokens, completion_tokens=work.tokens.completion_tokens)
        by_model = isinstance(model, SupportsJsonSchema) and not failures
        if not by_model:
            try:
                summary, values = await asyncio.to_thread(_by_rules, agent, transcript, summary, values)
            except Exception as fault:  # noqa: BLE001 - the call is closed even if its rules fail
                failures.append(_log_fault(call_id, fault))
                values = null_values(agent) if values is None else values
        analysis = Analysis(summary=summary, extractions=values or {}, method="model" if by_model else "extractive")
        return Analysis(**analysis, error="; ".join(failures)) if failures else analysis, usage

    def _model_of(self, agent: Agent) -> tuple[LanguageModel, int]:
        """Returns the agent's model, else the default one, and its context length in tokens."""
        model_id = None if agent.slm_model_id is None else UUID(agent.slm_model_id)
        try:
            model = self._models.llm(model_id)
        except NotFound:
            model, model_id = self._models.llm(None), None
        for info in self._models.language_models():
            if info.id == model_id or (model_id is None and info.is_default):
                return model, info.context_length or DEFAULT_CONTEXT_LENGTH
        return model, DEFAULT_CONTEXT_LENGTH

    async def _by_model(
        self, work: _ModelAnalysis, model_skipped: asyncio.Event
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Returns the summary and the values, each None if the model did not return it."""
        if model_skipped.is_set():
            work.failures.append(STOPPED)
            return None, None
        results: list[Any] = [None, None]
        context = RequestContext(
            work.agent.organization_id, work.agent.id, work.call_id, on_fallback=metrics.count_fallback
        )
        with requests_for(context):
            asking = asyncio.create_task(self._ask_in_slot(work, results))
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
        return results[0], results[1]

    async def _ask_in_slot(self, work: _ModelAnalysis, results: list[Any]) -> None:
        async with work.slots:
            await self._ask(work, results)

    async def _ask(self, work: _ModelAnalysis, results: list[Any]) -> None:
        """Set summary and values in `results` by requests to the model. All requests about one part of the transcript
        come before those about the next part, so that the model can reuse the prompt."""
        parts = await asyncio.to_thread(transcript_parts, work.transcript, work.context_length)
        groups = await asyncio.to_thread(extraction_groups, work.agent.post_call_extraction_schema, work.context_length)
        summaries = _PartialResult[list[str]](work, "summary", [], work.agent.post_call_summary_enabled)
        values = _PartialResult(
            work, "extraction", null_values(work.agent), bool(work.agent.post_call_extraction_schema)
        )
        for text in parts:
            await summaries.extend(partial(_summarize, work, text))
            if len(parts) == 1 and summaries.value:
                results[0] = summaries.value[0]
            await values.extend(partial(_extract, work, text, groups))
        results[1] = values.value
        if len(parts) > 1:
            await summaries.extend(partial(_join_summaries, work))
            results[0] = None if summaries.value is None else summaries.value[0]


def _fault_of(work: asyncio.Task[None]) -> BaseException | None:
    """Returns the exception that ended `work`, also if the model cancelled it."""
    return asyncio.CancelledError("called off by the model") if work.cancelled() else work.exception()


def _log_fault(call_id: str, fault: BaseException) -> str:
    """Log an unexpected exception. Returns it in words."""
    log.error("call.analysis_fault", call_id=call_id, error=repr(fault), exc_info=fault)
    return f"the analysis broke: {type(fault).__name__}"


class _PartialResult(Generic[T]):
    """The result so far of one part of the analysis: None if it is not `enabled`, or if the model has failed at it."""

    def __init__(self, work: _ModelAnalysis, name: str, empty: T, enabled: bool) -> None:
        self._work = work
        self._name = name
        self.value: T | None = empty if enabled else None

    async def extend(self, request: Callable[[T], Awaitable[T]]) -> None:
        """Extend the result by a request to the model."""
        if self.value is None:
            return
        try:
            self.value = await request(self.value)
        except _Failed as failed:
            self._work.failures.append(f"{self._name}: {failed}")
            self.value = None


async def _summarize(work: _ModelAnalysis, text: str, summaries: list[str]) -> list[str]:
    return [*summaries, await _ask_model(work, summary_prompt(text, work.agent.language_hint), parse_summary)]


async def _join_summaries(work: _ModelAnalysis, summaries: list[str]) -> list[str]:
    """Join several summaries, and the joined ones again, until one is left."""
    while len(summaries) > 1:
        texts = transcript_parts([TranscriptItem(role="", content=each) for each in summaries], work.context_length)
        if len(texts) >= len(summaries):
            return [truncated(" ".join(summaries), MAX_SUMMARY_LENGTH)]
        prompts = [join_prompt(text, work.agent.language_hint) for text in texts]
        summaries = [await _ask_model(work, prompt, parse_summary) for prompt in prompts]
    return summaries


async def _extract(
    work: _ModelAnalysis, text: str, groups: Sequence[ExtractionGroup], values: dict[str, Any]
) -> dict[str, Any]:
    """Later values replace earlier ones."""
    for group in groups:
        parse = partial(parse_values, names=group.names, kinds=group.kinds)
        values = merged(values, await _ask_model(work, values_prompt(text, group), parse))
    return values


async def _ask_model(work: _ModelAnalysis, analysis_prompt: AnalysisPrompt, parse: Callable[[str], T]) -> T:
    """Returns the parsed output of the model, which is asked again if it fails. Raises `_Failed` if it fails again."""
    (system, text), schema = analysis_prompt
    failure, shown = "", ""
    for left in reversed(range(ATTEMPTS)):
        started_s = time.monotonic()
        messages = [ChatMessage("user", text + RETRY_HINT if failure else text)]
        prompt = ChatPrompt(work.call_id, system, messages, work.agent.language_hint, tokens=work.tokens)
        try:
            return parse(await work.model.complete_json(prompt, schema))
        except (ModelError, InvalidModelOutput) as error:
            failure, shown = str(error), _public_failure(error)
        except Exception as error:
            failure = shown = f"the model broke: {type(error).__name__}"
            log.error("call.analysis_fault", call_id=work.call_id, error=repr(error), exc_info=error)
        took_s = round(time.monotonic() - started_s, 2)
        log.warning("call.analysis_failed", call_id=work.call_id, error=failure, took_s=took_s, tries_left=left)
    raise _Failed(shown)


def _public_failure(error: ModelError | InvalidModelOutput) -> str:
    """Returns the failure for clients, without the addresses, files and texts of remote servers, which are only
    logged."""
    return f"the model's server: {error.kind}" if isinstance(error, RemoteModelError) else str(error).partition(": ")[0]


def _side_of(item: TranscriptItem) -> str:
    """Returns the role of a transcript item for the rules, for which the caller talks with one other side."""
    return "user" if item["role"] == "user" and item.get("speaker") != "target" else "assistant"


def _by_rules(
    agent: Agent, transcript: Sequence[TranscriptItem], summary: str | None, values: dict[str, Any] | None
) -> tuple[str | None, dict[str, Any]]:
    """Returns summary and values, each by rules if it is missing."""
    turns = [(_side_of(item), item["content"]) for item in transcript]
    if agent.post_call_summary_enabled and summary is None:
        summary = summarize(turns, agent.language_hint)
    if values is None:
        fields = [
            FieldSpec(each["name"], each["description"], cast(Kind, each["type"]))
            for each in agent.post_call_extraction_schema
        ]
        values = extract_values(fields, turns)
    return summary, values
