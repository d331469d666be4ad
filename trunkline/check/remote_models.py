"""Remote models in `trunkline check`: whether each can be reached, and its server has a model of the configured
name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from config.errors import TrunklineError
from config.settings import Settings
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel
from trunkline.wiring.http_egress import http_egress_client
from trunkline.wiring.models.remote_models import open_and_read_remote_models

MAX_LISTED: Final = 5
"""Models of the server that an error lists."""


async def checks(settings: Settings) -> list[tuple[str, Callable[[Settings], Awaitable[str]]]]:
    """A check for each remote model, by the name of its line. Empty if the database cannot be read, which another check
    reports."""
    try:
        models = await open_and_read_remote_models(settings)
    except (TrunklineError, OSError):
        return []
    return [(f"remote {model.kind}", partial(_check_model, model)) for model in models]


async def _check_model(model: RemoteModel, settings: Settings) -> str:
    client = await http_egress_client(settings)
    try:
        listed = await RemoteModelClient(model, client).list_models()
    finally:
        await client.close()
    if model.model not in listed:
        others = f"it has {', '.join(listed[:MAX_LISTED])}" if listed else "it lists none"
        raise OSError(f"{model.name}: {model.base_url} has no model {model.model!r}: {others}")
    return f"{model.name} ({model.model} at {model.base_url})"
