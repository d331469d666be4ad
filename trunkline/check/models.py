"""The models in `trunkline check`: which ones calls use, their speed on this machine, and the capacity that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from structlog.typing import EventDict

from config.errors import LoadCheckError, StartupError
from config.settings import Settings
from models.llm.llama.language_model import LlamaLanguageModel
from models.loading import engines, loader
from models.loading.capacity_forecast import ModelCosts, forecast_capacities
from models.loading.catalogue import Catalogue
from models.loading.cost_measurement import measure_costs
from models.loading.model_descriptions import primary_model
from models.loading.remote_models import select_remote
from models.model_files.known_models import read_known
from models.model_files.load_checker import LoadChecker
from models.model_files.store import ModelStore
from models.remote.outcomes import RemoteOutcomes
from models.runtime.cpu_memory_limits import available_cores, free_bytes
from trunkline.check.host import Advice
from trunkline.organization_admin import open_database
from trunkline.wiring.models.agent_languages import AgentsWithGap, agents_with_gaps
from trunkline.wiring.models.load_shedding import CALL_PROFILE
from trunkline.wiring.models.remote_models import open_and_read_remote_models, with_remote_models, without_remote_models

LATENCIES_S = (0.5, 1.0, 2.0)
"""The answer latencies that the capacity is printed for."""
_CONCURRENCIES = (1, 4, 16)
_BOUND_NAMES = {
    "max_calls": "[limits] max_calls",
    "memory": "the conversations that the language model keeps in memory",
}
_CONTEXT_TOKENS = 900
"""Tokens of each conversation that the speed of a language model is printed for."""


class ModelChecks:
    """The checks of the models, which are loaded and measured once for two lines."""

    def __init__(self) -> None:
        self._costs: ModelCosts | None = None
        self._gaps: list[AgentsWithGap] | None = None
        self._left_out: dict[str, str] = {}
        """Errors of models that were left out, by name."""

    def capture_log(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """A structlog processor: remembers the errors of models that the loader leaves out."""
        if event.get("event") == "model.left_out":
            self._left_out[str(event["name"])] = str(event["error"])
        return event

    async def trials(self, settings: Settings) -> str:
        """Check the trials of all models in files, also of those that are loaded only when a call needs them. Raises
        `StartupError` with the failures."""
        passed = await asyncio.to_thread(self._check_language_models, settings)
        if self._left_out:
            raise StartupError("; ".join(self._left_out.values()))
        return f"passed by all loaded models, and by {passed} language models in files"

    def _check_language_models(self, settings: Settings) -> int:
        store = ModelStore(settings.models_dir, read_known(settings.models_dir))
        passed = 0
        for name, path in loader.gguf_files(store).items():
            try:
                engines.check_gguf_load(LoadChecker(store.directory), path, name)
                passed += 1
            except LoadCheckError as error:
                self._left_out[name] = error.message
            except StartupError:  # not a language model: `models list` shows why
                continue
        return passed

    async def names_and_speed(self, settings: Settings) -> str:
        """The models that calls use, and their speed on this machine. Raises `StartupError`."""
        remotes = await open_and_read_remote_models(settings)
        remote_names = {kind: remote.name for kind in ("llm", "tts", "embedding")
                        if (remote := select_remote(remotes, kind, getattr(settings.models, kind)))}  # fmt: skip
        models = await asyncio.to_thread(_load_local_models, without_remote_models(settings, remotes))
        try:
            async with open_database(settings) as database, AsyncExitStack() as stack:
                catalogue = await with_remote_models(models, remotes, settings, stack, None, RemoteOutcomes())
                self._gaps = await agents_with_gaps(database, catalogue)
            return await asyncio.to_thread(self._measure, models, remote_names)
        finally:
            await asyncio.to_thread(models.close)

    async def languages(self, _: Settings) -> str:
        """Raises `Advice` with the languages of agents that no model has, and `StartupError` if the models could not be
        loaded."""
        if self._gaps is None:
            raise StartupError("not known without models")
        if self._gaps:
            raise Advice("\n".join(f"{gap.problem} [agents: {gap.agents}]" for gap in self._gaps))
        return "recognized and spoken for every agent"

    def _measure(self, models: Catalogue, remote_names: Mapping[str, str]) -> str:
        """Measure the local models; returns the lines. `remote_names`: remote models by kind, for which the local ones
        are the fallback. Takes seconds."""
        voices, llm = len(models.voices()), models.language_models()[0].name
        llm = f"{remote_names['llm']} with {llm} as its fallback" if "llm" in remote_names else llm
        embedding = remote_names.get("embedding") or (
            models.embeddings.name if models.embeddings else "document search by words only"
        )
        names = f"{models.stt(None).name}, {llm}, {voices} voices, {models.eot.name}, {embedding}"
        self._costs = _local_costs(measure_costs(models), remote_names)
        return "\n".join([names, *_speed_lines(self._costs), *_memory_lines(models)])

    async def capacity(self, settings: Settings) -> str:
        """The number of concurrent calls that the models can serve. Raises `StartupError` if they could not be
        loaded."""
        if self._costs is None:
            raise StartupError("not known without models")
        return "\n".join(await asyncio.to_thread(lambda costs: list(_capacity_lines(settings, costs)), self._costs))


def _load_local_models(settings: Settings) -> Catalogue:
    """Takes seconds. Raises `StartupError`."""
    chosen = settings.models
    return loader.load(
        settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second,
        calls=settings.limits.max_calls, embedding=chosen.embedding,
    )  # fmt: skip


def _local_costs(costs: ModelCosts, remote_names: Mapping[str, str]) -> ModelCosts:
    """The costs without those of kinds that run on other machines."""
    costs = replace(costs, llm=None) if "llm" in remote_names else costs
    return replace(costs, tts=None) if "tts" in remote_names else costs


def _speed_lines(costs: ModelCosts) -> Iterator[str]:
    """A line for each measured model."""
    if (stt := costs.stt) is not None:
        times = " / ".join(f"{1 / factor:.3g}" for factor in stt.factors.values())
        yield f"{stt.name} transcribes {times} times as fast as real time, {_at_once(stt.factors)}"
    if (second := costs.stt_second) is not None:
        yield f"{second.name} transcribes a turn again {1 / second.factor(1):.3g} times as fast as real time"
    if (eot := costs.eot) is not None:
        yield f"{eot.name} decides on the end of a turn in {eot.answer_s * 1000:.0f} ms"
    if (llm := costs.llm) is not None:
        writes = " / ".join(f"{count / llm.steps.decode_s(count, _CONTEXT_TOKENS):.0f}" for count in _CONCURRENCIES)
        reads = 64 / llm.steps.prefill_s(64, _CONTEXT_TOKENS)
        speed = f"reads {reads:.0f} tokens/s and writes {writes}, {_at_once(_CONCURRENCIES)}"
        yield f"{llm.name} {speed}, with conversations in memory"
    if (tts := costs.tts) is not None:
        yield f"{tts.name} synthesizes {1 / tts.factor:.3g} times as fast as real time"


def _at_once(calls: Iterable[int]) -> str:
    return f"{' / '.join(map(str, calls))} at once"


def _memory_lines(models: Catalogue) -> Iterator[str]:
    model = primary_model(models.llm(None))
    if isinstance(model, LlamaLanguageModel):
        plan = model.memory
        used, free = plan.weights_bytes + plan.bytes, max(0, free_bytes() - plan.weights_bytes)
        yield (
            f"{model.name} uses {_mebibytes(used)} of memory and keeps the conversations of {plan.sequences} calls, "
            f"{plan.context_length:,} tokens each; {_mebibytes(free)} remain free"
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _capacity_lines(settings: Settings, costs: ModelCosts) -> Iterator[str]:
    """A line for each answer latency, with the number of calls and what limits it; then the assumptions."""
    cores = available_cores()
    for capacity in forecast_capacities(costs, cores, settings.limits.max_calls, CALL_PROFILE, LATENCIES_S):
        bound = _BOUND_NAMES.get(capacity.limited_by, f"the {capacity.limited_by}")
        yield f"about {capacity.calls} calls at once get answers within {capacity.within_s:g} s, limited by {bound}"
    yield f"on {cores:g} cores, for 95 of 100 answers, with {CALL_PROFILE}"
