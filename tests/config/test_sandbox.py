"""What a worker process may do once it has entered the sandbox: read its input, compute and answer. Each attempt is
made by a process of its own, which `enter` is called in as the workers call it; one that the sandbox does not stop
would succeed, as the first test shows."""

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
CODE: Final = "import config.sandbox as s; from config.sandbox.code import code_of; s.enter(code_of('config'))\n"
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
"""Attempts that raise an error, by what they are for."""
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
"""What this machine lacks."""


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Runs an attempt after an entry; the process prints `done` behind it, or the error's name."""
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
def test_no_file_is_opened_no_process_made_and_no_code_written(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]], entry: str
) -> None:
    """All in one process: each of them fails, and it goes on."""
    attempts = "".join(
        f"\n    try: {code}\n    except OSError as error: pass\n    else: print({name!r}, end=';')"
        for name, code in REFUSED.items()
    )
    done = attempt(entry, "pass" + attempts)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("name", KILLED)
def test_what_no_parser_does_ends_the_process(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]], name: str
) -> None:
    done = attempt(CODE, KILLED[name])
    assert (done.returncode, done.stdout) == (-signal.SIGSYS, ""), done.stderr


@pytest.mark.skipif(HERE["files"] != "", reason=HERE["files"])
def test_own_code_can_still_be_loaded_and_no_other_file_read(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    assert attempt(CODE, "import sqlite3, encodings.cp850; os.listdir(os.path.dirname(os.__file__))").stdout == "done\n"
    assert attempt(CODE, "open('/etc/passwd')").stdout == "PermissionError\n"


def test_without_landlock_nothing_more_is_loaded(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    done = attempt(NO_LANDLOCK + CODE, "open(os.__file__)")
    assert done.stdout == "PermissionError\n", done.stderr


@pytest.mark.skipif(HERE["network"] != "", reason=HERE["network"])
def test_there_is_no_network_around_it(attempt: Callable[[str, str], subprocess.CompletedProcess[str]]) -> None:
    own = os.readlink("/proc/self/ns/net")
    inside = "from config.sandbox import namespaces; problem = namespaces.leave_network()\n"
    done = attempt(inside, f"print(problem, os.readlink('/proc/self/ns/net') == {own!r}, socket.if_nameindex())")
    assert done.stdout == " False [(1, 'lo')]\ndone\n", done.stderr


@pytest.mark.skipif(HERE["network"] != "", reason=HERE["network"])
def test_who_has_entered_has_a_network_of_its_own() -> None:
    program = f"import sys\n{NOTHING}print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        assert os.readlink(f"/proc/{process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_all_of_it_too(tmp_path: Path) -> None:
    """Of the standard library alone, it runs on any Python. `-S`: that user's packages are not ours."""
    program = (
        "import os, sys, runpy, resource; sys.path.insert(0, sys.argv[1]); import config.sandbox.__main__\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "import json; from dataclasses import asdict; print(json.dumps(asdict(config.sandbox.enter())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, ROOT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"system_calls": "", "files": HERE["files"], "network": HERE["network"]}


def test_what_is_not_there_is_told_and_the_rest_holds(
    attempt: Callable[[str, str], subprocess.CompletedProcess[str]],
) -> None:
    entry = NO_LANDLOCK + (
        "from config.sandbox import seccomp, namespaces\n"
        "seccomp._SONAME = 'libnowhere.so.2'\n"
        "namespaces.CLONE_NEWNET = namespaces.CLONE_NEWUSER = 1  # flags that unshare(2) does not know\n"
    )
    done = attempt(entry, "import config.sandbox as s; print(s.enter())")
    assert "system_calls='libnowhere.so.2 is not there (Debian package libseccomp2)'" in done.stdout
    assert "files='the kernel has no Landlock (Function not implemented)'" in done.stdout
    assert "network='the system allows no user namespace (Invalid argument)'" in done.stdout
