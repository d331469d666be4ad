"""One of the compared language models in a worker process: Trunkline's, llama-cpp-python's `Llama` behind a lock, or
the server of llama.cpp in the package xllamacpp. Each gets the same conversations through its public interface."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from bench.models.llama_cpp_python import llama_class
from bench.models.llm_sessions import LONG_ANSWER_TOKENS, Answer, LlmSessions, LlmUnderTest, Message
from bench.worker_process import serve_commands

THREADS: Final = len(os.sched_getaffinity(0))
SEQUENCES: Final = 17
"""Calls whose prompts each model caches: 16, and one that begins."""
FIRST_TOKEN_TIMEOUT_S: Final = 120.0
"""Long enough for every model, because slow answers are measured, too."""
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
            max_tokens=LONG_ANSWER_TOKENS,
        )
        if self._model.memory.sequences < SEQUENCES:
            raise RuntimeError("there is too little free memory for the sequences")

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """See `LlmUnderTest`."""
        from models.protocols import ChatMessage, ChatPrompt, TextDelta

        system, *rest = messages
        history = [ChatMessage(message["role"], message["content"]) for message in rest]  # type: ignore[arg-type]
        prompt = ChatPrompt(call, system["content"], history)
        async with aclosing(self._model.respond(prompt, first_token_timeout_s=FIRST_TOKEN_TIMEOUT_S)) as parts:
            async for part in parts:
                assert isinstance(part, TextDelta)
                # The model strips the leading space of an answer, with which every word begins here: restored.
                into.add(part.text if into.times else " " + part.text.lstrip())
                if len(into.times) == tokens:
                    break

    async def settle(self) -> None:
        """See `LlmUnderTest`."""
        await asyncio.sleep(0.5)


class LockedLlama:
    """`Llama.create_chat_completion` behind a lock: one call at a time, first come, first served. Flash attention is
    off, which is the default."""

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
                messages,
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
    """llama.cpp's own server, called in its process, without HTTP. Each call has a fixed slot; all other settings are
    the server's defaults: flash attention on, separate memory for each slot."""

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
        # By default it gives a call of the same agent the slot of another call, which must then process its prompt
        # again.
        slot = self._slots.setdefault(call, len(self._slots) % SEQUENCES)
        stop = threading.Event()
        request = {
            "messages": list(messages),
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "id_slot": slot,
        }

        def on_part(part: Any) -> bool:
            choices = part.get("choices") or [{}]
            if (text := choices[0].get("delta", {}).get("content")) and not stop.is_set():
                into.add(text)
            return stop.is_set()

        try:
            await asyncio.to_thread(self._server.handle_chat_completions, request, on_part)
        finally:
            stop.set()

    async def settle(self) -> None:
        """See `LlmUnderTest`."""
        await asyncio.sleep(0.5)


MODELS: Final[Mapping[str, Callable[[str], LlmUnderTest]]] = {
    "trunkline": TrunklineLlm,
    "locked_llama": LockedLlama,
    "xllamacpp": XllamacppServer,
}


async def main() -> None:
    """Serves commands from stdin."""
    sessions: list[LlmSessions] = []

    async def start(model: str, path: str) -> dict[str, Any]:
        sessions.append(LlmSessions(MODELS[model](path)))
        return {}

    async def measure(name: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = await getattr(sessions[0], name)(**arguments)
        return result

    loop = asyncio.get_running_loop()
    from concurrent.futures import ThreadPoolExecutor

    loop.set_default_executor(ThreadPoolExecutor(32))  # a waiting call takes a thread
    await serve_commands({"start": start, "measure": measure})


if __name__ == "__main__":
    asyncio.run(main())
