"""The batching engine: one thread that computes the responses of all calls, by continuous batching.

Each step evaluates the slices of `scheduler.next_step` in the sequences of `kv_cache.KvCacheSlots`: the next tokens of
all generating requests in one batch, then prompts one by one, because batching prompts gains nothing. Requests arrive,
end and are cancelled between steps.
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
    MAX_TURN_TOKENS,
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
from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling

EndReason = Literal["stop", "length"]
"""Why a response ended: at the model's end-of-generation token, or at `max_tokens`."""
_RESERVED_SEQUENCES: Final = 1
"""Sequences that prefill and post-call work leave to callers."""
_LENGTH_GROUP_TOKENS: Final = 1024
"""Sequences up to this length are batched together, and so are those up to twice, four times, ... as long, because a
batch takes as long as its longest sequence."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class BatchRequest:
    """A request for a response. `owner` is the call, whose KV cache is kept between its requests. `prompt` and
    `max_tokens` together fit the context; with `max_tokens` 0 the prompt is only prefilled. `on_token`, and at the end
    `on_end` once, are called from the engine's thread and do not block; the end-of-generation token is not passed to
    `on_token`."""

    owner: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    on_token: Callable[[int], None]
    on_end: Callable[[EndReason | ModelError], None]
    grammar: Grammar | None = None
    priority: Priority = Priority.LIVE
    first_token_timeout_s: float | None = None
    """Seconds after which the request fails without a first token."""


@dataclass(slots=True, eq=False)
class _ActiveRequest:
    """A request in progress. `tokens`: the prompt and the generated tokens; its last `pending` ones are to be evaluated
    before the next token. `is_turn`: little of the prompt is new. `sequence`: None while waiting for one, or preempted.
    `must_run_alone`: a batch that it was part of failed."""

    key: int
    request: BatchRequest
    arrived_s: float
    tokens: list[int]
    pending: list[int]
    last_step_s: float
    is_turn: bool = False
    sequence: int | None = None
    sampler: Sampler | None = None
    cancelled: bool = False
    must_run_alone: bool = False

    @property
    def generated_tokens(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    def work(self) -> ResponseWork:
        request = self.request
        deadline_s = None if request.first_token_timeout_s is None else self.arrived_s + request.first_token_timeout_s
        is_generating = self.generated_tokens > 0
        return ResponseWork(
            self.key,
            len(self.pending),
            is_generating,
            self.arrived_s,
            self.last_step_s,
            request.priority,
            deadline_s,
            self.is_turn,
        )


@dataclass(frozen=True, slots=True)
class RequestHandle:
    """A submitted request."""

    _active: _ActiveRequest
    _arrivals: SimpleQueue[_ActiveRequest | None] = field(repr=False)

    def cancel(self) -> None:
        """Cancel the request: no callback after the running step. Any thread, at any time."""
        self._active.cancelled = True
        self._arrivals.put(None)


class BatchEngine:
    """A model with its context and its thread."""

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        limits: StepLimits | None = None,
        step_times: StepTimePredictor | None = None,
        before_start: Callable[[], None] = lambda: None,
    ) -> None:
        """Owns `context`, which is of `model`. `before_start` runs first in the engine's thread, while no other thread
        computes. Raises what that raises, after closing the context."""
        self.context_length = context.context_length
        self.steps = 0
        self._model, self._context = model, context
        self._kv_cache = KvCacheSlots(context.sequences)
        limits = limits or StepLimits()
        self._limits = replace(limits, batch_tokens=min(limits.batch_tokens, context.batch_tokens))
        self._step_times = step_times or StepTimePredictor()
        self._keys = itertools.count()
        self._active_requests: dict[int, _ActiveRequest] = {}
        self._work_snapshot: list[ResponseWork] = []  # as of the last step, for other threads
        self._waiting_for_sequence_since_s: float | None = None  # likewise: a caller's answer has no place
        self._may_copy, self._copied = True, False  # in this step; by the next batch
        self._arrivals: SimpleQueue[_ActiveRequest | None] = SimpleQueue()  # None: look whether something has changed
        self._closing = False
        started = Future[None]()
        self._thread = threading.Thread(
            target=self._run, args=(before_start, started), name="language-model", daemon=True
        )
        self._thread.start()
        try:
            started.result()
        except Exception:
            context.close()
            raise

    def submit(self, request: BatchRequest) -> RequestHandle:
        """Submit a request. Any thread; does not block. Raises `ModelError` if the prompt does not fit."""
        if not request.prompt or len(request.prompt) + request.max_tokens > self.context_length:
            raise ModelError(f"The prompt has {len(request.prompt)} tokens; {self.context_length} fit")
        now_s = time.monotonic()
        active = _ActiveRequest(next(self._keys), request, now_s, list(request.prompt), request.prompt, now_s)
        if self._closing:
            raise ModelError("The language model is closed")
        self._arrivals.put(active)
        if not self._thread.is_alive():  # closed meanwhile
            self._reject_arrivals()
        return RequestHandle(active, self._arrivals)

    def expected_wait_s(self, tokens: int) -> float:
        """Seconds that a request with `tokens` new prompt tokens would wait for its first token: at least as long as a
        live request has waited for a sequence so far. Any thread."""
        since_s = self._waiting_for_sequence_since_s
        sequence_wait_s = 0.0 if since_s is None else time.monotonic() - since_s
        return max(expected_wait_s(tokens, self._work_snapshot, self._step_times, self._limits), sequence_wait_s)

    def close(self) -> None:
        """Fail all requests and end the thread. Waits for the running step. Idempotent."""
        self._closing = True
        self._arrivals.put(None)
        self._thread.join()
        self._reject_arrivals()
        self._context.close()

    def _reject_arrivals(self) -> None:
        """Fail the requests that arrived after the thread's end."""
        with suppress(Empty):
            while True:
                if (active := self._arrivals.get_nowait()) is not None and not active.cancelled:
                    active.request.on_end(ModelError("The language model is closed"))

    def _run(self, before_start: Callable[[], None], started: Future[None]) -> None:
        try:
            before_start()
        except Exception as error:  # noqa: BLE001 - it is raised where the engine is made
            started.set_exception(error)
            return
        started.set_result(None)
        while self._collect():
            try:
                now_s = time.monotonic()
                self._drop_expired(now_s)
                self._assign_sequences(now_s)
                self._step(now_s)
            except Exception as error:  # noqa: BLE001 - the thread serves all calls, also those that come later
                _log.error("language_model.failed", error=repr(error), exc_info=error)
                self._fail(list(self._active_requests.values()), ModelError("The language model failed"))
        self._fail(list(self._active_requests.values()), ModelError("The language model is closed"))

    def _collect(self) -> bool:
        """Accept new requests and release cancelled ones; waits until there is work. Returns False on close."""
        while True:
            with suppress(Empty):
                while True:
                    self._accept(self._arrivals.get_nowait())
            for active in [active for active in self._active_requests.values() if active.cancelled]:
                self._release(active)
            if self._closing or self._active_requests:
                return not self._closing
            self._work_snapshot, self._waiting_for_sequence_since_s = [], None
            self._accept(self._arrivals.get())

    def _accept(self, arrived: _ActiveRequest | None) -> None:
        """Accept a request. It ends a prefill of the same call, whose KV cache it reuses."""
        if arrived is None:
            return
        if arrived.request.priority is not Priority.AFTER_CALL:
            for other in list(self._active_requests.values()):
                if other.request.priority is Priority.PREFILL and other.request.owner == arrived.request.owner:
                    self._finish(other, "length")
        self._active_requests[arrived.key] = arrived

    def _drop_expired(self, now_s: float) -> None:
        expired_keys = expired([active.work() for active in self._active_requests.values()], now_s)
        self._fail([self._active_requests[key] for key in expired_keys], ModelError("The language model is too busy"))

    def _assign_sequences(self, now_s: float) -> None:
        """Assign a sequence to each request without one, the most urgent first. At most one KV cache copy a step,
        because all generating requests wait for it."""
        self._may_copy = True
        without_sequence = [active for active in self._active_requests.values() if active.sequence is None]
        for active in sorted(
            without_sequence, key=lambda one: (one.request.priority, urgency(one.work(), now_s, self._step_times))
        ):
            plan = self._sequence_for(active, now_s)
            if plan is None:
                continue
            active.sequence, active.pending = plan.sequence, active.tokens[plan.cached :]
            for change in plan.changes:
                self._apply_change(change, active)
            active.is_turn = len(active.pending) <= MAX_TURN_TOKENS
            if active.sampler is None:
                try:
                    active.sampler = Sampler(self._model, active.request.sampling, active.request.grammar)
                except Exception as error:  # noqa: BLE001 - of one call, and the thread serves all
                    self._fail([active], ModelError(f"The answer cannot be sampled: {error}"))

    def _sequence_for(self, active: _ActiveRequest, now_s: float) -> CachePlan | None:
        """A sequence for a request; a more important request preempts prefill and post-call work."""
        request, rank = active.request, int(active.request.priority)
        with_sequence = [other for other in self._active_requests.values() if other.sequence is not None]
        if with_sequence and request.priority is not Priority.LIVE and self._kv_cache.idle <= _RESERVED_SEQUENCES:
            return None
        acquire = partial(self._kv_cache.acquire, request.owner, active.tokens, now_s, rank=rank, copies=self._may_copy)
        plan = acquire()
        less_important = [other for other in with_sequence if other.request.priority > rank]
        if (
            plan is None
            and less_important
            and not (self._kv_cache.idle or self._kv_cache.should_wait(active.tokens, rank=rank))
        ):
            self._preempt(max(less_important, key=lambda other: other.request.priority), now_s)
            plan = acquire()
        return plan

    def _apply_change(self, change: CacheChange, active: _ActiveRequest) -> None:
        """Apply a change of `KvCacheSlots` to the KV cache."""
        match change:
            case CopySequence(source, target):
                self._context.copy(source, target)
                self._may_copy, self._copied = False, True
            case TruncateSequence(sequence, tokens):
                if not self._context.truncate(sequence, tokens):
                    self._kv_cache.clear(sequence)
                    if sequence == active.sequence:
                        active.pending = active.tokens

    def _preempt(self, active: _ActiveRequest, now_s: float) -> None:
        """Take a request's sequence from it; it continues with another one."""
        assert active.sequence is not None
        self._kv_cache.release(active.sequence, now_s)
        active.sequence, active.pending = None, active.tokens

    def _step(self, now_s: float) -> None:
        with_sequence = [active for active in self._active_requests.values() if active.sequence is not None]
        self._work_snapshot = [active.work() for active in self._active_requests.values()]
        live_waiting = (active for active in self._active_requests.values() if active.request.priority is Priority.LIVE)
        self._waiting_for_sequence_since_s = min(
            (active.last_step_s for active in live_waiting if active.sequence is None), default=None
        )
        slices = next_step([active.work() for active in with_sequence], now_s, self._step_times, self._limits)
        slices = next(
            ([batch_slice] for batch_slice in slices if self._active_requests[batch_slice.key].must_run_alone), slices
        )
        self.steps += bool(slices)
        for group in self._evaluation_groups(slices):
            self._evaluate(group, now_s)

    def _evaluation_groups(self, slices: Sequence[BatchSlice]) -> list[list[tuple[_ActiveRequest, Chunk]]]:
        """Slices by batch: single tokens of sequences of similar length, in the order of the sequences; then each
        prompt by itself."""
        token_groups: dict[int, list[tuple[_ActiveRequest, Chunk]]] = {}
        prompts = []
        for batch_slice in slices:
            active = self._active_requests[batch_slice.key]
            chunk = self._chunk(active, batch_slice)
            if batch_slice.tokens == 1:
                token_groups.setdefault((chunk.position // _LENGTH_GROUP_TOKENS).bit_length(), []).append(
                    (active, chunk)
                )
            else:
                prompts.append([(active, chunk)])
        return [*(sorted(each, key=lambda one: one[1].sequence) for each in token_groups.values()), *prompts]

    def _evaluate(self, group: Sequence[tuple[_ActiveRequest, Chunk]], now_s: float) -> None:
        """Evaluate a batch, and advance its requests."""
        chunks = [chunk for _, chunk in group]
        began_s = time.monotonic()
        try:
            rows = self._context.evaluate(chunks)
        except ModelError as error:
            self._retry_alone([active for active, _ in group], error, now_s)
            return
        if not self._copied:
            self._step_times.learn(len(chunks), len(chunks[0].tokens), time.monotonic() - began_s)
        self._copied = False
        for (active, chunk), row in zip(group, rows, strict=True):
            active.last_step_s, active.must_run_alone = now_s, False
            active.pending = active.pending[len(chunk.tokens) :]
            self._kv_cache.on_evaluated(chunk.sequence, chunk.tokens)
            if not active.pending:
                self._advance(active, row)

    def _chunk(self, active: _ActiveRequest, batch_slice: BatchSlice) -> Chunk:
        assert active.sequence is not None
        tokens = active.pending[: batch_slice.tokens]
        actives = len(tokens) == len(active.pending) and active.request.max_tokens > 0
        return Chunk(active.sequence, self._kv_cache.length(active.sequence), tokens, actives)

    def _advance(self, active: _ActiveRequest, row: int) -> None:
        """Sample the next token of a request whose tokens are all evaluated. A failure ends this request alone."""
        if active.cancelled:
            return
        try:
            self._sample_next(active, row)
        except Exception as error:  # noqa: BLE001 - of one call, and the thread serves all
            _log.error("language_model.answer_failed", owner=active.request.owner, error=repr(error), exc_info=error)
            self._fail([active], ModelError(f"The language model failed: {error}"))

    def _sample_next(self, active: _ActiveRequest, row: int) -> None:
        if active.request.max_tokens == 0:
            self._finish(active, "length")
            return
        assert active.sampler is not None
        token = active.sampler.sample(self._context, row)
        if self._model.is_end_of_generation(token):
            self._finish(active, "stop")
            return
        active.tokens.append(token)
        active.request.on_token(token)
        if active.generated_tokens >= active.request.max_tokens:
            self._finish(active, "length")
        else:
            active.pending = [token]

    def _finish(self, active: _ActiveRequest, end: EndReason | ModelError) -> None:
        if active.key not in self._active_requests:
            return
        self._release(active)
        active.request.on_end(end)

    def _release(self, active: _ActiveRequest) -> None:
        del self._active_requests[active.key]
        if active.sequence is not None:
            self._kv_cache.release(active.sequence, time.monotonic())
        if active.sampler is not None:
            active.sampler.close()

    def _fail(self, actives: Sequence[_ActiveRequest], error: ModelError) -> None:
        for active in actives:
            if active.cancelled:
                self._release(active)
            else:
                self._finish(active, error)

    def _retry_alone(self, actives: Sequence[_ActiveRequest], error: ModelError, now_s: float) -> None:
        """After a failed batch the content of its sequences is unknown. Each request is retried alone, once, so that
        the fault of one does not end the others."""
        _log.error("language_model.step_failed", error=error.message, answers=len(actives))
        for active in actives:
            assert active.sequence is not None
            self._context.truncate(active.sequence, 0)
            self._kv_cache.clear(active.sequence)
            if not active.must_run_alone:
                self._preempt(active, now_s)
        self._fail([active for active in actives if active.must_run_alone], error)
        for active in actives:
            active.must_run_alone = True
