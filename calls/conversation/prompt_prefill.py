"""Lets the language model of a call read what it will be asked before it is asked: what the agent was told while the
phone still rings, and what was heard of an answer while the caller speaks."""

from __future__ import annotations

import asyncio

import structlog

from config.errors import ModelError
from models.protocols import ChatPrompt, LanguageModel, SupportsPrefill

log = structlog.get_logger()


class PromptPrefill:
    """For one call. The newest prompt counts."""

    def __init__(self, language: LanguageModel) -> None:
        """A model that does not prepare is left alone."""
        self._model = language if isinstance(language, SupportsPrefill) else None
        self._task: asyncio.Task[None] | None = None
        self._prompt: ChatPrompt | None = None  # what it reads
        self._closed = False

    def start(self, prompt: ChatPrompt) -> None:
        """Begin to read a talk that the caller goes on with, or go on with it; returns at once."""
        if prompt == self._prompt:
            return
        self.stop()
        self._prompt = prompt
        if self._model is not None and not self._closed:
            self._task = asyncio.create_task(self._prepare(self._model, prompt))

    def stop(self) -> None:
        """The model is asked now, and reads by itself."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._prompt = None

    def close(self) -> None:
        """The call is over. Idempotent."""
        self._closed = True
        self.stop()

    async def _prepare(self, model: SupportsPrefill, prompt: ChatPrompt) -> None:
        """What goes wrong here goes wrong again when the model is asked, and is dealt with there."""
        try:
            await model.prefill(prompt)
        except ModelError as error:
            log.info("ahead.failed", call_id=prompt.call_id, error=str(error))
        except Exception as error:
            log.error("ahead.broken", call_id=prompt.call_id, error=repr(error), exc_info=error)
