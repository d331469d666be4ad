"""Prefills the language model's prompt ahead of the request: the system prompt while the phone rings, and the played
part of a response while the caller speaks."""

from __future__ import annotations

import asyncio

import structlog

from config.errors import ModelError
from models.protocols import ChatPrompt, LanguageModel, SupportsPrefill

log = structlog.get_logger()


class PromptPrefill:
    """The prefill of one call. A new prompt replaces the one before."""

    def __init__(self, model: LanguageModel) -> None:
        """Does nothing for a model that cannot prefill."""
        self._model = model if isinstance(model, SupportsPrefill) else None
        self._task: asyncio.Task[None] | None = None
        self._prompt: ChatPrompt | None = None  # the one that is prefilled
        self._closed = False

    def start(self, prompt: ChatPrompt) -> None:
        """Start to prefill a prompt that the user's words will follow, unless it has been started; returns at once."""
        if prompt == self._prompt:
            return
        self.stop()
        self._prompt = prompt
        if self._model is not None and not self._closed:
            self._task = asyncio.create_task(self._prefill(self._model, prompt))

    def stop(self) -> None:
        """Stop, because the model is asked now and reads the prompt itself."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._prompt = None

    def close(self) -> None:
        """Stop for good. Idempotent."""
        self._closed = True
        self.stop()

    async def _prefill(self, model: SupportsPrefill, prompt: ChatPrompt) -> None:
        """Log errors only, because they occur again when the model is asked, and are handled there."""
        try:
            await model.prefill(prompt)
        except ModelError as error:
            log.info("prompt_prefill.failed", call_id=prompt.call_id, error=str(error), deprecated_event="ahead.failed")
        except Exception as error:
            log.error(
                "prompt_prefill.error",
                call_id=prompt.call_id,
                error=repr(error),
                exc_info=error,
                deprecated_event="ahead.broken",
            )
