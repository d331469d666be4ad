"""Start-up errors: the process ends with status 1 and one line with the cause and a remedy, and no data is lost."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from blockbuster import BlockBuster
from structlog.testing import capture_logs

from config import secrets
from config.errors import StartupError
from config.settings import Settings
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from storage.accounts import organizations
from storage.database import secret_key
from storage.database.database import Database
from tests.fakes.fake_models import ready_models
from tests.peers.ports import free_port
from tests.trunkline.server_process import LOOPBACK, TRUNKLINE, command, environment, merged, until
from trunkline import organization_admin
from trunkline.server.startup import running_server

pytestmark = pytest.mark.asyncio(loop_scope="package")
OTHER_KEY = b"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"


@pytest_asyncio.fixture(loop_scope="package")
async def folder(tmp_path: Path) -> Path:
    """A folder with a data directory: a key file, and a database with an organization."""
    (tmp_path / "data").mkdir()
    key = await asyncio.to_thread(secrets.load_or_create, tmp_path / "data/secret.key")
    async with _database(tmp_path) as database:
        await database.write(lambda conn: organizations.create(conn, "Lighthouse"))
        await database.write(lambda conn: secret_key.verify(conn, key))
    return tmp_path


@asynccontextmanager
async def _database(folder: Path) -> AsyncIterator[Database]:
    database = Database(Settings(data_dir=folder / "data").database_url)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def organization_names(folder: Path) -> list[str]:
    """The names of the organizations in the database."""
    async with _database(folder) as database:
        return [organization.name for organization in await database.read(organizations.all_of)]


async def startup_error(folder: Path, *arguments: str, **settings: Any) -> str:
    """Run `trunkline serve`, which must fail; returns its error line."""
    env = environment(folder / "data", merged({"log_level": "warning"}, settings))
    status, out, err = await command("serve", *arguments, folder=folder, environment=env)
    assert (status, out) == (1, ""), err
    assert err.startswith("trunkline: "), err
    assert err.count("\n") == 1, err
    return err.removeprefix("trunkline: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[api]\nprot = 1\n", "unknown setting api.prot (trunkline.toml); [api] has: host, port"),
        ("[sip]\nport = 70000\n", "bad setting sip.port (trunkline.toml): it takes 0..65535"),
        ("[sip\n", "settings file trunkline.toml is not valid TOML"),
    ],
)
async def test_a_bad_setting_is_named(folder: Path, text: str, complaint: str) -> None:
    (folder / "trunkline.toml").write_text(text)
    assert (await startup_error(folder)).startswith(complaint)


async def test_a_bad_environment_variable_is_named_and_its_value_is_not_shown(folder: Path) -> None:
    complaint = await startup_error(folder, api={"port": "s3cret"})
    assert "environment variable TRUNKLINE_API__PORT" in complaint
    assert "s3cret" not in complaint


async def test_a_settings_file_that_cannot_be_read_is_named(folder: Path) -> None:
    assert "settings file missing.toml does not exist" in await startup_error(folder, "--config", "missing.toml")
    assert "settings file data cannot be read: Is a directory" in await startup_error(folder, "--config", "data")


async def test_a_model_that_does_not_exist_is_named_with_those_that_do(folder: Path) -> None:
    complaint = await startup_error(folder, models={"stt": "oracle"})
    assert complaint.startswith("[models] stt = 'oracle' is no model; there are: auto, pocketsphinx")
    assert await organization_names(folder) == ["Lighthouse"]


async def test_a_wrong_key_file_stops_the_start_until_the_old_one_is_back(
    folder: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    key_file = folder / "data/secret.key"
    own = key_file.read_bytes()
    key_file.write_bytes(OTHER_KEY)
    assert (await startup_error(folder)).startswith(
        "secret_key_file is not the one that the stored secrets were encrypted"
    )
    blocking_the_loop_fails.deactivate()
    key_file.write_bytes(b"no key\n")
    await startup_fails(folder, rf"secret_key_file {key_file} is damaged: it takes one key a line")
    key_file.write_bytes(own)
    async with running_server(settings_for(folder), ready_models):
        assert await organization_names(folder) == ["Lighthouse"]


async def test_a_missing_key_stops_the_start_and_no_new_one_is_created(
    folder: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    key_file = folder / "data/secret.key"
    own = key_file.read_bytes()
    key_file.unlink()
    complaint = rf"secret_key_file {key_file} is missing, and the database holds secrets .*put the file back.*restore"
    for _ in range(2):
        await startup_fails(folder, complaint)
        assert not key_file.exists()
    key_file.write_bytes(own)
    async with running_server(settings_for(folder), ready_models):
        assert await organization_names(folder) == ["Lighthouse"]


async def test_a_lost_database_stops_the_start_and_commands_and_none_is_created(
    folder: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    path = folder / "data/trunkline.db"
    path.unlink()
    complaint = rf"the database {path} is missing, and there are files of one: .*secret.key\. Put the database back"
    await startup_fails(folder, complaint)
    with pytest.raises(StartupError, match=complaint):
        await organization_admin.list_organizations(settings_for(folder))
    assert not path.exists()


async def test_files_of_a_server_are_private_at_any_umask(tmp_path: Path, blocking_the_loop_fails: BlockBuster) -> None:
    """At a first start, and at a start on data that other users can read."""
    blocking_the_loop_fails.deactivate()
    data_dir, before = tmp_path / "data", os.umask(0)
    try:
        for _ in range(2):
            async with running_server(settings_for(tmp_path), ready_models):
                modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (data_dir, *data_dir.rglob("*"))}
                assert (data_dir / "control.sock") in modes
                assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
            for path in (data_dir, *data_dir.rglob("*")):
                path.chmod(0o777 if path.is_dir() else 0o666)
    finally:
        os.umask(before)


async def test_files_of_commands_are_private(tmp_path: Path) -> None:
    code = "import os, sys; os.umask(0); os.execv(sys.argv[1], sys.argv[1:])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, TRUNKLINE, "org", "create", "harbour",
        cwd=tmp_path, env=environment(tmp_path / "data", {}), stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in await asyncio.to_thread(_all_in, tmp_path)}
    assert {name: mode for name, mode in modes.items() if mode not in ("0o600", "0o700")} == {}


async def test_a_start_on_a_public_host_without_public_url_logs_a_warning(
    folder: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    remedies: dict[str, list[str]] = {}
    for name, api in {
        "open": {"host": "0.0.0.0"}, "set": {"host": "0.0.0.0", "public_url": "https://v.example"}, "own": {},
    }.items():  # fmt: skip
        with capture_logs() as logs:
            async with running_server(settings_for(folder, api=api), ready_models):
                remedies[name] = [each["remedy"] for each in logs if each["event"] == "api.public_url_not_set"]
    assert [len(each) for each in remedies.values()] == [1, 0, 0]
    assert remedies["open"][0].startswith("set [api] public_url")


def _all_in(folder: Path) -> list[Path]:
    return [folder / "data", *(folder / "data").rglob("*")]


def settings_for(folder: Path, **changes: Any) -> Settings:
    """Settings on loopback, with free ports."""
    return Settings(data_dir=folder / "data").with_changes(
        merged(merged(LOOPBACK, {"sip": {"port": 0}, "api": {"port": 0}}), changes)
    )


async def startup_fails(folder: Path, complaint: str, **changes: Any) -> None:
    """Start a server in this process, which must fail with this error, and leave no threads and no lock behind."""
    before = set(threading.enumerate())
    with pytest.raises(StartupError, match=complaint) as caught:
        async with running_server(settings_for(folder, **changes), ready_models):
            pytest.fail("it has started")
    assert "\n" not in str(caught.value)
    await until(lambda: not (set(threading.enumerate()) - before - set(_own_workers())))


def _own_workers() -> list[threading.Thread]:
    """Worker threads, except asyncio's, which stay."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"webhooks": {"ca_file": "no/where.pem"}}, "webhooks.ca_file no/where.pem cannot be used"),
        ({"sip": {"tls_port": 5061}}, "sip.tls_port needs sip.tls_cert and sip.tls_key"),
        ({"sip": {"host": "203.0.113.9"}}, r"SIP port 0/udp on 203.0.113.9 cannot be opened .*\[sip\]"),
        ({"api": {"host": "203.0.113.9"}}, r"API port 0 on 203.0.113.9 cannot be opened .*\[api\] port or host"),
        ({"database": {"url": "postgres://x"}}, "bad setting database.url: it takes sqlite"),
    ],
)
async def test_a_start_that_fails_half_way_leaves_no_thread_and_no_lock(
    folder: Path, blocking_the_loop_fails: BlockBuster, changes: dict[str, Any], complaint: str
) -> None:
    blocking_the_loop_fails.deactivate()  # nobody is served yet
    await startup_fails(folder, complaint, **changes)
    assert await organization_names(folder) == ["Lighthouse"]


async def test_max_calls_above_the_limit_of_the_pjsip_build_stops_the_endpoint() -> None:
    endpoint = Endpoint(EndpointSettings("127.0.0.1", 0, max_calls=993), lambda _: None)
    with pytest.raises(StartupError, match=r"limits\.max_calls: at most 992"):
        await endpoint.start()


async def test_the_ports_of_a_failed_start_are_free_again(folder: Path, blocking_the_loop_fails: BlockBuster) -> None:
    blocking_the_loop_fails.deactivate()
    sip_port = free_port()
    await startup_fails(folder, "API port", sip={"port": sip_port}, api={"host": "203.0.113.9"})
    async with running_server(settings_for(folder, sip={"port": sip_port}), ready_models) as server:
        assert server.sip_port == sip_port


async def test_a_damaged_database_is_named_and_left_as_it_is(
    folder: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    path = folder / "data/trunkline.db"
    damaged = b"no database" + path.read_bytes()[11:]
    path.write_bytes(damaged)
    await startup_fails(folder, str(path))
    assert path.read_bytes() == damaged


async def test_an_unusable_data_directory_is_named(tmp_path: Path, blocking_the_loop_fails: BlockBuster) -> None:
    blocking_the_loop_fails.deactivate()
    (tmp_path / "data").write_text("a file")
    await startup_fails(tmp_path, f"data_dir {tmp_path / 'data'} cannot be used")
