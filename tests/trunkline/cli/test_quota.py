"""Quotas of `trunkline org`, and in `/metrics`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from config.settings import Settings
from storage.accounts import organizations
from tests.trunkline.server_in_process import LocalServer, open_local_server
from trunkline import organization_admin
from trunkline.cli import main


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs


@pytest.mark.usefixtures("data_dir")
def test_quotas_are_set_shown_and_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str, status: int = 0) -> str:
        assert main.main(arguments) == status
        told = capsys.readouterr()
        return told.out if status == 0 else told.err

    def quota(name: str) -> tuple[int, int]:
        found = {each["quota"]: each for each in map(json.loads, run("org", "quota", "Bay", "--json").splitlines())}
        return found[name]["used"], found[name]["allowed"]

    run("org", "create", "Bay")
    run("org", "set", "Bay", "--quota", "api_keys=1", "--quota", "document_bytes=2GiB")
    assert quota("document_bytes") == (0, 2 << 30)
    run("key", "create", "--org", "Bay")
    assert quota("api_keys") == (1, 1)
    assert "Quota exceeded: api_keys, 1 of 1 used" in run("key", "create", "--org", "Bay", status=1)
    prefix = json.loads(run("key", "list", "--json"))["prefix"]
    run("key", "revoke", prefix)
    assert quota("api_keys") == (0, 1)
    run("org", "set", "Bay", "--quota", "api_keys=default")
    assert quota("api_keys") == (0, 1000)
    assert quota("document_bytes") == (0, 2 << 30)
    assert "document_bytes" in run("org", "quota", "Bay")


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("wrong", ["agents", "agents=x", "agents=-1", "boats=5", "agents=1.5", "sound_bytes=5GB"])
def test_an_invalid_quota_is_rejected(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["org", "set", "Bay", "--quota", wrong])
    assert "takes " in capsys.readouterr().err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """A server with an organization that has an API key."""

    async def prepare(settings: Settings) -> None:
        await organization_admin.create_organization(settings, "Bay")
        await organization_admin.create_key(settings, "Bay")

    async with open_local_server(
        tmp_path_factory.mktemp("server"), prepare=prepare, quotas={"api_keys": 7}
    ) as local_server:
        yield local_server


@pytest.mark.asyncio(loop_scope="module")
async def test_usage_and_quotas_are_in_the_metrics(local_server: LocalServer) -> None:
    found = await local_server.server.database.read(organizations.all_of)
    [bay] = [each.id for each in found if each.name == "Bay"]
    which = f'{{organization="{bay}",quota="api_keys"}}'
    wanted = {f"trunkline_quota_used{which} 1.0", f"trunkline_quota_limit{which} 7.0"}
    async with asyncio.timeout(20):
        while not wanted <= {*(await local_server.client.get("/metrics"))[1].decode().splitlines()}:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)
