"""The models of a server: those that run on this machine, and those that the operator has added on other machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from calls import metrics
from config.settings import Settings
from models.installation.installer import ModelInstaller
from models.loading import loader
from models.loading.catalogue import Catalogue
from models.loading.model_usage import usage_of
from models.remote.config import RemoteModel
from models.remote.outcomes import RemoteOutcomes
from models.tts.disk_cache import SpeechDiskCache
from trunkline.wiring.models.remote_models import with_remote_models, without_remote_models


async def open_models(
    settings: Settings,
    load_models: Callable[[Settings], Catalogue] | None,
    remote_models: Sequence[RemoteModel],
    stack: AsyncExitStack,
    outcomes: RemoteOutcomes,
) -> Catalogue:
    """Loads the local models, by `load_models` if it is given, and adds the remote ones, whose requests
    `outcomes` gets. Raises `StartupError`."""
    disk_cache = await asyncio.to_thread(_speech_disk_cache, settings)
    load = load_models or partial(_load_local_models, disk_cache=disk_cache)
    local = await asyncio.to_thread(load, without_remote_models(settings, remote_models))
    stack.push_async_callback(asyncio.to_thread, local.close)
    return await with_remote_models(local, remote_models, settings, stack, disk_cache, outcomes)


def model_installer(settings: Settings, models: Catalogue, live_calls: Callable[[], int]) -> ModelInstaller:
    """The installer of models for a running server, whose calls use `models`."""
    named = {name: setting for setting, name in settings.models.model_dump().items() if isinstance(name, str)}
    return ModelInstaller(
        settings.models_dir, partial(usage_of, models), live_calls, named_by_settings=named,
        reserve_bytes=settings.limits.disk_reserve_mb << 20,
    )  # fmt: skip


def _speech_disk_cache(settings: Settings) -> SpeechDiskCache | None:
    max_bytes = settings.models.speech_cache_mb * 1024 * 1024
    return SpeechDiskCache(settings.data_dir / "speech", max_bytes) if max_bytes else None


def _load_local_models(settings: Settings, disk_cache: SpeechDiskCache | None) -> Catalogue:
    chosen = settings.models
    return loader.load(
        settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second,
        on_speech=lambda origin: metrics.SPOKEN_PIECES.labels(origin=origin).inc(), speech_files=disk_cache,
        calls=settings.limits.max_calls, embedding=chosen.embedding,
    )  # fmt: skip
