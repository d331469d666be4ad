"""What a language model tells of itself, for how many calls there may be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from models.llm.llama.language_model import LlamaLanguageModel
from models.loading.benchmark import measure_costs
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.turn_detection.lexical import LexicalEndOfTurn
from tests.fakes.scripted_call import ScriptedStt, ScriptedTts


async def test_a_language_model_is_known_by_its_steps_and_its_memory(tiny_path: Path) -> None:
    model = await asyncio.to_thread(LlamaLanguageModel, tiny_path, sequences=4, threads=1)
    info = LanguageModelInfo(language_model_id(model.name), model.name, "llama.cpp", 4096, True)
    models = Catalogue(ScriptedStt(), {info: model}, [ScriptedTts()], LexicalEndOfTurn())
    try:
        writing = (await asyncio.to_thread(measure_costs, models)).llm
        assert writing is not None
        assert writing.conversations == model.memory.sequences == 4
        assert writing.steps.writes(1) == pytest.approx(1 / model.speed.writes[1])
        assert writing.steps.reads(64) == pytest.approx(64 / model.speed.reads)
        assert models.expected_wait_s() < 5
    finally:
        await asyncio.to_thread(model.close)
