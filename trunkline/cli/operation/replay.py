"""`trunkline replay`: replays a recorded call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trunkline.cli.framework.commands import Command

if TYPE_CHECKING:
    from config.settings import Settings


@click.command(
    cls=Command,
    examples=(
        "trunkline replay 3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11 --set turnEndpointDelay=300",
        "trunkline replay --recording call.wav --set ultravadEotThreshold=null --json",
    ),
)
@click.argument("call", required=False, metavar="CALL_ID", help="an ended call of this server")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE",
    help="a turn-taking setting by its name in the API, such as turnEndpointDelay=300 (or null); may be repeated",
)  # fmt: skip
@click.option(
    "--recording", metavar="FILE", type=click.Path(path_type=Path),
    help="a stereo WAV file, caller on the left, instead of the call's recording",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON")
async def replay(
    settings: Settings, call: str | None, changes: tuple[str, ...], recording: Path | None, as_json: bool
) -> int:
    """Replay a recorded call with other turn-taking settings, and compare the turns."""
    from trunkline.replay.replay import replay as run

    return await run(settings, call, list(changes), recording=recording, machine_readable=as_json)
