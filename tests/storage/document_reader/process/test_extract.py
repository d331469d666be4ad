"""The process that reads a file: its output, its sandbox, its end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from config.sandbox.rlimits import NICENESS
from storage.document_reader.base.blocks import heading, paragraph
from storage.document_reader.base.errors import (
    BROKEN,
    FORBIDDEN,
    NO_TEXT,
    TOO_LONG,
    TOO_MUCH_MEMORY,
    TOO_MUCH_TEXT,
    UnreadableDocument,
)
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.chunker import Chunk, chunks_of
from storage.document_reader.process import extract as extract_module
from storage.document_reader.process.extract import extract
from storage.document_reader.process.protocol import ResultParser, end_line, passage_line, unreadable_line
from tests.storage.document_reader.office_files import docx, p, page_of, pdf

DEADLINE_S = 20.0


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def written(content: bytes) -> Path:
        path = tmp_path / "document"
        path.write_bytes(content)
        return path

    return written


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    others.clear()
    others.update(children())
    yield
    assert children() == []


others: set[int] = set()
"""Child processes of other tests."""


def children() -> list[int]:
    """Child processes of this test, zombies included."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return [pid for pid in pids if parent_of(pid) == os.getpid() and pid not in others]


def parent_of(pid: int) -> int | None:
    """None for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(status.rpartition(b")")[2].split()[1])


async def unreadable_message(path: Path, kind: DocumentFormat, limits: ReadLimits | None = None) -> str:
    with pytest.raises(UnreadableDocument) as raised:
        await extract(path, kind, limits)
    return raised.value.message


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (DocumentFormat.TEXT, "The hours: nine to five.".encode("utf-16")),
        (DocumentFormat.MARKDOWN, b"The *hours*: nine to five."),
        (DocumentFormat.HTML, b"<p>The <b>hours</b>: nine to five."),
        (DocumentFormat.CSV, b"The hours: nine to five."),
        (DocumentFormat.JSON, b'["The hours: nine to five."]'),
        (DocumentFormat.PDF, pdf([page_of("The hours: nine to five.")])),
        (DocumentFormat.DOCX, docx(p("The hours: nine to five."))),
    ],
    ids=lambda value: value.value if isinstance(value, DocumentFormat) else "",
)
async def test_a_file_of_every_format_gives_its_passages(
    kind: DocumentFormat, content: bytes, file: Callable[[bytes], Path]
) -> None:
    expected = list(chunks_of([paragraph("The hours: nine to five.")]))
    assert await extract(file(content), kind) == expected


async def test_the_process_returns_the_passages_of_reader_and_chunker(file: Callable[[bytes], Path]) -> None:
    text = "".join(f"# Part {number}\n\n{'A sentence of five words. ' * 100}\n\n" for number in range(50))
    parts = [
        block
        for number in range(50)
        for block in (heading(f"Part {number}", 1), paragraph(("A sentence of five words. " * 100).strip()))
    ]
    assert await extract(file(text.encode()), DocumentFormat.MARKDOWN) == list(chunks_of(parts))


async def test_the_senders_charset_reaches_the_process(file: Callable[[bytes], Path]) -> None:
    (passage,) = await extract(file("Öl".encode("cp850")), DocumentFormat.TEXT, charset="cp850")
    assert passage.text == "Öl"


async def test_the_reason_is_for_the_client_and_the_cause_for_the_log(file: Callable[[bytes], Path]) -> None:
    with capture_logs() as logs:
        assert await unreadable_message(file(b""), DocumentFormat.PDF) == NO_TEXT
        assert await unreadable_message(file(b"%PDF-1.7"), DocumentFormat.PDF) == "The PDF is damaged"
    assert [(log["event"], log["log_level"], log["reason"], log["cause"]) for log in logs] == [
        ("document.unreadable", "info", NO_TEXT, ""),
        ("document.unreadable", "info", "The PDF is damaged", "PdfStreamError"),
    ]


async def test_a_missing_file_raises_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await extract(tmp_path / "gone", DocumentFormat.TEXT)


async def test_a_file_beyond_a_limit_is_unreadable(file: Callable[[bytes], Path]) -> None:
    text = file(b"# A\nb\n" * 400)
    assert (
        await unreadable_message(text, DocumentFormat.TEXT, ReadLimits(file_bytes=100))
        == "The file is larger than 100 bytes"
    )
    assert (
        await unreadable_message(text, DocumentFormat.MARKDOWN, ReadLimits(passages=10))
        == "The file has more than 10 passages"
    )
    assert await unreadable_message(text, DocumentFormat.MARKDOWN, ReadLimits(output_bytes=1000)) == TOO_MUCH_TEXT


async def test_memory_is_limited(file: Callable[[bytes], Path]) -> None:
    lists = b"[" + b"[]," * 5_000_000 + b"[]]"
    assert (
        await unreadable_message(file(lists), DocumentFormat.JSON, ReadLimits(memory_bytes=200 * 2**20))
        == TOO_MUCH_MEMORY
    )


async def test_a_reader_without_memory_reports_its_reason(file: Callable[[bytes], Path]) -> None:
    marks = file(b"_a__" * 60_000)  # the parser of Markdown holds a lot for each
    assert (
        await unreadable_message(marks, DocumentFormat.MARKDOWN, ReadLimits(memory_bytes=100 * 2**20))
        == TOO_MUCH_MEMORY
    )


async def test_cpu_time_is_limited(file: Callable[[bytes], Path]) -> None:
    rows = b"a,b\n" + b",,,,,\n" * 3_000_000
    assert await unreadable_message(file(rows), DocumentFormat.CSV, ReadLimits(cpu_s=1)) == TOO_LONG


async def test_text_formats_get_less_cpu_time_than_compressed_ones(file: Callable[[bytes], Path]) -> None:
    lists = file(b"1. a\n" * 200_000)
    assert await unreadable_message(lists, DocumentFormat.MARKDOWN, ReadLimits(cpu_s=60, text_cpu_s=1)) == TOO_LONG


async def test_wall_time_is_limited(tmp_path: Path) -> None:
    with feed(tmp_path) as path:
        assert await unreadable_message(path, DocumentFormat.TEXT, ReadLimits(wall_s=0.3)) == TOO_LONG


@contextmanager
def feed(folder: Path) -> Iterator[Path]:
    """A named pipe as the file: a reader waits for its end until the block ends."""
    path = folder / "pipe"
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR)
    yield path
    os.close(handle)


@asynccontextmanager
async def waiting_process(folder: Path) -> AsyncIterator[tuple[asyncio.Task[list[Chunk]], int]]:
    """A task in `extract` and its process, which has applied its limits and waits for its file."""
    with feed(folder) as path:
        task = asyncio.create_task(extract(path, DocumentFormat.TEXT))
        async with asyncio.timeout(DEADLINE_S):
            # No event tells of another process's limits.
            while not (found := children()) or not is_restrained(found[0]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield task, found[0]
        if not task.done():
            task.cancel()
        await asyncio.wait([task])


def is_restrained(pid: int) -> bool:
    """True if the process has entered the sandbox, the last step before it reads."""
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


async def test_the_process_is_sandboxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_SECRET", "s3cret")
    async with waiting_process(tmp_path) as (_, pid):
        limits = ReadLimits()
        assert resource.prlimit(pid, resource.RLIMIT_AS) == (limits.memory_bytes, limits.memory_bytes)
        assert resource.prlimit(pid, resource.RLIMIT_CPU) == (limits.text_cpu_s, limits.text_cpu_s + 1)
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (limits.open_files, limits.open_files)
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
        assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (0, 0)
        assert resource.prlimit(pid, resource.RLIMIT_NPROC) == (0, 0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
        assert os.getsid(pid) == pid
        process = Path(f"/proc/{pid}")
        environment = (process / "environ").read_bytes()
        assert b"TRUNKLINE" not in environment and b"PATH=" not in environment.replace(b"LD_LIBRARY_PATH", b"")
        assert (process / "cwd").readlink() == Path("/")
        assert {handle.name for handle in (process / "fd").iterdir()} == {"0", "1", "2"}
        status = (process / "status").read_text()
        assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status


TAKEN_OVER = """
import os, socket, sys
from storage.document_reader.formats import text as text_format
from storage.document_reader.process import worker
def blocks_from_text(text):
    secret, deed = text.split()
    try:
        {"read": lambda: open(secret).read(), "write": lambda: open(secret, "w"), "fork": os.fork,
         "execute": lambda: os.execv("/bin/true", ["true"]), "connect": socket.socket}[deed]()
    except OSError as error:
        yield text_format.paragraph(type(error).__name__)
text_format.blocks_from_text = blocks_from_text
worker.main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
"""
"""The worker with a parser that executes the file."""


@pytest.mark.parametrize("deed", ["read", "write", "fork"])
async def test_a_hijacked_parser_opens_no_file_and_starts_no_process(
    deed: str, file: Callable[[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract_module, "_PROGRAM", (sys.executable, "-I", "-c", TAKEN_OVER))
    (tmp_path / "secret.key").write_text("a key")
    (passage,) = await extract(file(f"{tmp_path / 'secret.key'} {deed}".encode()), DocumentFormat.TEXT)
    assert passage.text in ("PermissionError", "BlockingIOError")
    assert (tmp_path / "secret.key").read_text() == "a key"


@pytest.mark.parametrize("deed", ["execute", "connect"])
async def test_a_hijacked_parser_is_killed_and_the_document_is_unreadable(
    deed: str, file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract_module, "_PROGRAM", (sys.executable, "-I", "-c", TAKEN_OVER))
    with capture_logs() as logs:
        assert await unreadable_message(file(f"x {deed}".encode()), DocumentFormat.TEXT) == FORBIDDEN
    assert [(log["event"], log["log_level"], log["cause"]) for log in logs] == [
        ("document.unreadable", "warning", f"signal {int(signal.SIGSYS)}"),
    ]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (DocumentFormat.TEXT, "Öl übel größer, ähnlich schön".encode("cp850")),
        (DocumentFormat.TEXT, "九時から五時まで営業しています。".encode("iso2022_jp")),
        (DocumentFormat.MARKDOWN, b"# Hours\n\n| day | hours |\n|---|---|\n| Monday | *nine* to five |"),
        (DocumentFormat.HTML, '<meta charset="koi8-r"><p>Часы работы: девять'.encode("koi8-r")),
        (DocumentFormat.CSV, "day;hours\nMontag;neun bis fünf".encode("cp1252")),
        (DocumentFormat.JSON, '{"hours": "nine to five"}'.encode("utf-16")),
        (DocumentFormat.PDF, pdf([page_of("The hours: nine to five.")])),
        (DocumentFormat.DOCX, docx(p("The hours: nine to five."))),
    ],
)
async def test_every_format_is_read_without_landlock(
    kind: DocumentFormat, content: bytes, file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await extract(file(content), kind)
    program = (
        "import sys, storage.document_reader.process.worker as worker\n"
        "from config.sandbox import landlock\n"
        "def none(): raise OSError(38, 'Function not implemented')\n"
        "landlock.version = none\n"
        "worker.main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)\n"
    )
    monkeypatch.setattr(extract_module, "_PROGRAM", (sys.executable, "-I", "-X", "utf8", "-c", program))
    assert await extract(file(content), kind) == expected != []


async def test_a_process_that_dies_makes_the_file_unreadable(tmp_path: Path) -> None:
    for name, ending, reason in (
        ("a", signal.SIGSEGV, BROKEN), ("b", signal.SIGKILL, BROKEN), ("c", signal.SIGXCPU, TOO_LONG),
    ):  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        async with waiting_process(folder) as (task, pid):
            os.kill(pid, ending)
            with pytest.raises(UnreadableDocument) as raised:
                await task
            assert raised.value.message == reason


async def test_cancelling_the_task_ends_the_process(tmp_path: Path) -> None:
    async with waiting_process(tmp_path) as (task, pid):
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pid not in children()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_task_cancelled_at_any_step_leaves_no_process(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def cancelled_at_any_step(path: Path) -> None:
        for steps in (*range(12), 16, 24, 32):
            task = asyncio.create_task(extract(path, DocumentFormat.TEXT))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert children() == [], steps

    with feed(tmp_path) as path, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(cancelled_at_any_step(path))


def test_extraction_works_on_the_servers_event_loop(file: Callable[[bytes], Path]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        (passage,) = runner.run(extract(file(b"Nine to five."), DocumentFormat.TEXT))
        assert passage.text == "Nine to five."
        with pytest.raises(UnreadableDocument, match=TOO_LONG):
            runner.run(extract(file(b"x"), DocumentFormat.TEXT, ReadLimits(wall_s=0.001)))


@pytest.mark.parametrize(
    ("output", "status", "reason"),
    [
        (b"", 0, BROKEN),
        (b"", 1, BROKEN),
        (b"Segmentation fault\n", 139, BROKEN),
        (b'["a", "a"]\n', 0, BROKEN),
        (b'["a", "a"]\n{"passages": 2}\n', 0, BROKEN),
        (b'["a", "a"]\n{"passages": 1}\n', 1, BROKEN),
        (b'["a", "a"]\n{"passages": 1}\nmore', 0, BROKEN),
        (b'["a", "a"]\n{"passages": 1}', 0, BROKEN),
        (b'["a", 1]\n{"passages": 1}\n', 0, BROKEN),
        (b'"a"\n{"passages": 1}\n', 0, BROKEN),
        (b"[" * 10_000 + b"\n" + end_line(1), 0, BROKEN),
        (end_line(0) + b'["a", "a"]\n' + end_line(1), 0, BROKEN),
        (end_line(1), 0, BROKEN),
        (b'{"unreadable": 1, "cause": ""}\n', 0, BROKEN),
        (b"\xff\xfe\n", 0, BROKEN),
        (b'["a", "a"]\n', -signal.SIGXCPU, TOO_LONG),
        (b'["a", "a"]\n', -signal.SIGALRM, TOO_LONG),
        (b'["a", "a"]\n', -signal.SIGSYS, FORBIDDEN),
        (b'["a", "a"]\n' + end_line(1), -signal.SIGSYS, FORBIDDEN),
        (b'["a", "a"]\n', -signal.SIGSEGV, BROKEN),
        (b'["a", "a"]\n' + unreadable_line(NO_TEXT, ""), 0, NO_TEXT),
    ],
)
def test_only_complete_output_is_accepted(output: bytes, status: int, reason: str) -> None:
    for size in (1, 7, len(output) + 1):
        with pytest.raises(UnreadableDocument) as raised:
            answered(output, size).passages(status)
        assert raised.value.message == reason


def answered(output: bytes, size: int) -> ResultParser:
    """A parser that was fed pieces of `size` bytes."""
    answer = ResultParser()
    for start in range(0, len(output), size):
        answer.feed(output[start : start + size])
    return answer


def test_an_endless_line_is_not_buffered() -> None:
    answer = ResultParser()
    tracemalloc.start()
    for _ in range(100):
        answer.feed(b"x" * 2**20)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * 2**20
    answer.feed(b"\n" + end_line(0))
    with pytest.raises(UnreadableDocument, match=BROKEN):
        answer.passages(0)


def test_output_lines_are_parsed_as_they_were_written() -> None:
    passages = [Chunk(0, "One\r\n\u2028 line", "one lin"), Chunk(1, "\u4e5d", "\u4e5d")]
    output = b"".join(map(passage_line, passages)) + end_line(2)
    for size in (1, 7, len(output)):
        assert answered(output, size).passages(0) == passages


def test_the_server_loads_no_parser() -> None:
    program = (
        "import storage.document_reader.process.extract, storage.document_reader.terms.ranking, sys;print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    parsers = {"pypdf", "markdown_it", "chardet", "zipfile", "html.parser", "csv", "xml.parsers.expat"}
    assert "storage.document_reader.process.extract" in loaded
    assert not parsers & set(loaded)


SOUND = {
    DocumentFormat.PDF: pdf([page_of("Opening hours\nWe open at nine (in the morning)\nand close at six.")] * 3),
    DocumentFormat.DOCX: docx(p("Hours", "berschrift1") + p("We open at nine.")),
}


@pytest.mark.parametrize("kind", SOUND)
def test_two_hundred_damaged_files_are_read_or_unreadable(kind: DocumentFormat) -> None:
    command = [sys.executable, "-m", "tests.storage.document_reader.mutated_documents", kind.value, "200"]
    done = subprocess.run(command, input=SOUND[kind], capture_output=True, check=False)
    verdicts = [json.loads(line.split(b" ", 1)[1]) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr.decode()[-500:]
    assert len(verdicts) == 200
    assert 5 < sum("passages" in verdict for verdict in verdicts) < 195
    assert not [verdict for verdict in verdicts if verdict.get("unreadable") == BROKEN]
