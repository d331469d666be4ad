"""Analyses that run concurrently, at the end of a process, after its death, and while the database fails."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from calls.post_call import finalizer
from calls.post_call.analysis import CONCURRENT_ANALYSES, CallAnalyzer
from models.loading.catalogue import Catalogue, LanguageModelInfo
from storage.agents import agents
from storage.calls import calls
from storage.database.errors import StorageUnavailable
from tests.calls.call_service_harness import until
from tests.calls.post_call.finalizer_harness import DAY, SUMMARY, TALK, ScriptedAnalysisModel, ending, open_finalizer
from tests.fakes.scripted_call import (
    AlwaysEndOfTurn,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    scripted_catalogue,
    settle,
)


async def test_a_model_analyzes_a_limited_number_of_calls_at_once(tmp_path: Path) -> None:
    """Some are done in time, and a remote model has capacity for active calls."""
    async with open_finalizer(tmp_path) as here:
        here.language.stuck.clear()
        here.language.forms.extend([SUMMARY] * (CONCURRENT_ANALYSES + 2))
        _, agent = await here.call(post_call_summary_enabled=True)
        analyst = here.finalizer._analyzer
        assert analyst is not None
        hurried = asyncio.Event()
        ended = [
            asyncio.create_task(analyst.analyze(str(number), agent, TALK, hurried))
            for number in range(CONCURRENT_ANALYSES + 2)
        ]
        await until(lambda: len(here.language.prompts) == CONCURRENT_ANALYSES)
        await settle()
        assert len(here.language.prompts) == CONCURRENT_ANALYSES
        here.language.stuck.set()
        assert {analysis["method"] for analysis, _ in await asyncio.gather(*ended)} == {"model"}


async def test_analyses_of_different_models_do_not_wait_for_each_other(tmp_path: Path) -> None:
    slow, quick = ScriptedAnalysisModel(), ScriptedAnalysisModel(SUMMARY)
    slow.stuck.clear()
    quick.name = "quick"
    infos = [LanguageModelInfo(uuid4(), each, "openai", None, each == "slow") for each in ("slow", "quick")]
    models = Catalogue(ScriptedStt(), dict(zip(infos, (slow, quick), strict=True)), [ScriptedTts()], AlwaysEndOfTurn())
    async with open_finalizer(tmp_path) as here:
        _, agent = await here.call(post_call_summary_enabled=True)
        analyst, hurried = CallAnalyzer(models), asyncio.Event()
        stuck = [
            asyncio.create_task(analyst.analyze(str(number), agent, TALK, hurried))
            for number in range(CONCURRENT_ANALYSES + 1)
        ]
        await until(lambda: len(slow.prompts) == CONCURRENT_ANALYSES)
        other = replace(agent, slm_model_id=str(infos[1].id))
        async with asyncio.timeout(10):
            analysis, _ = await analyst.analyze("other", other, TALK, hurried)
        hurried.set()
        await asyncio.gather(*stuck)
    assert analysis["method"] == "model"


async def test_a_drain_waits_for_models_no_longer_than_its_timeout(tmp_path: Path) -> None:
    async with open_finalizer(tmp_path) as here:
        here.language.stuck.clear()
        call, agent = await here.call(post_call_summary_enabled=True)
        await here.finalizer.finish(call.id, ending(), agent)
        await here.language.asked.wait()
        await here.finalizer.drain(0.01)
        closed = await here.stored(call)
    assert closed.analysis is not None
    assert (closed.status, closed.analysis["method"]) == ("completed", "extractive")
    assert closed.analysis["error"] == "the server stopped"


async def test_without_json_schema_support_the_rules_analyze(tmp_path: Path) -> None:
    async with open_finalizer(tmp_path) as here:
        models = scripted_catalogue(ScriptedLlm(), ScriptedStt(), ScriptedTts())
        here.finalizer._analyzer = CallAnalyzer(models)
        call = await here.ended(post_call_summary_enabled=True, post_call_extraction_schema=[DAY])
    assert call.analysis is not None
    assert call.analysis["method"] == "extractive"
    assert "error" not in call.analysis


async def test_after_a_dead_process_a_call_has_the_version_of_its_agent_still(tmp_path: Path) -> None:
    async with open_finalizer(tmp_path) as here:
        here.language.stuck.clear()
        call, agent = await here.call(post_call_extraction_schema=[DAY])
        await here.finalizer.finish(call.id, ending(), agent)
        await here.language.asked.wait()
        changes = {"post_call_extraction_schema": [{**DAY, "name": "month"}]}
        await here.database.write(lambda conn: agents.update(conn, agent.organization_id, agent.id, changes))
        async with open_finalizer(tmp_path, json.dumps({"day": "Friday"})) as next_process:
            assert await next_process.finalizer.recover(tmp_path) == 1
            assert await next_process.finalizer.wait_closed(call.id, 10)
            closed = await next_process.stored(call)
    assert closed.analysis is not None
    assert closed.analysis["extractions"] == {"day": "Friday"}


async def test_a_pending_end_of_a_dead_process_is_closed_as_it_was_stored(tmp_path: Path) -> None:
    async with open_finalizer(tmp_path) as here:
        here.language.stuck.clear()
        call, agent = await here.call(post_call_summary_enabled=True, post_call_extraction_schema=[DAY])
        outcome = ending()
        await here.finalizer.finish(call.id, outcome, agent)
        await here.language.asked.wait()
        async with open_finalizer(tmp_path, SUMMARY, json.dumps({"day": "Friday"})) as next_process:
            next_process.language.stuck.clear()
            assert await next_process.finalizer.recover(tmp_path) == 1
            assert (await next_process.stored(call)).ended_at is None
            next_process.language.stuck.set()
            assert await next_process.finalizer.wait_closed(call.id, 10)
            closed = await next_process.stored(call)
            assert await next_process.finalizer.recover(tmp_path) == 0
            [payloads] = await next_process.payloads()
        assert (closed.status, closed.ended_reason, closed.ended_at) == (
            "completed",
            "customer_ended",
            outcome.ended_at,
        )
        assert (closed.transcript, closed.turn_count, closed.recorded) == (TALK, 1, True)
        assert closed.analysis is not None and closed.analysis["method"] == "model"
        assert payloads["extractedData"] == {"day": "Friday"}
        here.language.stuck.set()
        here.language.forms.append(SUMMARY)
        await here.finalizer.wait_closed(call.id, 10)
        assert await here.stored(call) == closed
        assert len(await here.payloads()) == 1


class FailingDatabase:
    """A database that fails to close calls; `tries` counts the attempts."""

    def __init__(self) -> None:
        self.tries = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.tries += 1
        raise StorageUnavailable("the disk is full")


async def test_a_pending_end_is_closed_once_the_database_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalizer, "STORE_RETRIES_S", (0.001,))
    monkeypatch.setattr(finalizer, "PENDING_RETRY_S", 0.01)
    async with open_finalizer(tmp_path, SUMMARY) as here:
        call, agent = await here.call(post_call_summary_enabled=True)
        with monkeypatch.context() as broken:
            broken.setattr(calls, "finish", failing := FailingDatabase())
            await here.finalizer.finish(call.id, ending(), agent)
            await until(lambda: failing.tries > 4)
        assert await here.finalizer.wait_closed(call.id, 10)
        assert (await here.stored(call)).ended_reason == "customer_ended"
        assert len(await here.payloads()) == 1


async def test_a_pending_end_that_fails_once_after_an_outage_does_not_wait_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalizer, "STORE_RETRIES_S", (0.2,))
    async with open_finalizer(tmp_path, SUMMARY) as here:
        call, agent = await here.call(post_call_summary_enabled=True)
        with monkeypatch.context() as broken:
            broken.setattr(calls, "finish", failing := FailingDatabase())
            await here.finalizer.finish(call.id, ending(), agent)
            await until(lambda: failing.tries == 2)
            here.finalizer.on_outage_over()
            await until(lambda: failing.tries == 3)
        assert await here.finalizer.wait_closed(call.id, 10)


async def test_a_call_that_cannot_be_closed_is_closed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop does not wait for a failing database."""
    monkeypatch.setattr(finalizer, "STORE_RETRIES_S", (0.01,))
    async with open_finalizer(tmp_path, SUMMARY, SUMMARY) as here:
        call, agent = await here.call(post_call_summary_enabled=True)
        with monkeypatch.context() as broken:
            broken.setattr(calls, "finish", failing := FailingDatabase())
            await here.finalizer.finish(call.id, ending(), agent)
            await until(lambda: failing.tries == 2)
            async with asyncio.timeout(10):
                await here.finalizer.drain(30)
            tries = failing.tries
            assert await here.finalizer.recover(tmp_path) == 1
            await here.finalizer.drain(0)
            assert failing.tries == tries + 1, "tried once when the server stops"
        assert (await here.stored(call)).status == "in_progress"
        assert await here.finalizer.recover(tmp_path) == 1
        await here.finalizer.wait_closed(call.id, 10)
        closed = await here.stored(call)
        assert (closed.ended_reason, closed.analysis and closed.analysis["error"]) == (
            "customer_ended",
            "the server stopped",
        )
