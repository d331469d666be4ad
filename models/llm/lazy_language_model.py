"""A language model that is loaded at first use: installed, but not the default."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

import structlog

from config.errors import LoadCheckError, ModelError, TrunklineError
from models.model_files.load_checker import log_left_out
from models.protocols import (
    ChatPrompt,
    Closable,
    CostSource,
    LanguageModel,
    LlmOutput,
    ReportsQueueWait,
    SupportsJsonSchema,
    SupportsPrefill,
)

RETRY_INTERVAL_S: Final = 60.0
"""Seconds between attempts after a failure, because each takes seconds in which a caller waits."""
LOAD_TIMEOUT_S: Final = 6.0
"""Seconds that a response waits for loading before another model responds; as for the first token of a loaded model."""

_log = structlog.get_logger()


class LazyLanguageModel:
    """See `LanguageModel`. The first call waits some seconds for its first response, or falls back to another model;
    this one is loaded all the same, and stays loaded. After a failure the next attempt is a minute later. For one event
    loop."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, name: str, load: Callable[[], LanguageModel], stop: Callable[[], None] = lambda: None) -> None:
        """`load` is called in a thread, once at a time; it raises `StartupError`. `stop` makes it return soon."""
        self.name = name
        self._load_model = load
        self._cancel_load = stop
        self._model: LanguageModel | None = None
        self._loading: asyncio.Task[LanguageModel] | None = None
        self._closed = False
        self._failure: tuple[float, str] | None = None
        """Monotonic time in seconds, and message."""

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. Raises `ModelError` also if the model cannot be loaded in time."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                model = await self.load()
        except TimeoutError as error:
            raise ModelError(f"the language model {self.name} is still being loaded") from error
        async with aclosing(cast(AsyncGenerator[LlmOutput, None], model.respond(prompt))) as parts:
            async for part in parts:
                yield part

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`. Loads the model even if it does not support prefill."""
        model = await self.load()
        if isinstance(model, SupportsPrefill):
            await model.prefill(prompt)

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`. Raises `ModelError` also for a model without JSON Schema support."""
        model = await self.load()
        if not isinstance(model, SupportsJsonSchema):
            raise ModelError(f"{self.name} does not support JSON Schema")
        return await model.complete_json(prompt, schema)

    async def load(self) -> LanguageModel:
        """Load the model if necessary, and return it. Raises `ModelError`."""
        if self._model is not None:
            return self._model
        if self._failure is not None and time.monotonic() < self._failure[0] + RETRY_INTERVAL_S:
            raise ModelError(self._failure[1])
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load_in_thread), name=f"load {self.name}")
            self._loading.add_done_callback(self._on_loaded)
        try:
            return await asyncio.shield(self._loading)
        except Exception as error:
            cause = error.message if isinstance(error, TrunklineError) else repr(error)
            raise ModelError(f"the language model {self.name} cannot be loaded: {cause}") from error

    @property
    def loaded(self) -> LanguageModel | None:
        """The model; None while not loaded."""
        return self._model

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`; 0 while not loaded."""
        return self._model.expected_wait_s() if isinstance(self._model, ReportsQueueWait) else 0.0

    def close(self) -> None:
        """Close the model; one that is being loaded is closed after that. Idempotent."""
        self._closed = True
        self._cancel_load()
        _close_model(self._model)

    def _load_in_thread(self) -> LanguageModel:
        started = time.monotonic()
        model = self._load_model()
        _log.info("model.loaded", name=self.name, kind="llm", seconds=round(time.monotonic() - started, 2))
        self._model = model
        if self._closed:
            self.close()
        return model

    def _on_loaded(self, task: asyncio.Task[LanguageModel]) -> None:
        self._loading = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = time.monotonic(), f"the language model {self.name} could not be loaded: {error}"
            if isinstance(error, LoadCheckError):
                log_left_out("llm", error)
            else:
                _log.warning("model.not_loaded", name=self.name, kind="llm", error=str(error))


def _close_model(model: object) -> None:
    if isinstance(model, Closable):
        model.close()
