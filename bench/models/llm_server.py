"""A language model that is measured, in a process of its own: ours, llama-cpp-python's `Llama` behind a lock, or the
server of llama.cpp in the package xllamacpp. Each is told the same talks over the interface that its users have."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from bench.models.llama_cpp_python import llama_class
from bench.models.llm_load import LONG, Answer, LlmSessions, LlmUnderTest, Message
from bench.worker_process import obey

THREADS: Final = len(os.sched_getaffinity(0))
SEQUENCES: Final = 17
"""Calls that each remembers: 16, and one that begins."""
PATIENCE_S: Final = 120.0
"""What takes long is to be measured, not given up."""
CAPACITY: Final = 1536
"""Tokens of a call."""


class TrunklineLlm:
    """`LlamaLanguageModel`, as the server uses it."""

    def __init__(self, path: str) -> None:
        from config import logging as logs
        from models.llm.llama.language_model import LlamaLanguageModel
        from models.llm.llama.output.sampling import Sampling

        logs.configure("warning", "console")
        greedy = Sampling(temperature=0)
        self._model = LlamaLanguageModel(
            Path(path),
            sequences=SEQUENCES,
            context_length=CAPACITY,
            threads=THREADS,
            sampling=greedy,
            max_tokens=LONG,
        )
        if self._model.memory.sequences < SEQUENCES:
            raise RuntimeError("there is too little memory free for the talks")

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """See `LlmUnderTest`."""
        from models.protocols import ChatMessage, ChatPrompt, TextDelta

        system, *rest = messages
        said = [ChatMessage(message["role"], message["content"]) for message in rest]  # type: ignore[arg-type]
        prompt = ChatPrompt(call, system["content"], said)
        async with aclosing(self._model.respond(prompt, first_token_timeout_s=PATIENCE_S)) as parts:
            async for part in parts:
                assert isinstance(part, TextDelta)
                # Models begin their answers without the space with which all words here begin: it is taken away.
                into.add(part.text if into.times else " " + part.text.lstrip())
                if len(into.times) == tokens:
                    break

    async def settle(self) -> None:
        """See `LlmUnderTest`."""
        await asyncio.sleep(0.5)


class LockedLlama:
    """`Llama.create_chat_completion`, one call at a time; those that wait are served in the order in which they came.
    Flash attention is off, as it is unless somebody asks for it."""

    def __init__(self, path: str) -> None:
        self._model = llama_class()(path, n_ctx=CAPACITY, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)
        self._lock, self._computes = asyncio.Lock(), threading.Lock()

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """See `LlmUnderTest`."""
        stop = threading.Event()
        async with self._lock:
            try:
                await asyncio.to_thread(self._write, list(messages), tokens, into, stop)
            finally:
                stop.set()

    def _write(self, messages: list[Message], tokens: int, into: Answer, stop: threading.Event) -> None:
        with self._computes:
            parts: Any = self._model.create_chat_completion(
                messages,  # type: ignore[arg-type]
                temperature=0,
                max_tokens=tokens,
                stream=True,
            )
            for part in parts:
                if stop.is_set():
                    break
                if text := part["choices"][0]["delta"].get("content"):
                    into.add(text)

    async def settle(self) -> None:
        """See `LlmUnderTest`."""
        await asyncio.to_thread(self._computes.acquire)
        self._computes.release()


class XllamacppServer:
    """llama.cpp's own server, asked in its process, without HTTP. Each call is told its slot; all else are its
    defaults: flash attention on, memory of its own for each slot."""

    def __init__(self, path: str) -> None:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = path
        parameters.n_parallel, parameters.n_ctx = SEQUENCES, SEQUENCES * CAPACITY
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
        self._server = xllamacpp.Server(parameters)
        self._slots: dict[str, int] = {}

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """See `LlmUnderTest`."""
        # Left to itself, it gives a call of the same agent the slot of another call, which then reads its talk anew.
        slot = self._slots.setdefault(call, len(self._slots) % SEQUENCES)
        stop = threading.Event()
        request = {
            "messages": list(messages),
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "id_slot": slot,
        }

        def hear(part: Any) -> bool:
            choices = part.get("choices") or [{}]
            if (text := choices[0].get("delta", {}).get("content")) and not stop.is_set():
                into.add(text)
            return stop.is_set()

        try:
            await asyncio.to_thread(self._server.handle_chat_completions, request, hear)
        finally:
            stop.set()

    async def settle(self) -> None:
        """See `LlmUnderTest`."""
        await asyncio.sleep(0.5)


async def main() -> None:
    """Take orders."""
    sessions: list[LlmSessions] = []

    async def start(model: str, path: str) -> dict[str, Any]:
        made: LlmUnderTest = {"ours": TrunklineLlm, "locked": LockedLlama, "peer": XllamacppServer}[model](path)
        sessions.append(LlmSessions(made))
        return {}

    async def measure(name: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = await getattr(sessions[0], name)(**arguments)
        return result

    loop = asyncio.get_running_loop()
    from concurrent.futures import ThreadPoolExecutor

    loop.set_default_executor(ThreadPoolExecutor(32))  # a waiting call takes a thread
    await obey({"start": start, "measure": measure})


if __name__ == "__main__":
    asyncio.run(main())
