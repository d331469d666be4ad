"""Proves an installation of the service in a chroot without systemd: `prove_service.py CHROOT`, as root, in a network
namespace of its own whose loopback is up.

Starts the unit's command as its user, receives its messages as systemd would, creates an organization, an agent and a
number, calls the number with sipp, runs `trunkline check`, and stops the server. Ends with status 1 at the first
failure.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

API: Final = "http://127.0.0.1:8080"
NOTIFY: Final = "trunkline-proof"
START_S: Final = 300.0
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


def step(text: str) -> None:
    """Print a line of the report."""
    print(f"    {text}", flush=True)


def inside(root: Path, *command: str, **environment: str) -> list[str]:
    """The command line of a command in the chroot with this environment alone."""
    variables = {"PATH": PATH, "LANG": "C.UTF-8", **environment}
    return ["chroot", str(root), "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]


def run(root: Path, *command: str) -> str:
    """Run a command in the chroot, which must succeed; returns its standard output."""
    done = subprocess.run(inside(root, *command), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)} ended with status {done.returncode}: {done.stdout}")
    return done.stdout


def unit_setting(root: Path, name: str) -> str:
    """A setting of the installed unit."""
    text = (root / "usr/lib/systemd/system/trunkline.service").read_text()
    found = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    assert found is not None, name
    return found[1]


def wait_for(messages: socket.socket, assignment: str, server: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait for a message of the server with this assignment."""
    until_s = time.monotonic() + timeout_s
    messages.settimeout(1)
    while time.monotonic() < until_s and server.poll() is None:
        try:
            if assignment in messages.recv(4096).decode().split("\n"):
                step(f"the service manager gets {assignment}")
                return
        except TimeoutError:
            continue
    raise SystemExit(f"error: the server sent no {assignment}; its status: {server.poll()}")


def api(key: str, method: str, path: str, body: Any = None) -> Any:
    """A request to the API, which must succeed; returns its data."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{API}/v1/{path}", method=method, data=data)
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["data"]


def place_call(root: Path) -> None:
    """One call by sipp; the API then has it as completed."""
    run(root, "trunkline", "org", "create", "proof")
    key = re.findall(r"tk_[\w-]+", run(root, "trunkline", "key", "create", "--org", "proof"))[-1]
    agent = api(key, "POST", "agents", {
        "name": "Proof", "firstSpeaker": "agent", "agentGreetingEnabled": True, "agentGreeting": "Hello, a test.",
    })  # fmt: skip
    trunk = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1", "sipQualifySeconds": 0}
    api(key, "POST", "phone-numbers", {"number": "100", "agentId": agent["id"], **trunk})
    time.sleep(3)  # the allow list is read again within 2 s
    command = ["sipp", "-sn", "uac", "-s", "100", "127.0.0.1:5060", "-i", "127.0.0.1", "-m", "1", "-d", "4000"]
    done = subprocess.run([*command, "-timeout", "60"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: sipp ended with status {done.returncode}: {done.stdout[-2000:]}")
    until_s = time.monotonic() + 30
    while not (calls := [call for call in api(key, "GET", "calls") if call["endedAt"]]):
        assert time.monotonic() < until_s, "the call did not end"
        time.sleep(0.2)
    step(f"a call: {calls[0]['status']}, {calls[0]['endedReason']}, {calls[0]['durationSeconds']} s")
    assert calls[0]["status"] == "completed", calls[0]


def prove(root: Path) -> None:
    """All steps."""
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    messages.bind(f"\0{NOTIFY}")
    user = unit_setting(root, "User")
    command = ("setpriv", "--reuid", user, "--regid", user, "--init-groups", "--no-new-privs", "--bounding-set=-all")
    notify = {"NOTIFY_SOCKET": f"@{NOTIFY}", "WATCHDOG_USEC": "6000000"}
    server = subprocess.Popen(inside(root, *command, *unit_setting(root, "ExecStart").split(), **notify))
    try:
        wait_for(messages, "READY=1", server, START_S)
        place_call(root)
        print(run(root, "trunkline", "check"), flush=True)
        messages.setblocking(False)
        try:
            while messages.recv(4096):
                pass
        except BlockingIOError:
            pass
        wait_for(messages, "WATCHDOG=1", server, 30)
        server.send_signal(signal.SIGTERM)
        wait_for(messages, "STOPPING=1", server, 30)
        assert server.wait(60) == 0, server.returncode
        step("SIGTERM ends it with status 0")
    finally:
        if server.poll() is None:
            server.kill()
    data = root / "var/lib/trunkline"
    owners = {path.lstat().st_uid for path in (data, *data.rglob("*"))}
    assert len(owners) == 1 and 0 not in owners, owners
    step("all data belongs to the service's user")


if __name__ == "__main__":
    os.environ.pop("NOTIFY_SOCKET", None)
    prove(Path(sys.argv[1]))
