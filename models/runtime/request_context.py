"""For whom models work: the call of the current task, in a context variable that the tasks of the call inherit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class ModelFallback:
    """A model failed, and the next one of its chain has taken over; of `tts` these are voices. `to` None: there was no
    other one. `reason`: see `models.errors.failure_reason`."""

    kind: Literal["llm", "stt", "tts"]
    model: str
    to: str | None
    reason: str


@dataclass(frozen=True)
class RequestContext:
    """Ids that are empty are unknown. `live`: a caller waits. `on_fallback` is called in the event loop."""

    organization_id: str = ""
    agent_id: str = ""
    call_id: str = ""
    live: bool = False
    on_fallback: Callable[[ModelFallback], None] = lambda _: None


_UNKNOWN: Final = RequestContext()
_context: ContextVar[RequestContext] = ContextVar("model_request_context", default=_UNKNOWN)


def current() -> RequestContext:
    """The context of the current task."""
    return _context.get()


@contextmanager
def requests_for(context: RequestContext) -> Iterator[None]:
    """The requests to models in the block, and in tasks that it begins, are made for `context`."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)
