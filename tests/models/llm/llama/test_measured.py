"""The cost measurement of a language model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from models.end_of_turn.lexical import LexicalEndOfTurn
from models.llm.llama.language_model import LlamaLanguageModel
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.loading.cost_measurement import measure_costs
from tests.fakes.scripted_call import ScriptedStt, ScriptedTts


async def test_the_cost_of_a_language_model_has_its_step_times_and_conversations(tiny_path: Path) -> None:
    model = await asyncio.to_thread(LlamaLanguageModel, tiny_path, sequences=4, threads=1)
    info = LanguageModelInfo(language_model_id(model.name), model.name, "llama.cpp", 4096, True)
    models = Catalogue(ScriptedStt(), {info: model}, [ScriptedTts()], LexicalEndOfTurn())
    try:
        writing = (await asyncio.to_thread(measure_costs, models)).llm
        assert writing is not None
        assert writing.conversations == model.memory.sequences == 4
        assert writing.steps.decode_s(1) == pytest.approx(1 / model.speed.decode_tokens_per_s[1])
        assert writing.steps.prefill_s(64) == pytest.approx(64 / model.speed.prefill_tokens_per_s)
        assert models.expected_wait_s() < 5
    finally:
        await asyncio.to_thread(model.close)
