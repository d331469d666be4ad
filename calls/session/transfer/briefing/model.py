"""The language model of a briefing: it writes who calls and why while the target rings, and answers the target's
questions from the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any, Final

import structlog

from calls.call_record.metering import UsageMeter
from calls.post_call.analysis_validation import InvalidModelOutput
from calls.session.transfer.briefing.facts import (
    CallFacts,
    briefing_request,
    briefing_schema,
    inquiry_prompt,
    parse_briefing,
)
from calls.session.transfer.briefing.phrases import briefing_phrases, is_inquiry
from config.errors import ModelError
from models.errors import RemoteModelError
from models.protocols import (
    ChatMessage,
    ChatPrompt,
    LanguageModel,
    LlmOutput,
    SupportsJsonSchema,
    SupportsPrefill,
    TextDelta,
)
from models.token_usage import TokenUsage

WRITING_LIMIT_S: Final = 8.0
"""From the INVITE to the target on."""
WRITING_LIMIT_WHILE_SPEAKING_S: Final = 2.0
"""From when the agent may speak to the target: its first sentence, with the caller's number, takes longer."""

log = structlog.get_logger()


class BriefingWriter:
    """Writes the briefing of one transfer, from `start` to `take` or `close`, as post-call work, which responses to
    callers precede. `done` is done once it is written, or is not going to be: after a failure, after the time limit,
    without `start`, without words of the caller, and by a model whose output cannot be constrained to a JSON schema."""

    def __init__(
        self, call_id: str, facts: CallFacts, model: LanguageModel, meter: UsageMeter, language: str | None
    ) -> None:
        """`call_id`: of the child call. `meter`: what is billed for a briefing that is taken."""
        self.done = asyncio.Event()
        self.done.set()
        self.why: str | None = "the caller has said nothing"
        """Why nothing is written; None if something is."""
        self._text: str | None = None
        self._call_id = call_id
        self._facts = facts
        self._model = model
        self._meter = meter
        self._tokens = TokenUsage()
        self._language = language
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        if not self._facts.caller_spoke:
            return
        if not isinstance(self._model, SupportsJsonSchema):
            self.why = "the model does not support JSON Schema"
            return
        self.why = "it was not written in time"
        self.done.clear()
        self._writing = asyncio.create_task(self._write(self._model))

    async def wait(self, may_speak: asyncio.Task[None]) -> None:
        """Wait until it is `done`, for `WRITING_LIMIT_WHILE_SPEAKING_S` at most once `may_speak` is."""
        if self.done.is_set():
            return
        waiting = asyncio.ensure_future(self.done.wait())
        either: tuple[asyncio.Future[Any], ...] = (waiting, may_speak)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((waiting,), timeout=WRITING_LIMIT_WHILE_SPEAKING_S)
        finally:
            waiting.cancel()

    def take(self) -> str | None:
        """Stop writing. Returns what is written, which is billed from now on; None if nothing is."""
        self.close()
        if self._text is not None:
            self._meter.count_tokens_aside(self._tokens)
        return self._text

    def close(self) -> None:
        """Stop writing. Idempotent."""
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self, model: SupportsJsonSchema) -> None:
        system, text = briefing_request(self._facts, self._language)
        messages = (ChatMessage("user", text),)
        prompt = ChatPrompt(self._call_id, system, messages, self._language, tokens=self._tokens)
        fault: Exception | None = None
        try:
            async with asyncio.timeout(WRITING_LIMIT_S):
                output = await model.complete_json(prompt, briefing_schema())
            self._text, self.why = parse_briefing(output, self._language), None
        except TimeoutError:
            self.why = f"the model took longer than {WRITING_LIMIT_S:g} s"
        except RemoteModelError as error:
            self.why = f"the model's server: {error.kind}"
        except (ModelError, InvalidModelOutput) as error:
            self.why = str(error)
        except Exception as error:  # noqa: BLE001 - the template is said instead
            self.why, fault = f"the model broke: {type(error).__name__}", error
        finally:
            self.done.set()
        if self.why is not None:
            write_log = log.warning if fault is None else log.error
            write_log("transfer.briefing_not_written", call_id=self._call_id, why=self.why, exc_info=fault)


class BriefingModel:
    """The language model of the conversation with the target. It answers questions from all facts of the call, without
    tools: it decides nothing after it has read the caller's words. What else the target says may be a decision, which
    it takes without them."""

    def __init__(self, model: LanguageModel, facts: CallFacts, language: str | None) -> None:
        self.name = model.name
        self._model = model
        self._inquiry_prompt = inquiry_prompt(facts)
        self._language = language

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """See `LanguageModel.respond`."""
        inquires = self._inquires(prompt)
        parts = self._model.respond(self._inquiry(prompt) if inquires else self._decision(prompt))
        try:
            async for part in parts:
                if not inquires or isinstance(part, TextDelta):
                    yield part
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`: for a question."""
        if isinstance(self._model, SupportsPrefill):
            await self._model.prefill(self._inquiry(prompt))

    def _inquires(self, prompt: ChatPrompt) -> bool:
        words = next((each.content for each in reversed(prompt.messages) if each.role == "user"), "")
        return is_inquiry(words, self._language)

    def _inquiry(self, prompt: ChatPrompt) -> ChatPrompt:
        return replace(prompt, system=self._inquiry_prompt, tools=())

    def _decision(self, prompt: ChatPrompt) -> ChatPrompt:
        """What the agent has said may have the caller's words."""
        question = briefing_phrases(self._language).question
        said = [
            replace(each, content=question) if each.role == "assistant" and each.content else each
            for each in prompt.messages
        ]
        return replace(prompt, messages=tuple(said))
