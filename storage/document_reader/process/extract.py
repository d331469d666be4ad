"""Extracts the passages of a file in a sandboxed process, so that a hostile file cannot harm the server."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from storage.document_reader.base.errors import BROKEN, FORBIDDEN, TOO_LONG, TOO_MUCH_TEXT, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.chunker import Chunk
from storage.document_reader.process.protocol import ReadJob, ResultParser
from storage.document_reader.terms.tokenizer import ENGLISH

_PIECE: Final = 2**16
_PASSED_ON: Final = ("LD_LIBRARY_PATH",)
"""Environment variables that the process gets, because some builds of Python need them."""
_PROGRAM: Final = (sys.executable, "-I", "-X", "utf8", "-m", "storage.document_reader.process.worker")
_log = structlog.get_logger()


async def extract(
    path: Path,
    kind: DocumentFormat,
    limits: ReadLimits | None = None,
    charset: str | None = None,
    language: str = ENGLISH,
) -> list[Chunk]:
    """Returns the passages of a file, at least one; `charset` is the declared one, `language` that of the stemmer
    (`tokenizer.language_of`). Raises `UnreadableDocument` with a reason for the client, and `OSError` when the file
    cannot be opened. When it returns, raises or is cancelled, the process has ended."""
    job = ReadJob(kind, _limits_of(kind, limits or ReadLimits()), charset, language)
    try:
        return await _run(path, job)
    except UnreadableDocument as unreadable:
        # A reader that crashes or is hijacked concerns the operator; the other reasons concern the client.
        log = _log.warning if unreadable.message in (BROKEN, FORBIDDEN) else _log.info
        log("document.unreadable", kind=kind.value, reason=unreadable.message, cause=unreadable.cause)
        raise


def _limits_of(kind: DocumentFormat, limits: ReadLimits) -> ReadLimits:
    """The limits with the CPU time of the format: PDF and DOCX take longer to read than text of the same size."""
    if kind in (DocumentFormat.PDF, DocumentFormat.DOCX):
        return limits
    return replace(limits, cpu_s=min(limits.cpu_s, limits.text_cpu_s))


async def _run(path: Path, job: ReadJob) -> list[Chunk]:
    process = await _started(path, job)
    result = ResultParser()
    try:
        async with asyncio.timeout(job.limits.wall_s):
            await _read(process, result, job.limits.output_bytes)
            return result.passages(await process.wait())
    except TimeoutError as error:
        raise UnreadableDocument(TOO_LONG, f"after {job.limits.wall_s} s") from error
    finally:
        await _end(process)


async def _started(path: Path, job: ReadJob) -> asyncio.subprocess.Process:
    """Starts the process; ends it when cancelled meanwhile."""
    starting = asyncio.ensure_future(_start(path, job))
    try:
        await _wait_uncancelled(starting)
    except asyncio.CancelledError:
        if starting.exception() is None:
            await _end(starting.result())
        raise
    return starting.result()


async def _start(path: Path, job: ReadJob) -> asyncio.subprocess.Process:
    """Start the process without the environment, folder, terminal and signals of the server; the file is its standard
    input."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    source = await asyncio.to_thread(path.open, "rb")
    try:
        return await asyncio.create_subprocess_exec(
            *_PROGRAM, job.argument(),
            stdin=source, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=environment, cwd="/", start_new_session=True,
        )  # fmt: skip
    finally:
        source.close()


async def _read(process: asyncio.subprocess.Process, result: ResultParser, most: int) -> None:
    assert process.stdout is not None
    size = 0
    while piece := await process.stdout.read(_PIECE):
        size += len(piece)
        if size > most:
            raise UnreadableDocument(TOO_MUCH_TEXT, f"more than {most} bytes of output")
        result.feed(piece)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await _wait_uncancelled(asyncio.ensure_future(process.wait()))


async def _wait_uncancelled(awaited: asyncio.Future[Any]) -> None:
    """Wait until it is done, even when the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    cancelled = False
    while not awaited.done():
        try:
            await asyncio.wait([awaited])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
