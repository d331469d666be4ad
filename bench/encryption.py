"""What encryption costs per call: SRTP with keys in the SDP, SIP over TLS, and both, against neither in the same run.

Server and callers are processes of their own; CPU is the server process's alone. The callers speak 39 % of the time,
the server records and listens, as in the pump's bench. All calls of a run share one TLS connection, as a trunk's do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.worker_process import Worker, thread_seconds
from sipcore.settings import TlsFiles

CALLS: Final = 100
SECONDS: Final = 15.0
SETTLE_S: Final = 3.0
"""Jitter buffers fill and the callers begin to speak."""
KINDS: Final = (
    ("plain", "off", "udp"), ("SRTP", "required", "udp"), ("TLS", "off", "tls"), ("SRTP and TLS", "required", "tls"),
)  # fmt: skip
NONE: Final[Mapping[str, Any]] = {"srtp": "off", "transport": "udp"}


def settings_of(encryption: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `EndpointSettings` that an order's `encryption` is about: `srtp`, `transport`, and for a server the
    port and files of TLS, for callers just the authority."""
    files = TlsFiles(*(Path(path) if path else None for path in encryption.get("tls", (None, None, None))))
    return {"srtp": encryption["srtp"], "tls_port": encryption.get("tls_port", 0), "tls": files}


async def run(calls: int = CALLS, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """A row for each kind; `times_plain` and `set_up_times_plain` are its CPU against the first's."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = await _certificate(Path(folder))
        files, rows = [certificate, key, certificate], []
        for what, srtp, transport in KINDS:
            rows.append({"what": what, **await _measure(calls, seconds, srtp, transport, files)})
    for row in rows:
        row["times_plain"] = round(row["cpu_percent_per_call"] / rows[0]["cpu_percent_per_call"], 2)
        row["set_up_times_plain"] = round(row["set_up_ms_per_call"] / rows[0]["set_up_ms_per_call"], 2)
    return rows


async def _measure(calls: int, seconds: float, srtp: str, transport: str, files: list[str]) -> dict[str, Any]:
    async with Worker("bench.audio.pump_server") as server, Worker("bench.audio.pump_load") as load:
        tls_port = _free_port() if transport == "tls" else 0
        here = {"srtp": srtp, "transport": transport, "tls_port": tls_port, "tls": files}
        there = {"srtp": srtp, "transport": transport, "tls": [None, None, files[2]]}
        port = (await server.do("start", calls=calls, with_engine=True, encryption=here))["port"]
        before = _cpu_s(server)
        await load.do("start", calls=calls, port=tls_port or port, encryption=there)
        set_up_s = _cpu_s(server) - before
        await asyncio.sleep(SETTLE_S)
        before, began = _cpu_s(server), asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        talk_s, took = _cpu_s(server) - before, asyncio.get_running_loop().time() - began
        if (left := (await server.do("stats", reset=False))["calls"]) != calls:
            raise RuntimeError(f"{left} of {calls} calls are left")
    return {
        "calls": calls,
        "cpu_percent_per_call": round(100 * talk_s / took / calls, 4),
        "set_up_ms_per_call": round(1000 * set_up_s / calls, 2),
    }


def _cpu_s(worker: Worker) -> float:
    return sum(thread_seconds(worker.pid).values())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _certificate(folder: Path) -> tuple[str, str]:
    """Its own authority, for 127.0.0.1."""
    certificate, key = str(folder / "bench.pem"), str(folder / "bench.key")
    child = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    if await child.wait() != 0:
        raise RuntimeError("openssl made no certificate")
    return certificate, key


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="?", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    for row in asyncio.run(run(options.calls, options.seconds)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
