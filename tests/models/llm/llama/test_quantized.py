"""Weights of 8 and of 4 bits compute what they stand for, alone and beside others. Other kernels of llama.cpp multiply
them than those of 32 bits, by the processor and by how many sequences there are."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from models.llm.llama.c_api import lib
from tests.models.llm.llama.tiny_gguf import WIDE, weights_of, write_tiny_gguf

ROOT: Final = Path(__file__).parents[4]
KINDS: Final = ("Q8_0", "Q4_0", "Q4_K")
PROMPT: Final = 24
STEPS: Final = 32
ROUNDING: Final = 0.08
"""How far the figures of tokens may be from those of the weights that these stand for, root mean square, in their own
spread: what goes through a network of quantized weights is rounded to 8 bits (0.02 to 0.04 where this was written)."""
COMPANY: Final = 0.02
"""The same for who else is in the batch: other kernels round at other places (0 to 0.0015)."""
LARGEST: Final = 0.1
"""Of single figures, for the same reason (0 to 0.045)."""

Figures = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose matrices are all of one weight type."""
    kind = GGMLQuantizationType[request.param]
    path = write_tiny_gguf(tmp_path_factory.mktemp("gguf") / f"{request.param}.gguf", kind=kind, shape=WIDE)
    kinds = {tensor.tensor_type for tensor in GGUFReader(path).tensors if len(tensor.shape) == 2}
    assert kinds == {kind}
    return path


def texts(count: int) -> list[list[int]]:
    rng = np.random.default_rng(7)
    return [rng.integers(1, 250, PROMPT + STEPS).tolist() for _ in range(count)]


def figures(path: Path, told: list[list[int]], together: bool, threads: int = 1) -> Figures:
    """float32[text, step, token] of all tokens while each text is read: its first part as a prompt, then word by word,
    all texts in one batch or each alone."""
    model = LlamaModel(path)
    with closing(LlamaContext(model, sequences=len(told), context_length=256, threads=threads)) as context:
        rows: list[list[Figures]] = [[] for _ in told]
        for number, text in enumerate(told):
            [row] = context.evaluate([Chunk(number, 0, text[:PROMPT], True)])
            rows[number].append(context.logits(row).copy())
        numbers = list(range(len(told)))
        for at in range(PROMPT, PROMPT + STEPS):
            for batch in [numbers] if together else [[number] for number in numbers]:
                chunks = [Chunk(number, at, told[number][at : at + 1], True) for number in batch]
                for number, row in zip(batch, context.evaluate(chunks), strict=True):
                    rows[number].append(context.logits(row).copy())
    return np.array(rows)


def apart(one: Figures, other: Figures) -> float:
    """The root mean square difference, in standard deviations of the second array."""
    return float(np.sqrt(((one - other) ** 2).mean()) / other.std())


def test_the_same_batch_gives_identical_logits(path: Path) -> None:
    told = texts(2)
    assert np.array_equal(figures(path, told, True), figures(path, told, True))


def test_two_identical_sequences_in_a_batch_generate_the_same_tokens(path: Path) -> None:
    [text] = texts(1)
    one, other = figures(path, [text, text], True)
    assert np.array_equal(one.argmax(axis=-1), other.argmax(axis=-1))


@pytest.mark.parametrize("count", [2, 5])
def test_the_rest_of_a_batch_changes_no_token_that_is_clearly_the_likeliest(path: Path, count: int) -> None:
    told = texts(count)
    run_alone, together = figures(path, told, False), figures(path, told, True, threads=2)
    assert apart(together, run_alone) < COMPANY
    bound = LARGEST * run_alone.std()
    assert np.abs(together - run_alone).max() < bound
    best = np.sort(run_alone, axis=-1)[..., -2:]
    clear = best[..., 1] - best[..., 0] > 2 * bound
    assert clear.mean() > 0.3
    assert np.array_equal(run_alone.argmax(axis=-1)[clear], together.argmax(axis=-1)[clear])


def test_logits_of_quantized_weights_are_those_of_the_dequantized_ones(path: Path, tmp_path: Path) -> None:
    """Detects a kernel that multiplies wrongly on this processor."""
    told = texts(2)
    whole = write_tiny_gguf(tmp_path / "whole.gguf", shape=WIDE, weights=weights_of(path))
    assert apart(figures(path, told, True), figures(whole, told, True)) < ROUNDING


def test_the_installed_library_has_no_amx_code() -> None:
    """llama.cpp's AMX kernels abort the process."""
    assert b"AMX" not in lib.llama_print_system_info()
    folder = Path(lib.__file__).parent / "lib"
    libraries = list(folder.glob("libggml-cpu*.so"))
    assert libraries
    assert not [path for path in libraries if "sapphirerapids" in path.name]
    assert [ctypes.CDLL(str(path)).ggml_cpu_has_amx_int8() for path in libraries] == [0] * len(libraries)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler on this machine to ask")
def test_build_flags_override_those_of_the_processor() -> None:
    script = (ROOT / "scripts/build-llama.sh").read_text()
    [flags] = re.findall(r'no_amx="(.*)"', script)
    processor = "-march=sapphirerapids"

    def can(*given: str) -> bool:
        command = ["cc", *given, "-dM", "-E", "-x", "c", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip("the compiler of this machine knows no processor with AMX")
        return "__AMX_" in done.stdout

    assert can(processor)
    assert not can(processor, *flags.split()) and not can(*flags.split(), processor)


def kept_at(folder: Path, script: str | None = None, **environment: str) -> str:
    """The folder of a cached build, by the script or a variant of it."""
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "requirements-llama.lock", folder)
    path = folder / "scripts/build-llama.sh"
    if script is not None:
        path.write_text(script)
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CACHE_HOME": "/cache"}
    done = subprocess.run(["sh", path, "path"], env=known | environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no AMX on this machine to leave out")
def test_a_build_with_amx_code_is_detected(tmp_path: Path) -> None:
    """Builds from before the flags may be cached."""
    paths = {}
    for name, refuses in (("knows", "no such flag"), ("knows too", "nor this one"), ("knows none", "-mno-amx-tile")):
        compiler = tmp_path / name / "compiler"
        compiler.parent.mkdir()
        compiler.write_text(f"#!/bin/sh\ncase $* in *'{refuses}'*) exit 1 ;; esac\n")
        compiler.chmod(0o755)
        paths[name] = kept_at(tmp_path / name / "root", PATH=f"{compiler.parent}:{os.environ['PATH']}", CC="compiler")
    assert paths["knows"] == paths["knows too"] != paths["knows none"]


def test_the_build_for_all_processors_has_no_amx_variant(tmp_path: Path) -> None:
    script = (ROOT / "scripts/build-llama.sh").read_text()
    variant = "left_out='**/libggml-cpu-sapphirerapids.so'"
    assert script.count(variant) == 1
    with_it = kept_at(tmp_path / "with", script.replace(variant, "left_out="), LLAMA_PROCESSORS="all")
    assert kept_at(tmp_path / "without", LLAMA_PROCESSORS="all") != with_it
