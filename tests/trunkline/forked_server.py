"""`trunkline serve` as a fork of a process that has imported its modules, computed the OpenAPI document and loaded two
speech recognition decoders, which take most of the CPU time of a start.

A test process has one such parent. Beside these, everything is that of the installed command: the server is a process
of its own, with the environment, folder and streams that its test gives it.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from unittest import mock

from tests.trunkline.nodes import network_namespaces

MAX_REQUEST_BYTES = 1 << 17


class ForkedServer:
    """A running server; `pid`, `returncode`, `wait` and `send_signal` are those of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, stderr: asyncio.StreamReader, statuses: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stderr = stderr
        self.returncode: int | None = None
        self._end = asyncio.create_task(self._read_status(statuses))

    async def _read_status(self, statuses: asyncio.StreamReader) -> int:
        self.returncode = int(await statuses.readline())
        return self.returncode

    async def wait(self) -> int:
        """Wait for the end; returns the exit status, or the negative signal number."""
        return await asyncio.shield(self._end)

    def send_signal(self, number: signal.Signals) -> None:
        """Raises `ProcessLookupError` if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        with suppress(ProcessLookupError):  # it has ended, but its status is still to be read
            os.kill(self.pid, number)


async def start(folder: Path, environment: Mapping[str, str], network: str = "") -> ForkedServer:
    """Start a server in a folder. `network`: the path of a network namespace, if it is not that of its parent."""
    errors, errors_of_server = os.pipe()
    statuses, statuses_of_parent = os.pipe()
    request = json.dumps([str(folder), dict(environment), network]).encode()
    try:
        assert len(request) < MAX_REQUEST_BYTES
        socket.send_fds(parent(), [request], [errors_of_server, statuses_of_parent])
    finally:
        os.close(errors_of_server)
        os.close(statuses_of_parent)
    reader = await _reader(statuses)
    return ForkedServer(int(await reader.readline()), await _reader(errors), reader)


async def _reader(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    return reader


_parents: list[socket.socket] = []


def parent() -> socket.socket:
    """The connection to the parent of the servers, which starts at the first call and ends with this process. It is no
    child of this process, whose tests count and end children."""
    if not _parents:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRUNKLINE_", "ORT_"))}
        with theirs:
            subprocess.run(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                check=True,
            )
        atexit.register(ours.close)
        _parents.append(ours)
    return _parents[0]


def fork_servers(requests: socket.socket) -> None:
    """Fork a server for each request, until the test process ends. Returns in the calling process at once."""
    if os.fork():
        return
    gc.disable()
    _import_modules()
    _compute_openapi_document()
    _load_decoders()
    gc.freeze()
    gc.enable()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not request:
            return
        if not os.fork():
            requests.close()
            _supervise(*json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _reap()


def _import_modules() -> None:
    import pocketsphinx  # noqa: F401
    import uvloop  # noqa: F401

    import trunkline.cli.main
    import trunkline.cli.operation.serve
    import trunkline.server.startup  # noqa: F401


def _compute_openapi_document() -> None:
    from api.routes import openapi_json

    openapi_json()


def _load_decoders() -> None:
    """Load the decoders with which a server on two cores begins: each fork takes these over, and loads more itself."""
    from models.stt.pocketsphinx import speech_to_text
    from models.stt.pocketsphinx.bindings import Decoder, load_library

    def settings_of(options: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in options.items() if name != "mllr"}  # a file of each server, all equal

    def decoder(library: ctypes.CDLL, options: Mapping[str, str]) -> Decoder:
        is_of_these = settings_of(options) == settings_of(telephone)
        return loaded.pop() if loaded and is_of_these else Decoder(library, options)

    with tempfile.TemporaryDirectory() as folder:
        telephone = speech_to_text.telephone_options(Path(folder))
        loaded = [Decoder(load_library(), telephone) for _ in range(2)]
    mock.patch.object(speech_to_text, "Decoder", decoder).start()


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(folder: str, environment: dict[str, str], network: str, errors: int, statuses: int) -> NoReturn:
    """Fork a server, and write two lines: its process id, and its exit status when it has ended."""
    pid = os.fork()
    if not pid:
        os.close(statuses)
        if network:
            network_namespaces.enter(network)
        _serve(folder, environment, errors)
    os.close(errors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(statuses, b"%d\n" % pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(statuses, b"%d\n" % status)
    os._exit(0)


def _serve(folder: str, environment: dict[str, str], errors: int) -> NoReturn:
    from trunkline.cli.main import main

    os.dup2(errors, 2)
    os.close(errors)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(Path(sys.executable).with_name("trunkline")), "serve"]
    sys.exit(main())


if __name__ == "__main__":
    fork_servers(socket.socket(fileno=int(sys.argv[1])))
