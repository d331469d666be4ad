"""What `trunkline check` says of models on other machines: is each there, under the name that it is asked by?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from config.errors import TrunklineError
from config.settings import Settings
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteModel
from trunkline.wiring.egress import egress_client
from trunkline.wiring.remote_models import configured_in

_NAMED: Final = 5


async def checks(settings: Settings) -> list[tuple[str, Callable[[Settings], Awaitable[str]]]]:
    """One for each. None where the data cannot be read: other lines say so."""
    try:
        models = await configured_in(settings)
    except (TrunklineError, OSError):
        return []
    return [(f"remote {model.kind}", partial(_look, model)) for model in models]


async def _look(model: RemoteModel, settings: Settings) -> str:
    client = await egress_client(settings)
    try:
        listed = await RemoteModelClient(model, client).list_models()
    finally:
        await client.close()
    if model.model not in listed:
        there = f"it has {', '.join(listed[:_NAMED])}" if listed else "it lists none"
        raise OSError(f"{model.name}: {model.base_url} has no model {model.model!r}: {there}")
    return f"{model.name} ({model.model} at {model.base_url})"
