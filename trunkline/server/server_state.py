"""The state of the server as its clients see it: the load of the models, and what is wrong."""

from __future__ import annotations

from typing import Final

from calls.live.server_state import ModelLoad, ServerState
from trunkline.server.server import Server

WAIT_STEP_S: Final = 0.1
"""The wait for the models is told in these steps, so that it does not change all the time."""


def server_state(server: Server, uploads_refused: str | None, unreachable_nodes: str | None = None) -> ServerState:
    """Returns the state now. `uploads_refused`: why the disk takes nothing but calls."""
    shedder = server.load_shedder
    models = None
    if shedder is not None:
        wait_s = round(shedder.expected_wait_s / WAIT_STEP_S) * WAIT_STEP_S
        models = ModelLoad(round(wait_s, 1), shedder.max_wait_s, shedder.capacity, shedder.is_slow)
    warnings = {part: problem for part, problem in server.readiness().items() if problem is not None}
    if uploads_refused is not None:
        warnings["disk"] = uploads_refused
    if models is not None and models.slow:
        warnings["models"] = f"responses wait {models.wait_s:g} s for the models, more than {models.max_wait_s:g} s"
    if unreachable_nodes is not None:
        warnings["nodes"] = unreachable_nodes
    return ServerState(server.rejection_reason(), models, warnings)
