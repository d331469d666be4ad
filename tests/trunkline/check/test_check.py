"""`trunkline check`: the audio path and the models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.errors import StartupError
from config.settings import Settings
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from storage.accounts import organizations
from storage.agents import agents
from storage.tables.agent_fields import AgentFields
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from tests.models.model_files.faulty_load_checks import break_load_checks
from trunkline.check import check
from trunkline.check.host import Advice
from trunkline.check.models import ModelChecks
from trunkline.organization_admin import open_database

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def _wait_for_end(leg: Leg) -> None:
    await leg.ended


@pytest.mark.parametrize(
    ("owner", "method", "replacement"),
    [(Endpoint, "set_sources", lambda *_: None), (Leg, "wait_connected", _wait_for_end)],
    ids=["the INVITE is dropped", "the call is not connected"],
)
async def test_a_test_call_that_is_not_answered_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, replacement: Any
) -> None:
    monkeypatch.setattr(check, "AUDIO_WAIT_S", 0.5)
    monkeypatch.setattr(owner, method, replacement)
    with pytest.raises(OSError, match=r"was not answered within 0\.5 s: does a firewall"):
        await check._audio_path(Settings(data_dir=tmp_path))


async def test_the_speed_the_memory_and_the_capacity_of_the_models_are_shown(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    changes = {"models": {"tts": "flite", "eot": "lexical-end-of-turn"}, "limits": {"max_calls": 3}}
    settings, models = Settings(data_dir=tmp_path).with_changes(changes), ModelChecks()
    lines = (await models.names_and_speed(settings)).splitlines()
    assert lines[0].startswith("pocketsphinx, tiny, ")
    [read] = [line for line in lines if line.startswith("tiny reads ")]
    assert "1 / 4 / 16 at once" in read
    [memory] = [line for line in lines if line.startswith("tiny uses ")]
    assert "keeps the conversations of 3 calls, 4,096 tokens each" in memory
    capacity = (await models.capacity(settings)).splitlines()
    assert [line.split(" within ")[1][:5] for line in capacity[:3]] == ["0.5 s", "1 s, ", "2 s, "]
    assert "a turn every 8 s" in capacity[3]


async def test_agents_in_languages_that_no_model_has_are_noted(tmp_path: Path) -> None:
    changes = {"models": {"llm": "extractive-responder", "tts": "flite", "eot": "lexical-end-of-turn"}}
    settings, models = Settings(data_dir=tmp_path).with_changes(changes), ModelChecks()
    with pytest.raises(StartupError, match="not known without models"):
        await models.languages(settings)
    await models.names_and_speed(settings)
    assert await models.languages(settings) == "recognized and spoken for every agent"
    async with open_database(settings) as database:
        organization = await database.write(lambda conn: organizations.create(conn, "Harbour"))
        for language in ("de", "de", "en"):
            fields = AgentFields(name="Desk", first_speaker="agent", language_hint=language)
            await database.write(partial(agents.create, organization_id=organization.id, fields=fields))
    await models.names_and_speed(settings)
    with pytest.raises(Advice) as raised:
        await models.languages(settings)
    assert str(raised.value).splitlines() == [
        "No installed speech recognizer has the language de: callers are recognized by pocketsphinx (en) [agents: 2]",
        "No installed voice has the language de: the agent has the voice flite/slt (en) [agents: 2]",
    ]


async def test_the_capacity_is_unknown_if_the_models_cannot_be_loaded(tmp_path: Path) -> None:
    settings, models = Settings(data_dir=tmp_path).with_changes({"models": {"llm": "no-such"}}), ModelChecks()
    with pytest.raises(StartupError, match="no-such"):
        await models.names_and_speed(settings)
    with pytest.raises(StartupError, match="not known without models"):
        await models.capacity(settings)


async def test_a_model_that_fails_its_trial_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would start, with the rule-based responder instead of the model."""
    (tmp_path / "models").mkdir()
    for name in ("tiny", "spare"):
        write_tiny_gguf(tmp_path / "models" / f"{name}.gguf")
    break_load_checks(monkeypatch, tmp_path / "path", {"tiny": "SIGSEGV"})
    changes = {"models": {"llm": "tiny", "tts": "flite", "eot": "lexical-end-of-turn"}}
    settings, models = Settings(data_dir=tmp_path).with_changes(changes), ModelChecks()
    lines = (await models.names_and_speed(settings)).splitlines()
    assert lines[0].startswith("pocketsphinx, extractive-responder, ")
    with pytest.raises(StartupError, match=r"the model tiny \(.*tiny\.gguf\) is left out: .* SIGSEGV: choose another"):
        await models.trials(settings)
    (tmp_path / "models/tiny.gguf").unlink()
    assert "by 1 language models in files" in await ModelChecks().trials(settings)


async def test_a_logged_error_of_a_model_that_is_left_out_fails_the_check(tmp_path: Path) -> None:
    models = ModelChecks()
    models.capture_log(None, "error", {"event": "model.left_out", "name": "our", "error": "the voice our is left out"})
    with pytest.raises(StartupError, match="the voice our is left out"):
        await models.trials(Settings(data_dir=tmp_path))
