"""Prefills the language model's prompt before it is asked: the system prompt while the phone rings, and what was heard
of a response while the caller speaks."""

from __future__ import annotations

import asyncio

import structlog

from config.errors import ModelError
from models.protocols import ChatPrompt, LanguageModel, SupportsPrefill

log = structlog.get_logger()


class PromptPrefill:
    """For one call. The newest prompt counts."""

    def __init__(self, model: LanguageModel) -> None:
        """Does nothing for a model that cannot prefill."""
        self._model = model if isinstance(model, SupportsPrefill) else None
        self._task: asyncio.Task[None] | None = None
        self._prompt: ChatPrompt | None = None  # what is prefilled
        self._closed = False

    def start(self, prompt: ChatPrompt) -> None:
        """Prefill a prompt that the user's words will follow, unless that is under way; returns at once."""
        if prompt == self._prompt:
            return
        self.stop()
        self._prompt = prompt
        if self._model is not None and not self._closed:
            self._task = asyncio.create_task(self._prefill(self._model, prompt))

    def stop(self) -> None:
        """The model is asked now, and reads the prompt by itself."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._prompt = None

    def close(self) -> None:
        """The call has ended. Idempotent."""
        self._closed = True
        self.stop()

    async def _prefill(self, model: SupportsPrefill, prompt: ChatPrompt) -> None:
        """An error here comes again when the model is asked, and is handled there."""
        try:
            await model.prefill(prompt)
        except ModelError as error:
            log.info("ahead.failed", call_id=prompt.call_id, error=str(error))
        except Exception as error:
            log.error("ahead.broken", call_id=prompt.call_id, error=repr(error), exc_info=error)
