"""The trial of a GGUF file: it is loaded, reads a prompt, and writes 32 tokens in a batch of two, by the code, with the
threads and from the mapped memory that calls get; in another thread than the one that loaded it, as calls do."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.model_files.trial import NoOutput, TrialCandidate
from models.protocols import ChatMessage, ChatPrompt
from models.runtime.machine import available_cores, free_bytes

ENGINE: Final = "llama.cpp"
TOKENS: Final = 32
"""That each of the two sequences writes."""
_ROOM: Final = 512
_PART: Final = re.compile(r"(.+)-00001-of-(\d{5})\.gguf")
_PACKAGE: Final = "llama-cpp-python"
_PROMPT: Final = ChatPrompt("trial", "You answer the telephone in one short sentence.", [ChatMessage("user", "Hello?")])


def gguf_candidate(path: Path, name: str) -> TrialCandidate:
    """A language model's file, to be tried as it is used."""
    # llama.cpp's library is not loaded here for this: it may have been built for another processor.
    library = sys.modules.get("models.llm.llama.bindings")
    others = library.weights_in_memory() if library else 0
    recipe = {
        "path": str(path), "name": name, "threads": max(1, int(available_cores())), "free_bytes": free_bytes() - others
    }  # fmt: skip
    return TrialCandidate(name, ENGINE, recipe, _parts(path), (_PACKAGE,), _library(), lasting=("threads",))


def header_candidate(path: Path, name: str) -> TrialCandidate:
    """The same file, to be looked at without its weights: its trial finds `trained_for`, tokens."""
    recipe = {"path": str(path), "name": name, "header": True}
    return TrialCandidate(
        name, ENGINE, recipe, _parts(path), (_PACKAGE,), _library(), ("header",), note=f"{name}.header"
    )


def _parts(path: Path) -> tuple[Path, ...]:
    """The files of a model, of which a large one may have several: llama.cpp finds the others by the first."""
    name = _PART.fullmatch(path.name)
    return tuple(sorted(path.parent.glob(f"{glob.escape(name[1])}-?????-of-{name[2]}.gguf"))) if name else (path,)


def _library() -> tuple[Path, ...]:
    """The files of llama.cpp: one that is built anew has the version of before."""
    spec = find_spec("llama_cpp")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return tuple(path for folder in folders for path in sorted(Path(folder, "lib").glob("*.so")))


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Try it. Raises `NoOutput`, and `StartupError` for a file that is no language model or does not fit."""
    from models.llm.llama.bindings import Model

    path = Path(recipe["path"])
    if recipe.get("header"):
        model = Model(path, vocabulary_only=True)
        model.require_generative()
        return {"trained_for": model.trained_for}
    model = Model(path)
    model.require_generative()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_written, model, recipe).result()


def _written(model: Any, recipe: Mapping[str, Any]) -> dict[str, Any]:
    from models.llm.llama.bindings import Chunk, Context
    from models.llm.llama.language_model import BATCH_TOKENS
    from models.llm.llama.memory_plan import plan_memory
    from models.llm.llama.output.sampling import Sampler, Sampling
    from models.llm.llama.prompt.chat_template import ChatTemplate
    from models.llm.llama.prompt.prompt_tokenizer import PromptTokenizer

    room = min(_ROOM, model.trained_for or _ROOM)
    memory = plan_memory(
        recipe["name"], model.shape, sequences=2, capacity=room, batch_tokens=BATCH_TOKENS,
        free_bytes=recipe["free_bytes"],
    )  # fmt: skip
    context = Context(
        model, sequences=2, capacity=memory.capacity, batch_tokens=BATCH_TOKENS, threads=recipe["threads"]
    )
    template = ChatTemplate(model.template, bos=model.bos, eos=model.eos)
    prompt = PromptTokenizer(model, template).tokens(_PROMPT, memory.capacity - TOKENS)
    samplers = [Sampler(model, Sampling(seed=number)) for number in range(2)]
    rows = context.evaluate([Chunk(0, 0, prompt, True)]) * 2
    context.copy(0, 1)
    text = b""
    for step in range(TOKENS):
        for row in rows:
            _check(context.logits(row))
        drawn = [sampler.draw(context, row) for sampler, row in zip(samplers, rows, strict=True)]
        text += b"".join(map(model.piece, drawn))
        chunks = [Chunk(number, len(prompt) + step, [token], True) for number, token in enumerate(drawn)]
        rows = context.evaluate(chunks)
    if not text.strip():
        raise NoOutput("brought no text")
    context.close()
    return {"tokens": 2 * TOKENS}


def _check(logits: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    """Raises `NoOutput` when no token is likelier than another, or nobody can tell."""
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise NoOutput("brought figures that are no numbers")
    if logits.max() == logits.min():
        raise NoOutput("brought the same figure for every token")
