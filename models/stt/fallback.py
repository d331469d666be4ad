"""Fallback between recognizers of whole turns: if one fails, the next one transcribes the turn, if there is time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import structlog

from config.errors import ModelError
from media.audio_port import Samples
from models.errors import RemoteModelError, failure_reason
from models.protocols import CostSource
from models.runtime import request_context
from models.runtime.request_context import ModelFallback
from models.stt.two_pass import Transcriber

MIN_TIME_S: Final = 0.3
"""Least remaining seconds for the next recognizer."""

log = structlog.get_logger()


class FallbackTranscriber:
    """See `Transcriber`. Tries its recognizers in order."""

    cost_source: CostSource = "remote"

    def __init__(self, transcribers: Sequence[Transcriber], first_pass: str, total_s: float) -> None:
        """`first_pass`: the name of the model whose text is used when all fail. `total_s`: seconds for a turn."""
        self.name = transcribers[0].name
        self.transcribers: Final = tuple(transcribers)
        self._first_pass = first_pass
        self._total_s = total_s

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """See `Transcriber.transcribe`. Raises the last error if all fail or the time is over."""
        deadline_s = time.monotonic() + self._total_s
        for transcriber, following in zip(self.transcribers, (*self.transcribers[1:], None), strict=True):
            try:
                return await transcriber.transcribe(blocks, rate, language)
            except ModelError as error:
                in_time = time.monotonic() + MIN_TIME_S <= deadline_s
                to = following.name if following is not None and in_time else self._first_pass
                self._report(transcriber.name, to, error)
                if to == self._first_pass:
                    raise
        raise AssertionError("there is at least one recognizer")

    def _report(self, model: str, to: str, error: ModelError) -> None:
        reason = failure_reason(error)
        write_log = log.info if isinstance(error, RemoteModelError) and error.kind == "resting" else log.warning
        context = request_context.current()
        write_log("stt.fell_back", call_id=context.call_id, model=model, to=to, error=error.message)
        context.on_fallback(ModelFallback("stt", model, to, reason))
