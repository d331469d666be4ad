"""The batching engine: one thread that computes the answers of all calls, by continuous batching.

Each step evaluates what `schedule` makes of what all calls need next, in the sequences that `contexts` gives them: the
next words of all who speak together, then the prompts one by one, which no other way would be quicker. Calls come, go
and are given up between steps.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Literal

import structlog

from config.errors import ModelError
from models.llm.llama.batching.kv_cache import CacheChange, CachePlan, CopySequence, KvCacheSlots, TruncateSequence
from models.llm.llama.batching.scheduler import (
    TURN,
    BatchSlice,
    Priority,
    ResponseWork,
    StepLimits,
    StepTimePredictor,
    expected_wait_s,
    expired,
    next_step,
    urgency,
)
from models.llm.llama.bindings import Chunk, Context, Model
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling

EndReason = Literal["stop", "length"]
"""Why an answer ended: the model was done, or it had as many tokens as it may."""
_KEPT_FREE: Final = 1
"""Sequences that work for which nobody waits leaves to callers."""
_SHORT: Final = 1024
"""Talks up to this length are computed together, and so are those up to twice, four times ... as long: all that are
computed together take as long as the longest of them."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class BatchRequest:
    """An answer that is wanted. `owner` is the call: its memory is kept between its requests. `prompt` and `most` new
    tokens fit into the capacity; with `most` 0 the prompt is read for later. `on_token` and then once `on_end` are
    called from the engine's thread and return at once; the token that stops is not told."""

    owner: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    on_token: Callable[[int], None]
    on_end: Callable[[EndReason | ModelError], None]
    grammar: Grammar | None = None
    priority: Priority = Priority.LIVE
    first_token_timeout_s: float | None = None
    """The first token is not wanted later."""


@dataclass(slots=True, eq=False)
class _ActiveRequest:
    """One in the making. `known` is the prompt and what was written; its end `pending` must be evaluated before the
    next token. `turn`: little of the prompt is new. `sequence` is None before it has one, and while more important work
    has it. `alone`: a step with others failed, and it may be to blame."""

    key: int
    request: BatchRequest
    arrived_s: float
    known: list[int]
    pending: list[int]
    served_s: float
    turn: bool = False
    sequence: int | None = None
    sampler: Sampler | None = None
    cancelled: bool = False
    must_run_alone: bool = False

    @property
    def made(self) -> int:
        return len(self.known) - len(self.request.prompt)

    def work(self) -> ResponseWork:
        request = self.request
        deadline_s = None if request.first_token_timeout_s is None else self.arrived_s + request.first_token_timeout_s
        speaks = self.made > 0
        return ResponseWork(
            self.key,
            len(self.pending),
            speaks,
            self.arrived_s,
            self.served_s,
            request.priority,
            deadline_s,
            self.turn,
        )


@dataclass(frozen=True, slots=True)
class RequestHandle:
    """A request in the engine's hands."""

    _answer: _ActiveRequest
    _inbox: SimpleQueue[_ActiveRequest | None] = field(repr=False)

    def cancel(self) -> None:
        """Nobody wants it any more: no callback comes after the step that runs now. Any thread, at any time."""
        self._answer.cancelled = True
        self._inbox.put(None)


class BatchEngine:
    """A model, its memory and its thread."""

    def __init__(
        self,
        model: Model,
        context: Context,
        bounds: StepLimits | None = None,
        pace: StepTimePredictor | None = None,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes over `context`, which is `model`'s. `first` is done before all else, in the thread: it computes faster
        while no other thread does. Raises what that raises, with the context closed."""
        self.capacity = context.capacity
        self.steps = 0
        self._model, self._context = model, context
        self._contexts = KvCacheSlots(context.sequences)
        bounds = bounds or StepLimits()
        self._bounds = replace(bounds, batch_tokens=min(bounds.batch_tokens, context.batch_tokens))
        self._pace = pace or StepTimePredictor()
        self._keys = itertools.count()
        self._answers: dict[int, _ActiveRequest] = {}
        self._works: list[ResponseWork] = []  # as of the last step, for other threads
        self._lacking_since_s: float | None = None  # likewise: a caller's answer has no place
        self._may_copy, self._copied = True, False  # in this step; by the next batch
        self._inbox: SimpleQueue[_ActiveRequest | None] = SimpleQueue()  # None: look whether something has changed
        self._closing = False
        began = Future[None]()
        self._thread = threading.Thread(target=self._run, args=(first, began), name="language-model", daemon=True)
        self._thread.start()
        try:
            began.result()
        except Exception:
            context.close()
            raise

    def submit(self, request: BatchRequest) -> RequestHandle:
        """Begin an answer. Any thread; returns at once. Raises `ModelError` when the prompt cannot fit."""
        if not request.prompt or len(request.prompt) + request.max_tokens > self.capacity:
            raise ModelError(f"The prompt has {len(request.prompt)} tokens; {self.capacity} fit")
        now_s = time.monotonic()
        answer = _ActiveRequest(next(self._keys), request, now_s, list(request.prompt), request.prompt, now_s)
        if self._closing:
            raise ModelError("The language model is closed")
        self._inbox.put(answer)
        if not self._thread.is_alive():  # closed meanwhile
            self._reject_rest()
        return RequestHandle(answer, self._inbox)

    def expected_wait_s(self, tokens: int) -> float:
        """How long an answer with so many new tokens would wait for its first: at least as long as a caller's answer
        has waited by now for its place in the memory. Any thread."""
        since_s = self._lacking_since_s
        lacking_s = 0.0 if since_s is None else time.monotonic() - since_s
        return max(expected_wait_s(tokens, self._works, self._pace, self._bounds), lacking_s)

    def close(self) -> None:
        """Give up what is in the making, and end the thread. Waits for the step that runs. Idempotent."""
        self._closing = True
        self._inbox.put(None)
        self._thread.join()
        self._reject_rest()
        self._context.close()

    def _reject_rest(self) -> None:
        """What came too late for the thread to see."""
        with suppress(Empty):
            while True:
                if (answer := self._inbox.get_nowait()) is not None and not answer.cancelled:
                    answer.request.on_end(ModelError("The language model is closed"))

    def _run(self, first: Callable[[], None], began: Future[None]) -> None:
        try:
            first()
        except Exception as error:  # noqa: BLE001 - it is raised where the engine is made
            began.set_exception(error)
            return
        began.set_result(None)
        while self._collect():
            try:
                now_s = time.monotonic()
                self._drop_expired(now_s)
                self._assign_sequences(now_s)
                self._step(now_s)
            except Exception as error:  # noqa: BLE001 - the thread serves all calls, also those that come later
                _log.error("language_model.failed", error=repr(error), exc_info=error)
                self._fail(list(self._answers.values()), ModelError("The language model failed"))
        self._fail(list(self._answers.values()), ModelError("The language model is closed"))

    def _collect(self) -> bool:
        """Take what has arrived and let go of what nobody wants; waits until there is work. False at the end."""
        while True:
            with suppress(Empty):
                while True:
                    self._take(self._inbox.get_nowait())
            for answer in [answer for answer in self._answers.values() if answer.cancelled]:
                self._release(answer)
            if self._closing or self._answers:
                return not self._closing
            self._works, self._lacking_since_s = [], None
            self._take(self._inbox.get())

    def _take(self, arrived: _ActiveRequest | None) -> None:
        """One more. What was read ahead for the same call ends with it: from there the answer goes on."""
        if arrived is None:
            return
        if arrived.request.priority is not Priority.AFTER_CALL:
            for other in list(self._answers.values()):
                if other.request.priority is Priority.PREFILL and other.request.owner == arrived.request.owner:
                    self._finish(other, "length")
        self._answers[arrived.key] = arrived

    def _drop_expired(self, now_s: float) -> None:
        late = expired([answer.work() for answer in self._answers.values()], now_s)
        self._fail([self._answers[key] for key in late], ModelError("The language model is too busy"))

    def _assign_sequences(self, now_s: float) -> None:
        """A sequence for each that has none, the most urgent first. At most one copy is made in a step, for all who
        speak wait for it."""
        self._may_copy = True
        without = [answer for answer in self._answers.values() if answer.sequence is None]
        for answer in sorted(without, key=lambda one: (one.request.priority, urgency(one.work(), now_s, self._pace))):
            place = self._sequence_for(answer, now_s)
            if place is None:
                continue
            answer.sequence, answer.pending = place.sequence, answer.known[place.cached :]
            for change in place.changes:
                self._apply_change(change, answer)
            answer.turn = len(answer.pending) <= TURN
            if answer.sampler is None:
                try:
                    answer.sampler = Sampler(self._model, answer.request.sampling, answer.request.grammar)
                except Exception as error:  # noqa: BLE001 - of one call, and the thread serves all
                    self._fail([answer], ModelError(f"The answer cannot be drawn: {error}"))

    def _sequence_for(self, answer: _ActiveRequest, now_s: float) -> CachePlan | None:
        """A place for one; those who wait for an answer take it from work for which nobody waits."""
        request, rank = answer.request, int(answer.request.priority)
        placed = [other for other in self._answers.values() if other.sequence is not None]
        if placed and request.priority is not Priority.LIVE and self._contexts.idle <= _KEPT_FREE:
            return None
        enter = partial(self._contexts.acquire, request.owner, answer.known, now_s, rank=rank, copies=self._may_copy)
        place = enter()
        lesser = [other for other in placed if other.request.priority > rank]
        if (
            place is None
            and lesser
            and not (self._contexts.idle or self._contexts.should_wait(answer.known, rank=rank))
        ):
            self._preempt(max(lesser, key=lambda other: other.request.priority), now_s)
            place = enter()
        return place

    def _apply_change(self, change: CacheChange, answer: _ActiveRequest) -> None:
        """Change the memory as `contexts` wants it for an answer."""
        match change:
            case CopySequence(source, target):
                self._context.copy(source, target)
                self._may_copy, self._copied = False, True
            case TruncateSequence(sequence, tokens):
                if not self._context.truncate(sequence, tokens):
                    self._contexts.clear(sequence)
                    if sequence == answer.sequence:
                        answer.pending = answer.known

    def _preempt(self, answer: _ActiveRequest, now_s: float) -> None:
        """Its sequence is for others now; it goes on when there is another one."""
        assert answer.sequence is not None
        self._contexts.release(answer.sequence, now_s)
        answer.sequence, answer.pending = None, answer.known

    def _step(self, now_s: float) -> None:
        placed = [answer for answer in self._answers.values() if answer.sequence is not None]
        self._works = [answer.work() for answer in self._answers.values()]
        live = (answer for answer in self._answers.values() if answer.request.priority is Priority.LIVE)
        self._lacking_since_s = min((answer.served_s for answer in live if answer.sequence is None), default=None)
        shares = next_step([answer.work() for answer in placed], now_s, self._pace, self._bounds)
        shares = next(([share] for share in shares if self._answers[share.key].must_run_alone), shares)
        self.steps += bool(shares)
        for together in self._grouped(shares):
            self._evaluate(together, now_s)

    def _grouped(self, shares: Sequence[BatchSlice]) -> list[list[tuple[_ActiveRequest, Chunk]]]:
        """What is computed together: single tokens of talks of much the same length, in the order of their sequences;
        then each prompt by itself."""
        words: dict[int, list[tuple[_ActiveRequest, Chunk]]] = {}
        prompts = []
        for share in shares:
            answer = self._answers[share.key]
            chunk = self._chunk(answer, share)
            if share.tokens == 1:
                words.setdefault((chunk.at // _SHORT).bit_length(), []).append((answer, chunk))
            else:
                prompts.append([(answer, chunk)])
        return [*(sorted(each, key=lambda one: one[1].sequence) for each in words.values()), *prompts]

    def _evaluate(self, together: Sequence[tuple[_ActiveRequest, Chunk]], now_s: float) -> None:
        """Compute this, and go on with each of the answers."""
        chunks = [chunk for _, chunk in together]
        began_s = time.monotonic()
        try:
            rows = self._context.evaluate(chunks)
        except ModelError as error:
            self._retry_alone([answer for answer, _ in together], error, now_s)
            return
        if not self._copied:
            self._pace.learn(len(chunks), len(chunks[0].tokens), time.monotonic() - began_s)
        self._copied = False
        for (answer, chunk), row in zip(together, rows, strict=True):
            answer.served_s, answer.must_run_alone = now_s, False
            answer.pending = answer.pending[len(chunk.tokens) :]
            self._contexts.on_evaluated(chunk.sequence, chunk.tokens)
            if not answer.pending:
                self._continue(answer, row)

    def _chunk(self, answer: _ActiveRequest, share: BatchSlice) -> Chunk:
        assert answer.sequence is not None
        tokens = answer.pending[: share.tokens]
        answers = len(tokens) == len(answer.pending) and answer.request.max_tokens > 0
        return Chunk(answer.sequence, self._contexts.length(answer.sequence), tokens, answers)

    def _continue(self, answer: _ActiveRequest, row: int) -> None:
        """All that is known of an answer was evaluated: what is its next token? What goes wrong ends it alone."""
        if answer.cancelled:
            return
        try:
            self._write(answer, row)
        except Exception as error:  # noqa: BLE001 - of one call, and the thread serves all
            _log.error("language_model.answer_failed", owner=answer.request.owner, error=repr(error), exc_info=error)
            self._fail([answer], ModelError(f"The language model failed: {error}"))

    def _write(self, answer: _ActiveRequest, row: int) -> None:
        if answer.request.max_tokens == 0:
            self._finish(answer, "length")
            return
        assert answer.sampler is not None
        token = answer.sampler.draw(self._context, row)
        if self._model.is_end(token):
            self._finish(answer, "stop")
            return
        answer.known.append(token)
        answer.request.on_token(token)
        if answer.made >= answer.request.max_tokens:
            self._finish(answer, "length")
        else:
            answer.pending = [token]

    def _finish(self, answer: _ActiveRequest, end: EndReason | ModelError) -> None:
        if answer.key not in self._answers:
            return
        self._release(answer)
        answer.request.on_end(end)

    def _release(self, answer: _ActiveRequest) -> None:
        del self._answers[answer.key]
        if answer.sequence is not None:
            self._contexts.release(answer.sequence, time.monotonic())
        if answer.sampler is not None:
            answer.sampler.close()

    def _fail(self, answers: Sequence[_ActiveRequest], error: ModelError) -> None:
        for answer in answers:
            if answer.cancelled:
                self._release(answer)
            else:
                self._finish(answer, error)

    def _retry_alone(self, answers: Sequence[_ActiveRequest], error: ModelError, now_s: float) -> None:
        """A step failed: nobody knows what its sequences hold. Each answer tries again by itself, once: a fault of one
        is not to end the others."""
        _log.error("language_model.step_failed", error=error.message, answers=len(answers))
        for answer in answers:
            assert answer.sequence is not None
            self._context.truncate(answer.sequence, 0)
            self._contexts.clear(answer.sequence)
            if not answer.must_run_alone:
                self._preempt(answer, now_s)
        self._fail([answer for answer in answers if answer.must_run_alone], error)
        for answer in answers:
            answer.must_run_alone = True
