"""Ports for the servers and peers of tests, separate for each process that runs tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket

_PROCESSES = 5
"""As many as `make test` starts for tests that hold calls."""
_PORTS_OF_PROCESS = 10_000 // _PROCESSES
_FIRST = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES * _PORTS_OF_PROCESS
"""Offset of this process's ports: each of those that run tests in parallel has ports of its own."""
RTP_PORTS = (10_000 + _FIRST, 10_000 + _FIRST + _PORTS_OF_PROCESS - 1)
"""First and last RTP port of the tested servers."""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


_PORTS = itertools.cycle(range(20_000 + _FIRST, 20_000 + _FIRST + _PORTS_OF_PROCESS))
for _ in range(random.randrange(_PORTS_OF_PROCESS)):  # separates parallel test runs on this machine
    next(_PORTS)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free for UDP and TCP now and was not returned recently, because its user may not have opened it
    yet. It is neither an ephemeral port, which a connection could take before the server opens it, nor a default RTP
    port."""
    family = _family(host)
    for port in _PORTS:
        with (
            contextlib.suppress(OSError),
            socket.socket(family, socket.SOCK_DGRAM) as udp,
            socket.socket(family) as tcp,
        ):
            udp.bind((host, port))
            tcp.bind((host, port))
            return port
    raise AssertionError("the cycle of ports never ends")


def free_pair(host: str = "127.0.0.1") -> int:
    """The first of two consecutive free ports."""
    while (port := free_port(host)) + 1 != free_port(host):
        pass
    return port
