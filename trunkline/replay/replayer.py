"""Replays calls for the API: one at a time, in a process of its own with a lower priority than the server's, because
calls must not wait for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import structlog

from api.schemas.call_replay import CallReplay
from api.services import ReplayOrder
from config import background_process
from config.errors import Conflict, LimitExceeded, Unavailable
from config.settings import Settings
from media.replay.recording_reader import recording_seconds

MAX_RECORDING_S: Final = 3600.0
"""Longest recording that is replayed: the process holds all of it in memory."""
MIN_TIME_LIMIT_S: Final = 60.0
TIME_LIMIT_FACTOR: Final = 3.0
"""A replay may take the first of these, for the start of the process and the models, and so many times the length of
the recording. An idle machine needs a tenth of that; a busy one leaves it little, because calls come first."""
RETRY_AFTER_S: Final = 15
_PROGRAM: Final = (sys.executable, "-P", "-m", "trunkline.replay.process")
_log = structlog.get_logger()


class CallReplayer:
    """Replays one call at a time. For the event loop only."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: those of the local models, `trunkline.wiring.models.remote_models.without_remote_models`."""
        chosen = settings.models
        self._models = {
            "dir": str(settings.models_dir),
            "stt": chosen.stt,
            "eot": chosen.eot,
            "stt_second": chosen.stt_second,
        }
        self._owner: str | None = None
        """The organization whose call is being replayed."""

    async def replay(self, order: ReplayOrder) -> CallReplay:
        """See `Services.replay`."""
        if self._owner == order.organization_id:
            raise LimitExceeded("Another call of your organization is being replayed", RETRY_AFTER_S)
        if self._owner is not None:
            raise Unavailable("Another call is being replayed", RETRY_AFTER_S)
        self._owner = order.organization_id
        try:
            return await self._run(order)
        finally:
            self._owner = None

    async def _run(self, order: ReplayOrder) -> CallReplay:
        seconds = await asyncio.to_thread(_length, order)
        if seconds > MAX_RECORDING_S:
            raise Conflict(f"The recording is longer than {MAX_RECORDING_S / 60:.0f} minutes")
        started = time.monotonic()
        _log.info("call.replay_started", call_id=order.call_id, recording_s=round(seconds, 1))
        result = await self._result(order, MIN_TIME_LIMIT_S + TIME_LIMIT_FACTOR * seconds)
        match result:
            case {"replay": dict(view)}:
                _log.info(
                    "call.replayed",
                    call_id=order.call_id,
                    seconds=round(time.monotonic() - started, 1),
                )
                return CallReplay.model_validate(view)
            case {"unreadable": str()}:
                raise Conflict("The recording cannot be read")
            case {"failed": str(error)}:
                raise RuntimeError(f"the replay failed: {error}")
        raise RuntimeError("the replay ended without a result")

    async def _result(self, order: ReplayOrder, limit_s: float) -> Any:
        """What the process answers. Kills it on cancellation and after the time limit."""
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit_s):
                output, _ = await process.communicate(self._request(order))
        except TimeoutError as error:
            raise Unavailable("The replay took too long: the server is busy", RETRY_AFTER_S) from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                _log.info("call.replay_stopped", call_id=order.call_id)
        if process.returncode != 0 or not output:
            _log.error("call.replay_failed", call_id=order.call_id, status=process.returncode)
            raise Unavailable("The replay was ended, most likely for want of memory", RETRY_AFTER_S)
        return json.loads(output)

    def _request(self, order: ReplayOrder) -> bytes:
        fields = asdict(order) | {"recording": str(order.recording)}
        del fields["organization_id"]
        return json.dumps(fields | {"models": self._models, "parent": os.getpid()}).encode()


def _length(order: ReplayOrder) -> float:
    try:
        return recording_seconds(order.recording)
    except (OSError, ValueError) as error:
        raise Conflict("The recording cannot be read") from error


def _environment() -> dict[str, str]:
    """The environment without settings, which may hold secrets. OpenBLAS would start a thread for each core."""
    environment = background_process.environment_without_secrets()
    path = os.pathsep.join(filter(None, sys.path))
    return environment | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
