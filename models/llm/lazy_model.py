"""A language model that is loaded when a call first needs it: installed, but not the default."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

import structlog

from config.errors import ModelError, ModelTrialError, TrunklineError
from models.model_files.trial import log_left_out
from models.protocols import (
    ChatPrompt,
    Closable,
    LanguageModel,
    LlmOutput,
    Measured,
    ReportsQueueWait,
    SupportsJsonSchema,
    SupportsPrefill,
)

REST_S: Final = 60.0
"""After a failure: to try takes seconds, in which the caller waits."""
ANSWER_WITHIN_S: Final = 6.0
"""Then another model answers: as long as a caller waits for the first word of one that is loaded."""

_log = structlog.get_logger()


class OnDemandLanguageModel:
    """See `LanguageModel`. The first call waits some seconds for its first answer, or another model gives it; this one
    is loaded all the same, and stays. One that cannot be loaded is tried again a minute later. For one event loop."""

    measured: Measured = "as what it wraps"

    def __init__(self, name: str, load: Callable[[], LanguageModel], stop: Callable[[], None] = lambda: None) -> None:
        """`load` is called in a thread, once at a time; it raises `StartupError`. `stop` has it come to its end
        soon."""
        self.name = name
        self._load = load
        self._stop = stop
        self._model: LanguageModel | None = None
        self._loading: asyncio.Task[LanguageModel] | None = None
        self._closed = False
        self._failure: tuple[float, str] | None = None
        """When it was, and why."""

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. Raises `ModelError`, also when the model cannot be loaded, or not in time."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                model = await self.loaded()
        except TimeoutError as error:
            raise ModelError(f"the language model {self.name} is still being loaded") from error
        async with aclosing(cast(AsyncGenerator[LlmOutput, None], model.respond(prompt))) as parts:
            async for part in parts:
                yield part

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`: the model is loaded, whether it prepares or not."""
        model = await self.loaded()
        if isinstance(model, SupportsPrefill):
            await model.prefill(prompt)

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`. Raises `ModelError` for a model that cannot be held to a form too."""
        model = await self.loaded()
        if not isinstance(model, SupportsJsonSchema):
            raise ModelError(f"{self.name} cannot be held to a form")
        return await model.complete_json(prompt, schema)

    async def loaded(self) -> LanguageModel:
        """The model, loaded now if it is not. Raises `ModelError`."""
        if self._model is not None:
            return self._model
        if self._failure is not None and time.monotonic() < self._failure[0] + REST_S:
            raise ModelError(self._failure[1])
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._open), name=f"load {self.name}")
            self._loading.add_done_callback(self._done)
        try:
            return await asyncio.shield(self._loading)
        except Exception as error:
            cause = error.message if isinstance(error, TrunklineError) else repr(error)
            raise ModelError(f"the language model {self.name} cannot be loaded: {cause}") from error

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`; 0 before it is loaded."""
        return self._model.expected_wait_s() if isinstance(self._model, ReportsQueueWait) else 0.0

    def close(self) -> None:
        """Free the model, also one that is being loaded: once it is there. Idempotent."""
        self._closed = True
        self._stop()
        _free(self._model)

    def _open(self) -> LanguageModel:
        began = time.monotonic()
        model = self._load()
        _log.info("model.loaded", name=self.name, kind="llm", seconds=round(time.monotonic() - began, 2))
        self._model = model
        if self._closed:
            self.close()
        return model

    def _done(self, task: asyncio.Task[LanguageModel]) -> None:
        self._loading = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = time.monotonic(), f"the language model {self.name} could not be loaded: {error}"
            if isinstance(error, ModelTrialError):
                log_left_out("llm", error)
            else:
                _log.warning("model.not_loaded", name=self.name, kind="llm", error=str(error))


def _free(model: object) -> None:
    if isinstance(model, Closable):
        model.close()
