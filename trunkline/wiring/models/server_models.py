"""The models of a server as they are when it starts, and the shedding of calls that they cannot answer in time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog

from calls.admission.load_shedding import ModelLoadShedder
from config.settings import Settings
from models.loading.catalogue import Catalogue
from models.remote.config import RemoteModel
from models.remote.outcomes import RemoteOutcomes
from storage.agents import remote_models
from storage.agents.remote_models import RemoteModelVersion
from trunkline.wiring.models.agent_languages import agents_with_gaps
from trunkline.wiring.models.load_shedding import model_load_shedder
from trunkline.wiring.models.models import open_models
from trunkline.wiring.models.remote_metrics import register_remote_metrics
from trunkline.wiring.models.remote_models import decrypted
from trunkline.wiring.storage.server_storage import ServerStorage

log = structlog.get_logger()


@dataclass(frozen=True)
class ServerModels:
    """The loaded models. `remote`: those on other machines that the operator has added; `remote_versions`: the versions
    of their rows; `outcomes`: of the requests to them."""

    catalogue: Catalogue
    remote: Sequence[RemoteModel]
    remote_versions: Collection[RemoteModelVersion]
    outcomes: RemoteOutcomes
    load_shedder: ModelLoadShedder | None


async def open_server_models(
    settings: Settings,
    storage: ServerStorage,
    load_models: Callable[[Settings], Catalogue] | None,
    stack: AsyncExitStack,
) -> ServerModels:
    """Load them until `stack` is closed, the local ones by `load_models` if it is given; logs the languages of agents
    that they do not have. Raises `StartupError`."""
    stored = await storage.database.read(remote_models.all_of)
    remote = [decrypted(each, storage.secrets) for each in stored]
    outcomes = RemoteOutcomes()
    register_remote_metrics(outcomes, stack)
    catalogue = await open_models(settings, load_models, remote, stack, outcomes)
    for gap in await agents_with_gaps(storage.database, catalogue):
        log.warning("agents.language_gap", agents=gap.agents, problem=gap.problem)
    load_shedder = model_load_shedder(settings, catalogue)
    return ServerModels(catalogue, remote, frozenset(each.version for each in stored), outcomes, load_shedder)
