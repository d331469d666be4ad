"""What `trunkline check` says of the models: which ones answer, how quick they are here, how many calls they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from structlog.typing import EventDict

from config.errors import ModelTrialError, StartupError
from config.settings import Settings
from models.llm.llama.language_model import LlamaLanguageModel
from models.loading import engines, loader
from models.loading.benchmark import measure_costs, primary_model
from models.loading.capacity import ModelCosts, capacities
from models.loading.catalogue import Catalogue
from models.loading.remote_models import choose_remote
from models.model_files.known_models import read_known
from models.model_files.store import ModelStore
from models.model_files.trial import ModelTrials
from models.runtime.machine import available_cores, free_bytes
from trunkline.wiring.model_load import TALK
from trunkline.wiring.remote_models import configured_in, without_remote

WITHIN_S = (0.5, 1.0, 2.0)
_AT_ONCE = (1, 4, 16)
_BOUNDS = {"max_calls": "[limits] max_calls", "memory": "the talks that the language model remembers"}
_TALKED_IN = 900
"""Tokens of each talk when the speed of a language model is told."""


class Models:
    """Loaded and measured once, for two lines of the check."""

    def __init__(self) -> None:
        self._speeds: ModelCosts | None = None
        self._left_out: dict[str, str] = {}
        """Why, by name."""

    def capture_log(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """Keep what the log would say of models that are left out; for `structlog`."""
        if event.get("event") == "model.left_out":
            self._left_out[str(event["name"])] = str(event["error"])
        return event

    async def trials(self, settings: Settings) -> str:
        """Whether all models that are files passed their trial, also those that are loaded when a call needs them.
        Raises `StartupError` that names those which did not."""
        tried = await asyncio.to_thread(self._try_language_models, settings)
        if self._left_out:
            raise StartupError("; ".join(self._left_out.values()))
        return f"passed by all models that were loaded, and by {tried} language models in files"

    def _try_language_models(self, settings: Settings) -> int:
        store = ModelStore(settings.models_dir, read_known(settings.models_dir))
        passed = 0
        for name, path in loader.gguf_files(store).items():
            try:
                engines.trial_gguf(ModelTrials(store.directory), path, name)
                passed += 1
            except ModelTrialError as error:
                self._left_out[name] = error.message
            except StartupError:  # no language model: `models list` says why
                continue
        return passed

    async def named(self, settings: Settings) -> str:
        """Which models answer, and how quick they are here. Raises `StartupError`."""
        remotes = await configured_in(settings)
        away = {kind: found.name for kind in ("llm", "tts", "embedding")
                if (found := choose_remote(remotes, kind, getattr(settings.models, kind)))}  # fmt: skip
        return await asyncio.to_thread(self.measured, without_remote(settings, remotes), away)

    def measured(self, settings: Settings, away: Mapping[str, str]) -> str:
        """The same, of those that are here; `away` are remote ones by kind, behind which those stand. Takes seconds.
        Raises `StartupError`."""
        chosen = settings.models
        models = loader.load(
            settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second,
            calls=settings.limits.max_calls, embedding=chosen.embedding,
        )  # fmt: skip
        try:
            voices, llm = len(models.voices()), models.language_models()[0].name
            llm = f"{away['llm']} with {llm} behind it" if "llm" in away else llm
            meaning = away.get("embedding") or (
                models.embeddings.name if models.embeddings else "documents by words alone"
            )
            names = f"{models.stt(None).name}, {llm}, {voices} voices, {models.eot.name}, {meaning}"
            self._speeds = _without(measure_costs(models), away)
            return "\n".join([names, *_describe(self._speeds), *_memory(models)])
        finally:
            models.close()

    async def capacity(self, settings: Settings) -> str:
        """How many calls they hold. Raises `StartupError` when they could not be loaded."""
        if self._speeds is None:
            raise StartupError("not known without models")
        return "\n".join(await asyncio.to_thread(lambda speeds: list(_capacity(settings, speeds)), self._speeds))


def _without(speeds: ModelCosts, away: Mapping[str, str]) -> ModelCosts:
    """What other machines do counts for nothing here."""
    speeds = replace(speeds, llm=None) if "llm" in away else speeds
    return replace(speeds, tts=None) if "tts" in away else speeds


def _describe(speeds: ModelCosts) -> Iterator[str]:
    """A line for each that was measured."""
    if (hearing := speeds.stt) is not None:
        times = " / ".join(f"{1 / factor:.3g}" for factor in hearing.factors.values())
        yield f"{hearing.name} hears {times} times as fast as callers speak, {_at_once(hearing.factors)}"
    if (again := speeds.stt_second) is not None:
        yield f"{again.name} hears a turn again {1 / again.factor(1):.3g} times as fast as it was spoken"
    if (judging := speeds.eot) is not None:
        yield f"{judging.name} judges a turn in {judging.answer_s * 1000:.0f} ms"
    if (writing := speeds.llm) is not None:
        written = " / ".join(f"{count / writing.steps.writes(count, _TALKED_IN):.0f}" for count in _AT_ONCE)
        read = 64 / writing.steps.reads(64, _TALKED_IN)
        summary = f"reads {read:.0f} tokens/s and writes {written}, {_at_once(_AT_ONCE)}, with talk in memory"
        yield f"{writing.name} {summary}"
    if (speaking := speeds.tts) is not None:
        yield f"{speaking.name} speaks {1 / speaking.factor:.3g} times as fast as it is heard"


def _at_once(calls: Iterable[int]) -> str:
    return f"{' / '.join(map(str, calls))} at once"


def _memory(models: Catalogue) -> Iterator[str]:
    model = primary_model(models.llm(None))
    if isinstance(model, LlamaLanguageModel):
        there = model.memory
        taken, free = there.weights_bytes + there.bytes, max(0, free_bytes() - there.weights_bytes)
        yield (
            f"{model.name} takes {_mebibytes(taken)} of memory and remembers the talk of {there.sequences} calls, "
            f"{there.capacity:,} tokens of each; {_mebibytes(free)} are free beside it"
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _capacity(settings: Settings, speeds: ModelCosts) -> Iterator[str]:
    """For each time how many calls get their answers in it and what bounds them; and what they are taken to do."""
    there = available_cores()
    for each in capacities(speeds, there, settings.limits.max_calls, TALK, WITHIN_S):
        bound = _BOUNDS.get(each.bound, f"the {each.bound}")
        yield f"about {each.calls} calls at once have answers within {each.within_s:g} s, bound by {bound}"
    yield f"on {there:g} cores, for 95 of 100 answers, with {TALK}"
