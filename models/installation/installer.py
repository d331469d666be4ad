"""Installs models into the store of a running server: downloads, imports, checks and removal, one of a kind at a time,
and tells who follows what has changed. The server loads new models when it starts again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog

from config.errors import Conflict, ModelFileError, NotFound
from models.installation import inventory
from models.installation.downloads import ModelDownloads
from models.installation.file_import import ImportResult, import_file, require_file_name
from models.installation.inventory import ModelEntry
from models.installation.removal import remove_model
from models.installation.reports import ModelReport, report_of
from models.installation.verification import Verification, has_load_check, verify_listed, verify_own
from models.loading.model_usage import ModelUsage
from models.model_files.download import MAX_FILE_BYTES, MIN_FREE_BYTES, require_free_space
from models.model_files.known_models import KnownModel, read_known
from models.model_files.store import ModelStore, disk_errors_as_model_file_errors

IMPORT_DIRECTORY: Final = "import"
"""The folder in `[models] dir` from which files can be imported by their names."""
_UPLOADS: Final = ".uploads"
_RESERVE_SHARE: Final = 10
"""The reserve is at most the disk's size divided by this."""

log = structlog.get_logger()


class ModelInstaller:
    """The models of a running server's machine. For one event loop."""

    def __init__(
        self,
        directory: Path,
        usage: Callable[[], ModelUsage],
        live_calls: Callable[[], int],
        *,
        named_by_settings: Mapping[str, str],
        reserve_bytes: int,
        keep_free: int = MIN_FREE_BYTES,
    ) -> None:
        """`directory`: `[models] dir`. `usage`: of the running server; `live_calls`: their number. `named_by_settings`:
        the settings of `[models]` that name a model, by the model's name. `reserve_bytes` and at least `keep_free` stay
        free on the disk."""
        self.on_change: Callable[[str, ModelReport | None], None] = lambda _name, _report: None
        """Called with each model that has changed, with None for one that is gone."""
        self.directory: Final = directory
        self._usage = usage
        self._live_calls = live_calls
        self._named_by_settings = named_by_settings
        self._reserve_bytes = reserve_bytes
        self._keep_free = keep_free
        self._downloads = ModelDownloads(self._changed, self._check_installed, keep_free=self._free_bytes_to_keep)
        self._verified: dict[str, Verification] = {}
        self._checking: set[str] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self._importing = False
        self._dirty: dict[str, None] = {}
        self._telling: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop downloads, and wait for checks."""
        await self._downloads.close()
        tasks = {*self._checks, *(() if self._telling is None else (self._telling,))}
        if tasks:
            await asyncio.wait(tasks)

    # ---- what there is ----

    async def models(self) -> list[ModelReport]:
        """All models: own ones, then the listed ones in order of preference, then the built-in ones. Raises
        `ModelFileError`."""
        usage = self._usage()
        return await asyncio.to_thread(self._reports, usage)

    async def model(self, name: str) -> ModelReport:
        """One model. Raises `NotFound`."""
        found = next((report for report in await self.models() if report.entry.name == name), None)
        if found is None:
            raise NotFound("Model not found")
        return found

    def voices_of(self, name: str) -> Collection[str]:
        """The ids of the voices that calls can have of a model."""
        return [str(voice.id) for voice in self._usage().voices_of(name)]

    def _store(self) -> ModelStore:
        return ModelStore(self.directory, read_known(self.directory))

    def _reports(self, usage: ModelUsage) -> list[ModelReport]:
        store = self._store()
        with disk_errors_as_model_file_errors(self.directory):
            entries = [
                *inventory.own_models(store, read_headers=False), *inventory.listed_models(store),
                *inventory.unchecked_built_in_models(),
            ]  # fmt: skip
            return [
                report_of(
                    store, each, usage, self._named_by_settings, self._downloads.of(each.name), self._checking,
                    self._verified.get(each.name),
                )
                for each in entries
            ]  # fmt: skip

    # ---- downloads ----

    async def download(self, name: str) -> ModelReport:
        """Start or continue the download of a listed model. Raises `Conflict` for one that is installed or is being
        downloaded, and `NotFound`."""
        entry = (await self.model(name)).entry
        if entry.listed is None:
            raise Conflict(f"{name} is in no list: there is nothing to download")
        if entry.state.name in ("ready", "missing package") and not self._has_file_problems(name):
            raise Conflict(f"{name} is installed already")
        if name in self._checking:
            raise Conflict(f"{name} is being verified: wait until that is done")
        self._verified.pop(name, None)
        store = await asyncio.to_thread(self._store)
        self._downloads.start(store, entry.listed)
        return await self.model(name)

    async def cancel_download(self, name: str) -> ModelReport:
        """Stop a download, or forget one that has failed; what came stays for the next one. Raises `Conflict` if there
        is none."""
        if not await self._downloads.cancel(name):
            raise Conflict(f"{name} is not being downloaded")
        return await self.model(name)

    def _has_file_problems(self, name: str) -> bool:
        verified = self._verified.get(name)
        return verified is not None and bool(verified.file_problems)

    # ---- checks ----

    async def check(self, name: str) -> ModelReport:
        """Begin to verify an installed model: its checksums, and a load check in another process, which measures its
        speed and takes processor time for seconds. Raises `Conflict` while calls run, and for a model that is not
        installed."""
        entry = (await self.model(name)).entry
        if calls := self._live_calls():
            raise Conflict(f"a check would disturb live calls, now {calls}: check {name} when there are none")
        if entry.source == "built-in":
            raise Conflict(f"{name} is built in: the server has checked it at its start")
        if entry.state.name == "not pulled":
            raise Conflict(f"{name} is not installed: download or import it")
        if name in self._checking or self._downloads.of(name) is not None:
            raise Conflict(f"{name} is being downloaded or verified already")
        self._begin_check(entry)
        return await self.model(name)

    def _begin_check(self, entry: ModelEntry) -> None:
        self._checking.add(entry.name)
        task = asyncio.create_task(self._check(entry), name=f"check {entry.name}")
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        self._changed(entry.name)

    async def _check(self, entry: ModelEntry) -> None:
        try:
            self._verified[entry.name] = await asyncio.to_thread(self._verify, entry)
        except (ModelFileError, OSError) as error:
            self._verified[entry.name] = Verification((str(error),))
        finally:
            self._checking.discard(entry.name)
            self._changed(entry.name)
        log.info("model.verified", name=entry.name, problems=len(self._verified[entry.name].problems))

    def _verify(self, entry: ModelEntry) -> Verification:
        store = self._store()
        if entry.listed is not None:
            return verify_listed(store, entry.listed)
        return Verification() if entry.file is None else verify_own(store, entry.name, entry.file)

    async def _check_installed(self, model: KnownModel) -> None:
        """The load check of a model that was just installed, unless calls are live: the server has one at its start."""
        self._verified.pop(model.name, None)
        store = await asyncio.to_thread(self._store)
        if not self._live_calls() and await asyncio.to_thread(has_load_check, store, model):
            self._verified[model.name] = await asyncio.to_thread(verify_listed, store, model)

    # ---- removal ----

    async def delete(self, name: str) -> int:
        """Delete the files of a model that is not in use, also of an unfinished download. Returns the freed bytes.
        Raises `Conflict` with what to do first, and `NotFound`."""
        report = await self.model(name)
        if report.in_use is not None:
            raise Conflict(f"{name} cannot be deleted. {report.in_use}.")
        if report.checking or (report.download is not None and report.download.state != "failed"):
            raise Conflict(f"{name} is being downloaded or verified: stop that first")
        await self._downloads.cancel(name)
        store = await asyncio.to_thread(self._store)
        freed = await remove_model(store, report.entry)
        self._verified.pop(name, None)
        log.info("model.deleted", name=name, freed_bytes=freed)
        self._changed(name)
        return freed

    # ---- imports ----

    async def importable_files(self) -> list[tuple[str, int]]:
        """Names and bytes of the files in the folder for imports."""
        return await asyncio.to_thread(self._importable_files)

    def _importable_files(self) -> list[tuple[str, int]]:
        folder = self.directory / IMPORT_DIRECTORY
        if not folder.is_dir():
            return []
        files = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink())
        return [(path.name, path.stat().st_size) for path in files if not path.name.startswith(".")]

    async def import_from_folder(self, file: str, own_name: str | None, taken: Collection[str]) -> ImportResult:
        """Import a file of the folder for imports, which stays there. Raises `ModelFileError`, also for a link or a
        path; `Conflict` while another import runs."""
        path = self.directory / IMPORT_DIRECTORY / require_file_name(file)
        with self._import_slot():
            if not await asyncio.to_thread(_is_plain_file, path):
                raise ModelFileError(f"there is no file {file} in {path.parent}: copy it there first")
            return await self._import(path, own_name, taken)

    async def import_upload(
        self, file: str, size: int, content: AsyncIterator[bytes], own_name: str | None, taken: Collection[str]
    ) -> ImportResult:
        """Store an upload of `size` bytes, and import it. Raises `ModelFileError`, and `Conflict` while another import
        runs."""
        require_file_name(file)
        if not 0 < size <= MAX_FILE_BYTES:
            raise ModelFileError(f"{file} has {size} bytes: a model's file has 1 to {MAX_FILE_BYTES}")
        with self._import_slot():
            uploads = self.directory / _UPLOADS
            folder = uploads / uuid4().hex
            try:
                with disk_errors_as_model_file_errors(self.directory):
                    await asyncio.to_thread(self._make_folder, uploads, folder, size)
                    await _write(folder / file, size, content)
                return await self._import(folder / file, own_name, taken)
            finally:
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))

    def _make_folder(self, uploads: Path, folder: Path, size: int) -> None:
        shutil.rmtree(uploads, ignore_errors=True)  # what a killed server has left
        folder.mkdir(parents=True, mode=0o700)
        require_free_space(folder, size, self._free_bytes_to_keep())

    async def _import(self, path: Path, own_name: str | None, taken: Collection[str]) -> ImportResult:
        store = await asyncio.to_thread(self._store)
        keep_free = await asyncio.to_thread(self._free_bytes_to_keep)
        result = await import_file(store, path, own_name, taken, keep_free=keep_free)
        log.info("model.imported", names=list(result.installed), incomplete=[name for name, _ in result.missing])
        for name in result.installed:
            self._verified.pop(name, None)
            if not self._live_calls():
                self._begin_check((await self.model(name)).entry)
        for name in (*result.installed, *(name for name, _ in result.missing)):
            self._changed(name)
        return result

    @contextmanager
    def _import_slot(self) -> Iterator[None]:
        if self._importing:
            raise Conflict("Another import runs: wait until it is done")
        self._importing = True
        try:
            yield
        finally:
            self._importing = False

    def _free_bytes_to_keep(self) -> int:
        """The disk's reserve for calls, which models leave free on their disk too. Makes the folder of models."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return max(self._keep_free, min(self._reserve_bytes, shutil.disk_usage(self.directory).total // _RESERVE_SHARE))

    # ---- events ----

    def _changed(self, name: str) -> None:
        self._dirty[name] = None
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="model events")

    async def _tell(self) -> None:
        """Tell the changes in order, each with what is there now."""
        while self._dirty:
            names, self._dirty = self._dirty, {}
            try:
                reports = {report.entry.name: report for report in await self.models()}
            except ModelFileError as error:
                log.warning("model.events_failed", error=error.message)
                return
            for name in names:
                self.on_change(name, reports.get(name))


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()


async def _write(path: Path, size: int, content: AsyncIterator[bytes]) -> None:
    """Write an upload. Raises `ModelFileError` unless it has `size` bytes."""
    received = 0
    file = await asyncio.to_thread(path.open, "xb")
    try:
        async for block in content:
            received += len(block)
            if received > size:
                break
            await asyncio.to_thread(file.write, block)
        await asyncio.to_thread(file.flush)
        await asyncio.to_thread(os.fsync, file.fileno())
    finally:
        await asyncio.to_thread(file.close)
    if received != size:
        raise ModelFileError(f"{path.name} came with {received} of {size} bytes: send it again")
