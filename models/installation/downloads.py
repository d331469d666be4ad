"""Downloads of models while a server runs: one at a time, in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import structlog

from config.errors import Conflict, ModelFileError
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.pull import pull
from models.model_files.store import ModelStore

PROGRESS_EVERY_S: Final = 0.5
"""Between two reports of a download's progress."""
RATE_WINDOW_S: Final = 5.0
"""The time over which the speed of a download is averaged."""

DownloadState = Literal["waiting", "downloading", "interrupted", "checking", "failed"]
"""`waiting`: for another download, or another process that works on the model; `interrupted`: it is tried again soon;
`checking`: the files are installed, and the load check runs."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Download:
    """The progress of a download. `received` and `total` are bytes of all files of the model; `total` is None if
    unknown. `problem`: why it is interrupted or has failed, with what to do."""

    state: DownloadState
    received: int = 0
    total: int | None = None
    bytes_per_s: float | None = None
    problem: str | None = None


class TransferRate:
    """The speed of a transfer over the last `RATE_WINDOW_S`. Times are seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._received: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, received: int) -> None:
        """So many bytes were there at this time. Fewer than before: it has begun anew."""
        if self._received and received < self._received[-1][1]:
            self._received.clear()
        self._received.append((now_s, received))
        while len(self._received) > 2 and self._received[1][0] < now_s - RATE_WINDOW_S:
            self._received.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """None before anything can be told."""
        if len(self._received) < 2:
            return None
        (first_s, first), (last_s, last) = self._received[0], self._received[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None


class ModelDownloads:
    """The downloads that run, wait or have failed, by the model's name. For one event loop."""

    def __init__(
        self,
        on_change: Callable[[str], None],
        on_installed: Callable[[KnownModel], Awaitable[None]],
        *,
        keep_free: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called with a model's name after each change of its download; `on_installed` after its files
        are verified and installed. `keep_free` returns the bytes that stay free
        on the disk; on a thread."""
        self._on_change = on_change
        self._on_installed = on_installed
        self._keep_free = keep_free
        self._clock = clock
        self._downloads: dict[str, Download] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    def of(self, name: str) -> Download | None:
        """The download of a model; None if none runs, waits or has failed."""
        return self._downloads.get(name)

    def start(self, store: ModelStore, model: KnownModel) -> None:
        """Start a download, or continue one that has failed or was cancelled. Raises `Conflict` if it runs or
        waits."""
        if model.name in self._tasks:
            raise Conflict(f"{model.name} is being downloaded already")
        self._set(model.name, Download("waiting", total=model.size))
        self._tasks[model.name] = asyncio.create_task(self._run(store, model), name=f"download {model.name}")

    async def cancel(self, name: str) -> bool:
        """Stop a download, or forget one that has failed; the received bytes stay, so that the next one goes on from
        there. Returns False if there is none."""
        if task := self._tasks.get(name):
            task.cancel()
            await asyncio.wait((task,))
            self._tasks.pop(name, None)  # it may not have begun
            self._downloads.pop(name, None)
        elif self._downloads.pop(name, None) is None:
            return False
        self._on_change(name)
        return True

    async def close(self) -> None:
        """Stop all downloads."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, store: ModelStore, model: KnownModel) -> None:
        name = model.name
        try:
            async with self._turn:
                await self._download(store, model)
        except ModelFileError as error:
            log.warning("model.download_failed", name=name, error=error.message)
            self._change(name, state="failed", problem=error.message, bytes_per_s=None)
            return
        except asyncio.CancelledError:
            log.info("model.download_cancelled", name=name)
            self._downloads.pop(name, None)
            raise
        except Exception:
            log.exception("model.download_failed", name=name)
            self._change(name, state="failed", problem="internal error: see the server's log", bytes_per_s=None)
            return
        finally:
            self._tasks.pop(name, None)
        self._downloads.pop(name, None)
        self._on_change(name)

    async def _download(self, store: ModelStore, model: KnownModel) -> None:
        progress = _Progress(self, model)
        self._change(model.name, state="downloading")
        keep_free = await asyncio.to_thread(self._keep_free)
        records = await pull(
            store, model, progress.on_bytes, lambda: self._change(model.name, state="waiting"),
            on_retry=progress.on_retry, keep_free=keep_free,
        )  # fmt: skip
        log.info("model.downloaded", name=model.name, files=len(records))
        self._change(model.name, state="checking", bytes_per_s=None, problem=None)
        await self._on_installed(model)

    def now_s(self) -> float:
        """The time of the clock."""
        return self._clock()

    def report(self, name: str, received: int, bytes_per_s: float | None) -> None:
        """A download goes on."""
        self._change(name, state="downloading", received=received, bytes_per_s=bytes_per_s, problem=None)

    def report_interruption(self, name: str, cause: str, pause_s: float) -> None:
        """A download is tried again after a pause."""
        when = f"in {pause_s:g} s" if pause_s else "now"
        self._change(name, state="interrupted", bytes_per_s=None, problem=f"{cause}: it is tried again {when}")

    def _change(self, name: str, **changes: object) -> None:
        self._set(name, replace(self._downloads[name], **changes))  # type: ignore[arg-type]

    def _set(self, name: str, download: Download) -> None:
        self._downloads[name] = download
        self._on_change(name)


class _Progress:
    """Follows one download: what came of its files, and how fast."""

    def __init__(self, downloads: ModelDownloads, model: KnownModel) -> None:
        self._downloads = downloads
        self._model = model
        self._rate = TransferRate()
        self._reported_s = float("-inf")

    def on_bytes(self, file: KnownFile, done: int, total: int | None) -> None:
        """Files are downloaded in order: those before this one are there."""
        before = self._model.files[: self._model.files.index(file)]
        received = sum(each.size or 0 for each in before) + done
        now_s = self._downloads.now_s()
        self._rate.add(now_s, received)
        if done == total or now_s - self._reported_s >= PROGRESS_EVERY_S:
            self._reported_s = now_s
            self._downloads.report(self._model.name, received, self._rate.bytes_per_s)

    def on_retry(self, file: KnownFile, cause: str, pause_s: float) -> None:
        self._downloads.report_interruption(self._model.name, f"{file.name}: {cause}", pause_s)
