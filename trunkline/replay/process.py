"""The process of a replay for the API (`trunkline.replay.replayer`): it reads an order as one line of JSON, replays the
recording twice and writes one line of JSON: `{"replay": {...}}`, `{"unreadable": "error"}` or `{"failed": "error"}`.

    python -P -m trunkline.replay.process < order.json
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from config import background_process
from config import logging as logs
from media.audio_port import TICK_MS
from media.replay.recording_reader import InvalidRecording, read_recording
from media.turn_taking.settings import TurnSettings
from models.loading import loader
from trunkline.replay.api_view import call_replay
from trunkline.replay.comparison import ReplayInput, compare

NICENESS: Final = 10
"""Calls have priority."""


def main() -> None:
    """Run the replay. Output of libraries goes to standard error, not into the result."""
    result_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.load(sys.stdin)
    background_process.begin(order["parent"], NICENESS)
    logs.configure("error", "json")
    with open(result_fd, "w", encoding="utf-8") as output:
        output.write(json.dumps(_result(order)) + "\n")
    os._exit(0)  # the models' threads have nothing to finish


def _result(order: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"replay": asyncio.run(_replay(order))}
    except InvalidRecording as error:
        return {"unreadable": error.message}
    except Exception:  # noqa: BLE001 - any error is reported to the server, which logs it
        return {"failed": traceback.format_exc(limit=-3)[-2000:]}


async def _replay(order: dict[str, Any]) -> dict[str, Any]:
    chosen = order["models"]
    recording = read_recording(Path(order["recording"]))
    models = loader.load_turn_models(Path(chosen["dir"]), chosen["stt"], chosen["eot"], chosen["stt_second"])
    before, after = TurnSettings(**order["before"]), TurnSettings(**order["after"])
    replayed = ReplayInput(
        recording, order["timeline"], before, order["language"], order["first_message_uninterruptible"]
    )
    view = call_replay(
        await compare(replayed, [before, after], models),
        before,
        after,
        call_id=order["call_id"],
        duration_ms=recording.ticks * TICK_MS,
        settings_from=order["settings_from"],
    )
    found: dict[str, Any] = view.model_dump(mode="json", by_alias=True)
    return found


if __name__ == "__main__":
    main()
