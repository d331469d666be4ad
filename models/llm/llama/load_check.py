"""Load check of a GGUF file: loads it, evaluates a prompt and generates 32 tokens in a batch of two, with the code,
threads and memory mapping of calls, and in another thread than the loading one, like calls."""

from __future__ import annotations

import glob
import re
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.model_files.load_checker import LoadCheckCandidate, NoModelOutput
from models.protocols import ChatMessage, ChatPrompt
from models.runtime.cpu_memory_limits import available_cores, free_bytes

ENGINE: Final = "llama.cpp"
TOKENS_PER_SEQUENCE: Final = 32
"""Tokens that each of the two sequences generates."""
_CONTEXT_LENGTH: Final = 512
_SPLIT_FILE: Final = re.compile(r"(.+)-00001-of-(\d{5})\.gguf")
_PACKAGE: Final = "llama-cpp-python"
_PROMPT: Final = ChatPrompt("trial", "You answer the telephone in one short sentence.", [ChatMessage("user", "Hello?")])


def gguf_candidate(path: Path, name: str) -> LoadCheckCandidate:
    """The load check of a language model's file."""
    # llama.cpp's library is not loaded in this process, because it may be built for another processor.
    library = sys.modules.get("models.llm.llama.bindings")
    loaded_weights = library.loaded_weights_bytes() if library else 0
    recipe = {
        "path": str(path), "name": name, "threads": max(1, int(available_cores())),
        "free_bytes": free_bytes() - loaded_weights,
    }  # fmt: skip
    return LoadCheckCandidate(
        name, ENGINE, recipe, _split_files(path), (_PACKAGE,), _library_files(), result_depends_on=("threads",)
    )


def header_candidate(path: Path, name: str) -> LoadCheckCandidate:
    """The load check of a file without its weights; its result has `trained_for`, the training context in tokens."""
    recipe = {"path": str(path), "name": name, "header": True}
    return LoadCheckCandidate(
        name,
        ENGINE,
        recipe,
        _split_files(path),
        (_PACKAGE,),
        _library_files(),
        ("header",),
        result_file=f"{name}.header",
    )


def _split_files(path: Path) -> tuple[Path, ...]:
    """The files of a model: a split one has several, which llama.cpp finds by the first."""
    name = _SPLIT_FILE.fullmatch(path.name)
    return tuple(sorted(path.parent.glob(f"{glob.escape(name[1])}-?????-of-{name[2]}.gguf"))) if name else (path,)


def _library_files() -> tuple[Path, ...]:
    """The libraries of llama.cpp, because a rebuild keeps the version."""
    spec = find_spec("llama_cpp")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return tuple(path for folder in folders for path in sorted(Path(folder, "lib").glob("*.so")))


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Run the check; `tokens_per_s` are those of one of two calls at once. Raises `NoModelOutput`, and `StartupError`
    for a file that is no language model or does not fit."""
    from models.llm.llama.bindings import LlamaModel

    path = Path(recipe["path"])
    if recipe.get("header"):
        model = LlamaModel(path, vocabulary_only=True)
        model.require_generative()
        return {"trained_for": model.train_context_length}
    model = LlamaModel(path)
    model.require_generative()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_generate, model, recipe).result()


def _generate(model: Any, recipe: Mapping[str, Any]) -> dict[str, Any]:
    from models.llm.llama.bindings import Chunk, LlamaContext
    from models.llm.llama.language_model import BATCH_TOKENS
    from models.llm.llama.memory_plan import plan_memory
    from models.llm.llama.output.sampling import Sampler, Sampling
    from models.llm.llama.prompt.chat_template import ChatTemplate
    from models.llm.llama.prompt.prompt_tokenizer import PromptTokenizer

    context_length = min(_CONTEXT_LENGTH, model.train_context_length or _CONTEXT_LENGTH)
    plan = plan_memory(
        recipe["name"], model.shape, sequences=2, context_length=context_length, batch_tokens=BATCH_TOKENS,
        free_bytes=recipe["free_bytes"],
    )  # fmt: skip
    context = LlamaContext(
        model, sequences=2, context_length=plan.context_length, batch_tokens=BATCH_TOKENS, threads=recipe["threads"]
    )
    template = ChatTemplate(model.chat_template, bos=model.bos, eos=model.eos)
    prompt = PromptTokenizer(model, template).tokens(_PROMPT, plan.context_length - TOKENS_PER_SEQUENCE)
    samplers = [Sampler(model, Sampling(seed=number)) for number in range(2)]
    rows = context.evaluate([Chunk(0, 0, prompt, True)]) * 2
    context.copy(0, 1)
    text = b""
    started = time.monotonic()
    for step in range(TOKENS_PER_SEQUENCE):
        for row in rows:
            _check_logits(context.logits(row))
        sampled = [sampler.sample(context, row) for sampler, row in zip(samplers, rows, strict=True)]
        text += b"".join(map(model.token_to_piece, sampled))
        chunks = [Chunk(number, len(prompt) + step, [token], True) for number, token in enumerate(sampled)]
        rows = context.evaluate(chunks)
    if not text.strip():
        raise NoModelOutput("brought no text")
    seconds = time.monotonic() - started
    context.close()
    return {"tokens": 2 * TOKENS_PER_SEQUENCE, "tokens_per_s": TOKENS_PER_SEQUENCE / seconds}


def _check_logits(logits: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    """Raises `NoModelOutput` for logits that are all equal or not finite."""
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise NoModelOutput("brought figures that are no numbers")
    if logits.max() == logits.min():
        raise NoModelOutput("brought the same figure for every token")
