"""seccomp: limits the system calls of a worker. libseccomp (https://github.com/seccomp/libseccomp) knows their numbers
on each architecture."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Final

from config.sandbox.libc import forbid_new_privileges

_SONAME: Final = "libseccomp.so.2"
_KILL: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_BAD_ARCHITECTURE, _EVERY_THREAD = 2, 4  # Attributes of a filter.
_UNKNOWN: Final = -1
_EQUAL, _MASKED_EQUAL = 4, 7

COMPUTE_CALLS: Final = (
    "read", "readv", "pread64", "write", "writev", "close", "lseek", "_llseek", "fstat", "fstat64",
    "brk", "munmap", "mremap", "madvise", "futex", "futex_time64", "membarrier", "rseq", "set_robust_list",
    "sched_yield", "sched_getaffinity", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
    "restart_syscall", "clock_gettime", "clock_gettime64", "clock_getres", "clock_nanosleep", "nanosleep",
    "gettimeofday", "time", "times", "getrusage", "sysinfo", "getrandom", "getpid", "gettid", "getuid", "geteuid",
    "getgid", "getegid", "poll", "ppoll", "exit", "exit_group",
)  # fmt: skip
"""System calls of every parser."""
OPEN_CALLS: Final = (
    "stat", "lstat", "newfstatat", "fstatat64", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat",
    "getdents64", "getcwd", "fcntl", "fcntl64",
)  # fmt: skip
"""System calls around opening files for reading."""
FORK_CALLS: Final = ("fork", "wait4", "waitid", "alarm", "setitimer")
FORBIDDEN_CALLS: Final = (
    "execve", "execveat", "socket", "connect", "bind", "sendto", "sendmsg", "ptrace", "process_vm_readv",
    "process_vm_writev", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kill", "tkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "mount", "umount2", "pivot_root",
    "chroot", "open_tree", "move_mount", "fsopen", "setns", "unshare", "add_key", "request_key", "keyctl",
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "personality",
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset",
)  # fmt: skip
"""System calls that no parser makes: a process that makes one has been hijacked."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
_AT_EMPTY_PATH: Final = 0x1000
_NEW_NAMESPACES: Final = 0x7E020080
"""The flags of clone(2) that make namespaces."""


class _Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class _Filter:
    """A filter under construction. Its methods raise `OSError`."""

    def __init__(self, library: ctypes.CDLL, otherwise: int) -> None:
        self._library = library
        library.seccomp_init.restype = ctypes.c_void_p
        library.seccomp_init.argtypes = (ctypes.c_uint32,)
        library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
        library.seccomp_rule_add_array.argtypes = (
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
        )  # fmt: skip
        library.seccomp_load.argtypes = library.seccomp_release.argtypes = (ctypes.c_void_p,)
        self._context = library.seccomp_init(otherwise)
        if not self._context:
            raise OSError(errno.ENOMEM, "seccomp_init")
        self._checked(library.seccomp_attr_set(self._context, _BAD_ARCHITECTURE, _KILL))
        self._checked(library.seccomp_attr_set(self._context, _EVERY_THREAD, 1))

    def add(self, action: int, name: str, *comparisons: _Comparison) -> None:
        """Add a rule: the action for calls of that name whose arguments match. Does nothing for a name that this
        architecture lacks."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number == _UNKNOWN:
            return
        array = (_Comparison * len(comparisons))(*comparisons)
        self._checked(
            self._library.seccomp_rule_add_array(self._context, action, number, len(comparisons), ctypes.byref(array))
        )

    def load(self) -> None:
        """Enforce the filter from now on."""
        self._checked(self._library.seccomp_load(self._context))

    def release(self) -> None:
        self._library.seccomp_release(self._context)

    @staticmethod
    def _checked(status: int) -> None:
        if status < 0:
            raise OSError(-status, os.strerror(-status))


def load_library() -> ctypes.CDLL | None:
    """Returns libseccomp, None when it is not installed."""
    try:
        return ctypes.CDLL(_SONAME)
    except OSError:
        return None


def restrict(library: ctypes.CDLL | None, *, may_open: bool, may_fork: bool) -> str:
    """Restrict this process to computing, and to reading and writing open files; with `may_open` also to opening files
    for reading, with `may_fork` to forking. Returns "", or why it is not enforced."""
    if library is None:
        return f"{_SONAME} is not installed (Debian package libseccomp2)"
    try:
        forbid_new_privileges()
        seccomp_filter = _Filter(library, _ERRNO | errno.EPERM)
        try:
            _fill(seccomp_filter, may_open=may_open, may_fork=may_fork)
            seccomp_filter.load()
        finally:
            seccomp_filter.release()
    except OSError as error:
        return f"the kernel refuses the filter ({error.strerror})"
    return ""


def _fill(seccomp_filter: _Filter, *, may_open: bool, may_fork: bool) -> None:
    for name in (*COMPUTE_CALLS, *(OPEN_CALLS if may_open else ()), *(FORK_CALLS if may_fork else ())):
        seccomp_filter.add(_ALLOW, name)
    for name in FORBIDDEN_CALLS:
        seccomp_filter.add(_KILL, name)
    # abort(3) signals its own thread.
    seccomp_filter.add(_ALLOW, "tgkill", _Comparison(0, _EQUAL, os.getpid(), 0))
    seccomp_filter.add(_ALLOW, "newfstatat", _Comparison(3, _MASKED_EQUAL, _AT_EMPTY_PATH, _AT_EMPTY_PATH))  # fstat(3)
    for name in ("mmap", "mmap2"):
        seccomp_filter.add(_ALLOW, name, _without(2, mmap.PROT_EXEC))
        if may_open:  # The code of libraries is mapped, and never written.
            seccomp_filter.add(
                _ALLOW, name, _Comparison(2, _MASKED_EQUAL, mmap.PROT_EXEC | mmap.PROT_WRITE, mmap.PROT_EXEC)
            )
    seccomp_filter.add(_ALLOW, "mprotect", _without(2, mmap.PROT_EXEC))
    if may_open:
        seccomp_filter.add(_ALLOW, "open", _without(1, _WRITES))
        seccomp_filter.add(_ALLOW, "openat", _without(2, _WRITES))
    if may_fork:
        seccomp_filter.add(_ALLOW, "clone", _without(0, _NEW_NAMESPACES))
        # Its flags are in memory, where no filter sees them: libc then uses clone.
        seccomp_filter.add(_ERRNO | errno.ENOSYS, "clone3")


def _without(argument: int, bits: int) -> _Comparison:
    """Matches when the argument has none of these bits."""
    return _Comparison(argument, _MASKED_EQUAL, bits, 0)
