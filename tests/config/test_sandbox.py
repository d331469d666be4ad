"""The sandbox of worker processes. Each attempt is made by a separate process that enters the sandbox as the workers
do; without the sandbox it would succeed, as the first test shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SECRET: Final = "gAAAA-a-key"
PRELUDE: Final = "import os, signal, socket, ctypes, mmap, sys, subprocess\nsecret = sys.argv[1]\n"
NO_LANDLOCK: Final = """
from config.sandbox import landlock
def none():
    raise OSError(38, "Function not implemented")
landlock.version = none
"""
WITHOUT: Final = ""
NOTHING: Final = "import config.sandbox as s; s.enter()\n"
CODE: Final = (
    "import config.sandbox as s; from config.sandbox.code_paths import loadable_paths\n"
    "s.enter(loadable_paths('config'))\n"
)
REFUSED: Final = {
    "read the key": "open(secret).read()",
    "open it without reading": "os.open(secret, os.O_RDONLY)",
    "write a file": "open(secret + '.new', 'w')",
    "add to a file": "os.open(secret, os.O_WRONLY | os.O_APPEND)",
    "make a file without a name": "os.open(os.path.dirname(secret), os.O_TMPFILE | os.O_RDWR)",
    "remove the key": "os.remove(secret)",
    "move the key": "os.rename(secret, secret + '.old')",
    "link the key": "os.link(secret, secret + '.link')",
    "make a folder": "os.mkdir(secret + '.d')",
    "change its mode": "os.chmod(secret, 0o666)",
    "list its folder": "os.listdir(os.path.dirname(secret))",
    "read another's memory": "open(f'/proc/{os.getppid()}/environ').read()",
    "fork": "os.fork()",
    "start a program": "subprocess.run(['/bin/true'])",
    "memory for code": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "a file in memory": "os.memfd_create('x')",
    "more time": "os.nice(-1)",
}
"""Attempts that raise an error, by their purpose."""
KILLED: Final = {
    "execute a program": "os.execv('/bin/true', ['true'])",
    "open a connection": "socket.socket()",
    "ask a name server": "socket.getaddrinfo('example.org', 80)",
    "open a Unix socket": "socket.socket(socket.AF_UNIX)",
    "kill the server": "os.kill(os.getppid(), 0)",
    "kill a group": "os.killpg(0, 0)",
    "look into the server": "libc.ptrace(16, os.getppid(), 0, 0)",
    "read the server's memory": "libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "leave the namespace": "libc.setns(0, 0)",
    "another user": "os.setuid(os.getuid())",
}
"""Attempts at which the kernel ends the process."""
HERE: Final = json.loads(
    subprocess.run([sys.executable, "-m", "config.sandbox"], cwd=ROOT, capture_output=True, check=True).stdout
)
"""The sandbox report of this machine."""


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Runs an attempt in a process that has entered the sandbox by `entry`; prints `done`, or the error's name."""
    secret = tmp_path / "secret.key"
    secret.write_text(SECRET)

    def run(entry: str, code: str) -> subprocess.CompletedProcess[str]:
        program = f"{PRELUDE}libc = ctypes.CDLL(None)\n{entry}try:\n    {code}\nexcept OSError as error:\n"
        program += "    print(type(error).__name__)\nelse:\n    print('done')\n"
        command = [sys.executable, "-c", program, str(secret)]
        # A group of its own: an attempt on the group is one on itself.
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, process_group=0)

    return run


def test_these_attempts_succeed_outside_of_the_sandbox(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    for code in (REFUSED["read the key"], REFUSED["write a file"], REFUSED["start a program"]):
        assert attempt(WITHOUT, code).stdout == "done\n", code
    for code in (KILLED["open a connection"], KILLED["kill the server"], KILLED["another user"]):
        assert (attempt(WITHOUT, code).stdout, attempt(WITHOUT, code).returncode) == ("done\n", 0), code


@pytest.mark.parametrize("entry", [NOTHING, NO_LANDLOCK + NOTHING, CODE], ids=["nothing", "no Landlock", "own code"])
def test_opening_files_starting_processes_and_writing_code_fail(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]], entry: str
) -> None:
    """All attempts fail in one process, which continues after each."""
    attempts = "".join(
        f"\n    try: {code}\n    except OSError as error: pass\n    else: print({name!r}, end=';')"
        for name, code in REFUSED.items()
    )
    done = attempt(entry, "pass" + attempts)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("name", KILLED)
def test_a_forbidden_system_call_kills_the_process(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]], name: str
) -> None:
    done = attempt(CODE, KILLED[name])
    assert (done.returncode, done.stdout) == (-signal.SIGSYS, ""), done.stderr


@pytest.mark.skipif(HERE["files"] != "", reason=HERE["files"])
def test_own_code_can_be_loaded_and_other_files_cannot_be_read(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    assert attempt(CODE, "import sqlite3, encodings.cp850; os.listdir(os.path.dirname(os.__file__))").stdout == "done\n"
    assert attempt(CODE, "open('/etc/passwd')").stdout == "PermissionError\n"


def test_without_landlock_no_file_can_be_opened(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    done = attempt(NO_LANDLOCK + CODE, "open(os.__file__)")
    assert done.stdout == "PermissionError\n", done.stderr


@pytest.mark.skipif(HERE["network"] != "", reason=HERE["network"])
def test_the_network_cannot_be_used(attempt: Callable[[str, str], subprocess.CompletedProcess[str]]) -> None:
    own = os.readlink("/proc/self/ns/net")
    inside = "from config.sandbox import namespaces; problem = namespaces.leave_network()\n"
    done = attempt(inside, f"print(problem, os.readlink('/proc/self/ns/net') == {own!r}, socket.if_nameindex())")
    assert done.stdout == " False [(1, 'lo')]\ndone\n", done.stderr


@pytest.mark.skipif(HERE["network"] != "", reason=HERE["network"])
def test_the_process_has_its_own_network_namespace() -> None:
    program = f"import sys\n{NOTHING}print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        assert os.readlink(f"/proc/{process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_sandbox_works_without_root(tmp_path: Path) -> None:
    """The sandbox needs the standard library only."""
    program = (
        "import os, sys, runpy, resource; sys.path.insert(0, sys.argv[1]); import config.sandbox.__main__\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "import json; from dataclasses import asdict; print(json.dumps(asdict(config.sandbox.enter())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, ROOT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"system_calls": "", "files": HERE["files"], "network": HERE["network"]}


def test_missing_kernel_features_are_reported_and_the_others_are_used(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    entry = NO_LANDLOCK + (
        "from config.sandbox import seccomp, namespaces\n"
        "seccomp._SONAME = 'libnowhere.so.2'\n"
        "namespaces.CLONE_NEWNET = namespaces.CLONE_NEWUSER = 1  # flags that unshare(2) does not know\n"
    )
    done = attempt(entry, "import config.sandbox as s; print(s.enter())")
    assert "system_calls='libnowhere.so.2 is not installed (Debian package libseccomp2)'" in done.stdout
    assert "files='the kernel has no Landlock (Function not implemented)'" in done.stdout
    assert "network='the system allows no user namespace (Invalid argument)'" in done.stdout
