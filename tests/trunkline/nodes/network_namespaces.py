"""A private network of Linux network namespaces: hosts on a bridge, each with an address of its own, between which
packets can be dropped.

The namespaces have no names: they exist as long as this process, or one that runs in them, does. So each process that
runs tests has the same addresses without a conflict. When a `Network` is closed, or its process has died, a guard kills
every process that is left in its namespaces, so that nothing of it remains.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_THREAD_NAMESPACE: Final = "/proc/thread-self/ns/net"
_NOBODY: Final = "02:00:00:00:00:ff"
"""A link-layer address that no interface has."""
_ROOT: Final = Path(__file__).parents[3]
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(path: str) -> None:
    """Move the calling thread to the namespace at this path for good."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _checked(_libc.setns(descriptor, _CLONE_NEWNET))
    finally:
        os.close(descriptor)


class Namespace:
    """A network namespace with a loopback interface that is up. `close` gives it up."""

    def __init__(self) -> None:
        before = os.open(_THREAD_NAMESPACE, os.O_RDONLY)
        try:
            _checked(_libc.unshare(_CLONE_NEWNET))
            self._descriptor = os.open(_THREAD_NAMESPACE, os.O_RDONLY)
            _checked(_libc.setns(before, _CLONE_NEWNET))
        finally:
            os.close(before)
        self.ip("link set lo up")

    @property
    def path(self) -> str:
        """A path of the namespace that other processes can open while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @property
    def inode(self) -> int:
        """What `/proc/PID/ns/net` of its processes has as inode."""
        return os.fstat(self._descriptor).st_ino

    def command(self, *command: str) -> list[str]:
        """The command, run in the namespace; its process has the same id as without."""
        return ["nsenter", f"--net={self.path}", *command]

    def ip(self, *commands: str) -> None:
        """Run commands of ip(8). Raises `RuntimeError` if one fails."""
        batch = self.command("ip", "-batch", "-")
        done = subprocess.run(batch, input="\n".join(commands), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ip: {done.stderr}\n{commands}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and the threads and processes that it starts, are in the namespace. Sockets stay in the
        namespace in which they were created."""
        before = os.open(_THREAD_NAMESPACE, os.O_RDONLY)
        try:
            _checked(_libc.setns(self._descriptor, _CLONE_NEWNET))
            yield
        finally:
            _checked(_libc.setns(before, _CLONE_NEWNET))
            os.close(before)

    def close(self) -> None:
        """Give the namespace up. It ends with the last process in it."""
        os.close(self._descriptor)


class Network:
    """Hosts with an interface `eth0` each on one bridge. `addresses`: those of each host, in one /24."""

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        self.addresses: Final = addresses
        self._cuts = Counter[tuple[str, str]]()
        self._switch = Namespace()
        self.hosts: Final = {name: Namespace() for name in addresses}
        self._switch.ip("link add bridge type bridge", "link set bridge up")
        for number, (name, host) in enumerate(self.hosts.items()):
            self._switch.ip(
                f"link add port{number} type veth peer name eth0 netns {host.path}",
                f"link set port{number} master bridge up",
            )
            host.ip(*(f"address add {each}/24 dev eth0" for each in addresses[name]), "link set eth0 up")
        inodes = [str(each.inode) for each in self.hosts.values()]
        self._guard = subprocess.Popen(
            [sys.executable, "-m", __name__, *inodes],
            cwd=_ROOT, stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def cut(self, name: str, *others: str) -> None:
        """Drop all packets between a host and others without a word to either side, as a broken switch does. Two hosts
        that are cut off twice, once by each, need `heal` twice."""
        for pair in self._pairs(name, others):
            self._cuts[pair] += 1
            if self._cuts[pair] == 1:
                host, peer = pair
                self.hosts[host].ip(
                    *(
                        f"neighbour replace {each} lladdr {_NOBODY} nud permanent dev eth0"
                        for each in self.addresses[peer]
                    )
                )

    def heal(self, name: str, *others: str) -> None:
        """Undo `cut`."""
        for pair in self._pairs(name, others):
            self._cuts[pair] -= 1
            if self._cuts[pair] == 0:
                host, peer = pair
                self.hosts[host].ip(*(f"neighbour delete {each} dev eth0" for each in self.addresses[peer]))

    @staticmethod
    def _pairs(name: str, others: Sequence[str]) -> list[tuple[str, str]]:
        return [pair for other in others for pair in ((name, other), (other, name))]

    def close(self) -> None:
        """End all processes in the namespaces, and give these up. The caller's threads have left them."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        for each in (*self.hosts.values(), self._switch):
            each.close()


def reason_to_skip() -> str:
    """Why this process cannot make namespaces; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        Namespace().close()
    except (OSError, RuntimeError) as error:
        return f"no network namespaces: {error}"
    return ""


def kill_processes(inodes: Collection[int]) -> None:
    """Kill the processes in these namespaces, until there are none."""
    while found := [each for each in Path("/proc").glob("[0-9]*") if _inode_of(each) in inodes]:
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(int(each.name), signal.SIGKILL)
        time.sleep(0.02)


def _inode_of(process: Path) -> int | None:
    """The network namespace of a process; None if it has ended."""
    try:
        return (process / "ns/net").stat().st_ino
    except OSError:
        return None


if __name__ == "__main__":
    sys.stdin.read()  # to its end, which is that of the process that made the network
    kill_processes({int(each) for each in sys.argv[1:]})
