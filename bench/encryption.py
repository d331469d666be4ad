"""CPU cost of encryption per call: SRTP with keys in the SDP, SIP over TLS, and both, compared with neither in the same
run.

Server and callers are separate processes; CPU is that of the server process alone. The callers speak 39 % of the time,
and the server runs voice activity detection and recording, as in the pump benchmark. All calls of a run share one TLS
connection, like those of a trunk.
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
"""Time in which jitter buffers fill and the callers begin to speak."""
KINDS: Final = (
    ("plain", "off", "udp"), ("SRTP", "required", "udp"), ("TLS", "off", "tls"), ("SRTP and TLS", "required", "tls"),
)  # fmt: skip
UNENCRYPTED: Final[Mapping[str, Any]] = {"srtp": "off", "transport": "udp"}


def encryption_settings(encryption: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `EndpointSettings` for the `encryption` of a worker's command: `srtp`, and for TLS the port and
    files of a server, or the certificate authority alone for the callers."""
    files = TlsFiles(*(Path(path) if path else None for path in encryption.get("tls", (None, None, None))))
    return {"srtp": encryption["srtp"], "tls_port": encryption.get("tls_port", 0), "tls": files}


async def run(calls: int = CALLS, seconds: float = SECONDS, settle_s: float = SETTLE_S) -> list[dict[str, Any]]:
    """A row for each kind; `times_plain` and `set_up_times_plain` are its CPU as a multiple of the unencrypted one."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = await _certificate(Path(folder))
        files, rows = [certificate, key, certificate], []
        for what, srtp, transport in KINDS:
            rows.append({"what": what, **await _measure(calls, seconds, settle_s, srtp, transport, files)})
    for row in rows:
        row["times_plain"] = _ratio(row["cpu_percent_per_call"], rows[0]["cpu_percent_per_call"])
        row["set_up_times_plain"] = _ratio(row["set_up_ms_per_call"], rows[0]["set_up_ms_per_call"])
    return rows


def _ratio(value: float, base: float) -> float | None:
    """None if the base is 0: a short run may take less CPU than the kernel counts."""
    return round(value / base, 2) if base else None


async def _measure(
    calls: int, seconds: float, settle_s: float, srtp: str, transport: str, files: list[str]
) -> dict[str, Any]:
    async with Worker("bench.audio.pump_server") as server, Worker("bench.audio.pump_load") as load:
        tls_port = _free_port() if transport == "tls" else 0
        server_encryption = {"srtp": srtp, "transport": transport, "tls_port": tls_port, "tls": files}
        caller_encryption = {"srtp": srtp, "transport": transport, "tls": [None, None, files[2]]}
        port = (await server.request("start", calls=calls, with_engine=True, encryption=server_encryption))["port"]
        before = _cpu_s(server)
        await load.request("start", calls=calls, port=tls_port or port, encryption=caller_encryption)
        set_up_s = _cpu_s(server) - before
        await asyncio.sleep(settle_s)
        before, began = _cpu_s(server), asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        media_s, elapsed_s = _cpu_s(server) - before, asyncio.get_running_loop().time() - began
        if (active := (await server.request("stats", reset=False))["calls"]) != calls:
            raise RuntimeError(f"only {active} of {calls} calls are active")
    return {
        "calls": calls,
        "cpu_percent_per_call": round(100 * media_s / elapsed_s / calls, 4),
        "set_up_ms_per_call": round(1000 * set_up_s / calls, 2),
    }


def _cpu_s(worker: Worker) -> float:
    return sum(thread_seconds(worker.pid).values())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _certificate(folder: Path) -> tuple[str, str]:
    """Writes a self-signed certificate for 127.0.0.1. Returns the files of the certificate and its key."""
    certificate, key = str(folder / "bench.pem"), str(folder / "bench.key")
    child = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    if await child.wait() != 0:
        raise RuntimeError("openssl did not create a certificate")
    return certificate, key


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="?", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    for row in asyncio.run(run(options.calls, options.seconds)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
