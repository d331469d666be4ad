"""Proves an installation of the service in a chroot without systemd: `prove_service.py CHROOT ASTERISK [upgraded]`, as
root, in a network namespace of its own whose loopback is up. ASTERISK is the folder of `asterisk.sh`.

Starts the unit's command as its user and receives its messages as systemd would. Creates an organization, an agent and
a number by the command line alone, and gives an Asterisk the sections that `number create` prints. A telephone of the
Asterisk (sipp) calls the agent, the agent calls the telephone's extension. Runs `trunkline check` and stops the server.
With `upgraded`, what an earlier version has stored must be there instead, and the calls are made with it. Ends with
status 1 at the first failure.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

NOTIFY: Final = "trunkline-proof"
START_S: Final = 300.0
CALL_S: Final = 60.0
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
DATABASE: Final = "var/lib/trunkline/trunkline.db"
SIP_PORT: Final = 5070
"""Asterisk's: the server has 5060."""
PHONE: Final = "127.0.0.3"
PHONE_PORT: Final = 5090
GREETING: Final = "Hello, a test."
MODULES: Final = """
res_sorcery_config res_sorcery_memory res_sorcery_astdb res_timing_timerfd res_pjproject res_pjsip res_pjsip_session
res_pjsip_sdp_rtp res_pjsip_endpoint_identifier_ip res_pjsip_endpoint_identifier_user res_pjsip_caller_id res_pjsip_nat
res_pjsip_authenticator_digest res_pjsip_outbound_authenticator_digest res_pjsip_pubsub res_rtp_asterisk chan_pjsip
pbx_config app_dial bridge_simple bridge_native_rtp bridge_softmix bridge_builtin_features codec_ulaw codec_alaw
codec_g722 codec_resample
"""
PHONE_SECTIONS: Final = f"""
[100]
type=endpoint
context=phones
disallow=all
allow=ulaw
aors=100
direct_media=no

[100]
type=aor
contact=sip:100@{PHONE}:{PHONE_PORT}

[phone-100]
type=identify
endpoint=100
match={PHONE}
"""


def step(text: str) -> None:
    """Print a line of the report."""
    print(f"    {text}", flush=True)


def inside(root: Path, *command: str, **environment: str) -> list[str]:
    """The command line of a command in the chroot with this environment alone."""
    variables = {"PATH": PATH, "LANG": "C.UTF-8", **environment}
    return ["chroot", str(root), "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]


def run(root: Path, *command: str) -> tuple[str, str]:
    """Run a command in the chroot, which must succeed; returns its standard output and error."""
    done = subprocess.run(inside(root, *command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)} ended with status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def listed(root: Path, *command: str) -> list[dict[str, Any]]:
    """The objects that a command of the chroot prints with `--json`."""
    return [json.loads(line) for line in run(root, "trunkline", *command, "--json")[0].splitlines()]


def until(what: str, found: Callable[[], Any], timeout_s: float) -> Any:
    """Wait until `found` returns something; returns it."""
    until_s = time.monotonic() + timeout_s
    while not (result := found()):
        if time.monotonic() > until_s:
            raise SystemExit(f"error: {what}: not within {timeout_s:.0f} s")
        time.sleep(0.5)
    return result


def unit_setting(root: Path, name: str) -> str:
    """A setting of the installed unit."""
    text = (root / "usr/lib/systemd/system/trunkline.service").read_text()
    found = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    assert found is not None, name
    return found[1]


class ServiceManager:
    """Receives the messages that the server sends to systemd."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{NOTIFY}")
        self._received: queue.Queue[list[str]] = queue.Queue()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            self._received.put(self._socket.recv(4096).decode().split("\n"))

    def forget(self) -> None:
        """Forget what has come so far."""
        self._received = queue.Queue()

    def wait_for(self, assignment: str, server: subprocess.Popen[bytes], timeout_s: float) -> None:
        """Wait for a message of the server with this assignment."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s and server.poll() is None:
            try:
                if assignment in self._received.get(timeout=1):
                    step(f"the service manager gets {assignment}")
                    return
            except queue.Empty:
                continue
        raise SystemExit(f"error: the server sent no {assignment}; its status: {server.poll()}")


@contextmanager
def service(root: Path) -> Iterator[None]:
    """The service, started as systemd would. At the end it must send WATCHDOG=1, and stop when it gets SIGTERM."""
    manager = ServiceManager()
    user = unit_setting(root, "User")
    command = ("setpriv", "--reuid", user, "--regid", user, "--init-groups", "--no-new-privs", "--bounding-set=-all")
    notify = {"NOTIFY_SOCKET": f"@{NOTIFY}", "WATCHDOG_USEC": "6000000"}
    server = subprocess.Popen(inside(root, *command, *unit_setting(root, "ExecStart").split(), **notify))
    try:
        manager.wait_for("READY=1", server, START_S)
        yield
        manager.forget()
        manager.wait_for("WATCHDOG=1", server, 30)
        server.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1", server, 30)
        assert server.wait(60) == 0, server.returncode
        step("SIGTERM ends it with status 0")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


@contextmanager
def asterisk(chroot: Path, pjsip: str, extensions: str) -> Iterator[None]:
    """Asterisk with these configurations and the telephone 100."""
    modules = next(chroot.glob("usr/lib/*/asterisk/modules")).relative_to(chroot)
    with tempfile.TemporaryDirectory(dir=chroot / "var/tmp") as folder:
        own = f"/{Path(folder).relative_to(chroot)}"
        directories = "\n".join(
            [f"{name} => {own}" for name in ("astetcdir", "astdbdir", "astrundir", "astspooldir", "astlogdir")]
            + [f"astmoddir => /{modules}", "astvarlibdir => /usr/share/asterisk", "astdatadir => /usr/share/asterisk"]
        )
        files = {
            "asterisk.conf": f"[directories]\n{directories}\n",
            "modules.conf": "[modules]\nautoload=no\n" + "".join(f"load => {name}.so\n" for name in MODULES.split()),
            "logger.conf": "[logfiles]\nfull => notice,warning,error,verbose(3)\n",
            "rtp.conf": "[general]\nrtpstart=30000\nrtpend=30100\n",
            "pjproject.conf": "",
            "pjsip.conf": pjsip + PHONE_SECTIONS,
            "extensions.conf": extensions,
        }
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        command = ["chroot", str(chroot), "asterisk", "-C", f"{own}/asterisk.conf"]
        pbx = subprocess.Popen([*command, "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def reaches_the_server() -> bool:
            shown = subprocess.run(
                [*command, "-rx", "pjsip show contacts"], capture_output=True, text=True, check=False
            )
            return any("trunkline" in line and "Avail" in line for line in shown.stdout.splitlines())

        try:
            until("Asterisk reaches the server", reaches_the_server, CALL_S)
            step("Asterisk, with the sections that were printed, reaches the server")
            yield
        finally:
            pbx.terminate()
            pbx.wait()


def first_use(root: Path) -> tuple[str, str]:
    """Create what calls need by the command line alone; returns Asterisk's pjsip.conf and extensions.conf."""
    run(root, "trunkline", "org", "create", "proof")
    run(root, "trunkline", "agent", "create", "Proof", "--prompt", "You answer calls.", "--greeting", GREETING)
    number = ("700", "--ip", "127.0.0.1", "--port", str(SIP_PORT), "--agent", "Proof")
    run(root, "trunkline", "number", "create", *number)
    step("an organization, an agent and a number, by the command line")
    return sections(root)


def sections(root: Path) -> tuple[str, str]:
    """Asterisk's pjsip.conf and extensions.conf, as printed for the number, with a port that is free."""
    pjsip, _, extensions = "".join(run(root, "trunkline", "number", "show", "700", "--pbx")).partition(
        "; extensions.conf"
    )
    assert "bind=0.0.0.0:5060" in pjsip and extensions, pjsip
    return pjsip.replace("bind=0.0.0.0:5060", f"bind=127.0.0.1:{SIP_PORT}"), extensions


def place_calls(root: Path) -> None:
    """The telephone calls the agent, and the agent the telephone; both hear the greeting out."""
    sipp = ["sipp", "-i", PHONE, "-p", str(PHONE_PORT), "-m", "1", "-timeout", f"{CALL_S:.0f}", "-nostdin"]
    before = {call["id"] for call in listed(root, "call", "list")}
    done = subprocess.run(
        [*sipp, "-sn", "uac", "-s", "700", f"127.0.0.1:{SIP_PORT}", "-d", "4000"],
        capture_output=True, text=True, check=False, timeout=2 * CALL_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"error: sipp ended with status {done.returncode}: {done.stdout[-2000:]}")
    step(f"the telephone calls the agent: {ended_call(root, before)}")
    before = {call["id"] for call in listed(root, "call", "list")}
    with subprocess.Popen([*sipp, "-sn", "uas"], stdout=subprocess.DEVNULL) as phone:
        run(root, "trunkline", "call", "dial", "100", "--agent", "Proof", "--no-watch")
        call = until("the agent's call is answered", lambda: new_call(root, before, "in_progress"), CALL_S)
        until("the greeting", lambda: GREETING in json.dumps(transcript(root, call)), CALL_S)
        run(root, "trunkline", "call", "hangup", call)
        phone.wait(CALL_S)
    step(f"the agent calls the telephone: {ended_call(root, before)}")


def new_call(root: Path, before: set[str], status: str) -> str | None:
    """The id of a call that is not among those of before, if it has that status."""
    ids = [call["id"] for call in listed(root, "call", "list") if call["id"] not in before and call["status"] == status]
    return str(ids[0]) if ids else None


def transcript(root: Path, call: str) -> Any:
    """What was said in a call."""
    return json.loads(run(root, "trunkline", "call", "show", call)[0])["transcript"]


def ended_call(root: Path, before: set[str]) -> str:
    """Wait until the new call has ended as completed; returns its facts."""
    call = until("the call ends as completed", lambda: new_call(root, before, "completed"), 30)
    shown = json.loads(run(root, "trunkline", "call", "show", call)[0])
    assert GREETING in json.dumps(shown["transcript"]), shown
    return f"{shown['status']}, {shown['endedReason']}, {shown['durationSeconds']} s, {shown['transcript'][0]}"


def check_upgraded(root: Path) -> None:
    """What the earlier version has stored must be there, and a copy from before the migration if there was one."""
    assert [agent["name"] for agent in listed(root, "agent", "list")] == ["Proof"]
    calls = [call["status"] for call in listed(root, "call", "list")]
    assert calls == ["completed", "completed"], calls
    copies = list((root / DATABASE).parent.glob("upgrade-backups/*"))
    step(f"the agent, the number and 2 calls are there; copies from before a migration: {len(copies)}")


def prove(root: Path, chroot: Path, *, upgraded: bool) -> None:
    """All steps."""
    with ExitStack() as stack:
        stack.enter_context(service(root))
        if upgraded:
            check_upgraded(root)
        configuration = sections(root) if upgraded else first_use(root)
        with asterisk(chroot, *configuration):
            place_calls(root)
        print(run(root, "trunkline", "check")[0], flush=True)
    data = root / "var/lib/trunkline"
    owners = {path.lstat().st_uid for path in (data, *data.rglob("*"))}
    assert len(owners) == 1 and 0 not in owners, owners
    step("all data belongs to the service's user")


if __name__ == "__main__":
    os.environ.pop("NOTIFY_SOCKET", None)
    prove(Path(sys.argv[1]), Path(sys.argv[2]), upgraded=sys.argv[3:] == ["upgraded"])
