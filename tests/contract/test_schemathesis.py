"""schemathesis against the live server: with all its checks, what it makes of the description finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from tests.contract.kinds import NO_ID
from tests.contract.server import Server
from tests.contract.tables.background_sounds import SOUND
from tests.contract.world import World, world_of

HERE: Final = Path(__file__).parent
CONFIG: Final = HERE / "schemathesis.toml"
COMMAND: Final = Path(sysconfig.get_path("scripts"), "schemathesis")
KINDS: Final = {
    "/agents": "agent",
    "/calls": "call",
    "/tools": "tool",
    "/phone-numbers": "phone number",
    "/knowledge": "knowledge document",
    "/background-sounds": "background sound",
    "/webhook-endpoints": "webhook endpoint",
    "/api-keys": "api key",
    "/users": "user",
}
SPARES: Final = 5
"""Of each kind, to be deleted."""
PHASES: Final = ("coverage",) if os.environ.get("BOUNDARY_VALUES") else ("examples,fuzzing", "stateful")
"""Each is a run: with what it has seen in the other phases, schemathesis ends the last one before its time. The
boundary values of all parameters and fields (`coverage`), which take minutes, have a make target of their own."""
LONGEST_S: Final = 600
"""Several times what it takes while the machine does something else, too."""


def _furnished(world: World) -> dict[str, Any]:
    """What the hooks know of the server, under the names that they say more of."""
    queued = [world.spare("queued call") for _ in range(2)]
    return {
        "standing": {
            "agentId": world.own["agent"],
            "phoneNumberId": world.own["trunk"],
            "backgroundSoundId": world.own["background sound"],
            "toolId": world.own["tool"],
            "voiceId": world.own["voice"],
            "slmModelId": world.own["language model"],
        },
        "open": {path: [world.spare(kind)] for path, kind in KINDS.items()}
        | {"/voices": [world.own["voice"]], "/models": [NO_ID], "/remote-models": [NO_ID]}
        | {"/calls": [world.own["call"], *queued, world.spare("talking call")]},
        "spare": {"/models": [], "/remote-models": []}
        | {path: [world.spare(kind) for _ in range(SPARES)] for path, kind in KINDS.items()},
        "numbers": [each["number"] for each in world.client("GET", "/phone-numbers?limit=100").data],
        "tool_names": [each["name"] for each in world.client("GET", "/tools?limit=100").data],
        "sound": b64encode(SOUND).decode(),
    }


def _keys(world: World) -> dict[str, Any]:
    """In the form of Web Fuzzing Commons."""
    clients = {"owner": world.client, "other": world.other}
    return {
        "auth": [
            {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {client.key}"}]}
            for name, client in clients.items()
        ]
    }


@pytest.mark.timeout(LONGEST_S + 60)
@pytest.mark.parametrize("phases", PHASES)
def test_schemathesis_finds_nothing(server: Server, tmp_path: Path, phases: str) -> None:
    document = f"http://127.0.0.1:{server.port}/v1/openapi.json"
    with capture_logs():
        world = world_of(server)
        (tmp_path / "furnished.json").write_text(json.dumps(_furnished(world)))
        (tmp_path / "keys.json").write_text(json.dumps(_keys(world)))
        run = subprocess.run(
            [
                COMMAND,
                "--config-file",
                CONFIG,
                "run",
                "--checks",
                "all",
                "--phases",
                phases,
                "--no-color",
                document,
            ],
            cwd=tmp_path,
            # Nothing else: what the environment says of proxies is not for loopback.
            env={
                "PYTHONPATH": str(HERE.parents[1]),
                "SCHEMATHESIS_HOOKS": "tests.contract.schemathesis_hooks",
                "FURNISHED": "furnished.json",
            },
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    if run.returncode != 0:
        pytest.fail(run.stdout + run.stderr, pytrace=False)
