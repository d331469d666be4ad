"""The files of docs/how-to/cluster: three nodes with PostgreSQL and Kamailio, by Compose or by systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy.engine import make_url

from api.nodes.signature import MIN_SECRET
from config.settings import Settings
from storage.database.postgresql.engine import READERS, WRITERS
from tests.peers import postgresql

ROOT: Final = Path(__file__).parent.parent
FILES: Final = ROOT / "docs/how-to/cluster"
VARIABLES: Final = {"ADDRESS": "127.0.0.1", "PBX": "127.0.0.40", "POSTGRES_PASSWORD": "0a1b"}
NODES: Final = ("node1", "node2", "node3")
CONNECTIONS_OF_A_NODE: Final = WRITERS + 1 + READERS + 1
"""Writers, the reader of calls, the other readers, the listener."""


def _compose() -> dict[str, Any]:
    """The file as Compose reads it."""
    text = re.sub(r"\$\{(\w+):\?\}", lambda found: VARIABLES[found[1]], (FILES / "compose.yaml").read_text())
    assert "${" not in text
    project: dict[str, Any] = yaml.safe_load(text)
    return project


def _settings(project: dict[str, Any], name: str) -> Settings:
    return Settings.load(None, project["services"][name]["environment"] | {"TRUNKLINE_DATA_DIR": "/data"})


def test_the_nodes_of_the_compose_file_differ_where_they_must() -> None:
    project = _compose()
    found = [_settings(project, name) for name in NODES]
    assert tuple(each.node.name for each in found) == NODES
    ranges = sorted(each.sip.rtp_port_range for each in found)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    ports = [port for each in found for port in (each.api.port, each.sip.port)]
    assert len({*ports, 5060, 5070, 5432}) == len(ports) + 3, "all on the host's network"
    for each in found:
        assert each.node.url == f"http://127.0.0.1:{each.api.port}"
        assert [str(probe) for probe in each.sip.probes] == [VARIABLES["ADDRESS"]] == [each.sip.host]
        assert f"{VARIABLES['PBX']}/32" in map(str, each.sip.media_networks), "calls come from Kamailio's address"
    assert len({(each.database_url, each.recordings.url, each.node.secret_file) for each in found}) == 1


def test_the_nodes_share_what_they_must_and_nothing_else() -> None:
    project = _compose()
    mounted = [dict(each.split(":") for each in project["services"][name]["volumes"]) for name in NODES]
    shared = {
        "shared": "/shared",
        "knowledge": "/data/knowledge",
        "sounds": "/data/sounds",
        "recordings": "/recordings",
    }
    for number, each in enumerate(mounted, 1):
        assert each == {f"data{number}": "/data", **shared}
    database = project["services"]["postgresql"]["volumes"][0].partition(":")[0]
    assert {*project["volumes"]} == {database, *shared, "data1", "data2", "data3"}
    dockerfile = (ROOT / "Dockerfile").read_text()
    for folder in ("/data", *shared.values()):
        assert re.search(rf"install -d -o trunkline.* {folder}( |$)", dockerfile, re.MULTILINE), "volumes get its owner"
    settings = _settings(project, NODES[0])
    assert (str(settings.recordings.folder), str(settings.secret_key_path)) == ("/recordings", "/shared/secret.key")


def test_a_node_has_time_to_drain_and_starts_after_what_it_needs() -> None:
    project = _compose()
    image = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["trunkline"]
    for name in NODES:
        service = project["services"][name]
        assert int(service["stop_grace_period"].removesuffix("s")) > _settings(project, name).sip.drain_timeout_s
        assert (FILES / service["build"]).resolve() == ROOT
        assert {
            each: service[each] for each in ("read_only", "cap_drop", "security_opt", "ulimits", "network_mode")
        } == {each: image[each] for each in ("read_only", "cap_drop", "security_opt", "ulimits", "network_mode")}
        assert service["depends_on"]["postgresql"]["condition"] == "service_healthy"
    compile(project["services"][NODES[0]]["healthcheck"]["test"][-1], "healthcheck", "exec")


def test_the_database_of_the_compose_file_is_the_one_of_the_nodes_and_has_enough_connections() -> None:
    service = _compose()["services"]["postgresql"]
    url = make_url(_settings(_compose(), NODES[0]).database_url)
    environment = service["environment"]
    names = ("POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB")
    assert [url.username, url.password, url.database] == [environment[each] for each in names]
    program, *arguments = service["command"].split()
    assert program == "postgres"
    connections = int(postgresql.server().setting("max_connections", arguments))
    assert connections >= len(NODES) * CONNECTIONS_OF_A_NODE + 20


def test_the_sample_for_postgresql_is_valid_and_counts_the_connections_of_a_node() -> None:
    text = (FILES / "postgresql.conf").read_text()
    assert f"Each node has {CONNECTIONS_OF_A_NODE} connections" in text
    given = [f"-c{name}={value}" for name, value in re.findall(r"^(\w+) = '?([^'\n]+)'?$", text, re.MULTILINE)]
    assert len(given) == 5
    assert postgresql.server().setting("autovacuum_naptime", given) == "15"


def test_the_secret_of_the_nodes_is_made_once_and_is_long_enough(tmp_path: Path) -> None:
    service = _compose()["services"]["secret"]
    script = service["command"][0].replace("/shared/", f"{tmp_path}/")
    secrets = []
    for _ in range(2):
        subprocess.run([*service["entrypoint"], script], check=True)
        secrets.append((tmp_path / "node.secret").read_text())
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) >= MIN_SECRET
    assert "\n" not in secrets[0]
    assert (tmp_path / "node.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("kamailio") is None, reason="kamailio is not installed")
def test_kamailio_accepts_its_files_and_knows_the_nodes(tmp_path: Path) -> None:
    project = _compose()
    service = project["services"]["kamailio"]
    source, target, _ = service["volumes"][0].split(":")
    shutil.copy(FILES / source, tmp_path / Path(target).name)
    folders = {"/config": tmp_path, "/tmp": tmp_path / "made", "/run/kamailio": tmp_path}
    folders["/tmp"].mkdir()
    script = re.sub("|".join(folders), lambda found: str(folders[found[0]]), service["command"][2])
    script = script.replace("exec kamailio -DD", "exec kamailio -c")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "made/kamailio.cfg").read_text()
    assert not re.search(r"192\.0\.2|198\.51\.100|/etc/kamailio", made)
    targets = re.findall(r"^1 sip:(\S+) 8$", (tmp_path / "made/dispatcher.list").read_text(), re.MULTILINE)
    found = [_settings(project, name).sip for name in NODES]
    assert targets == [f"{each.host}:{each.port}" for each in found]


def test_the_settings_of_a_node_load_with_its_variables() -> None:
    variables = dict(re.findall(r"^(\w+)=(.*)$", (FILES / "node.env").read_text(), re.MULTILINE))
    settings = Settings.load(FILES / "node.toml", variables)
    assert make_url(settings.database_url).host == "198.51.100.30"
    assert (settings.node.name, settings.node.url) == ("node1", f"http://{settings.sip.host}:{settings.api.port}")
    kamailio = (ROOT / "docs/how-to/pbx/kamailio-cluster/kamailio.cfg").read_text()
    assert f"NODE_SIDE!{settings.sip.probes[0]}:5060" in kamailio
    assert f"ReadWritePaths=-{settings.recordings.folder}\n" in (FILES / "node.conf").read_text()


def test_a_node_waits_for_its_mounts_and_tries_them_again() -> None:
    settings = Settings.load(FILES / "node.toml", {})
    folders = (settings.recordings.folder, settings.data_dir / "knowledge", settings.data_dir / "sounds")
    mounts = " ".join(f"{str(each).strip('/').replace('/', '-')}.mount" for each in folders)
    lines = (FILES / "node.conf").read_text().splitlines()
    assert f"After={mounts}" in lines
    assert f"ExecStartPre=+/usr/bin/systemctl start {mounts}" in lines
    assert not any(line.startswith(("Requires", "BindsTo")) for line in lines), "no second try after a failed mount"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_drop_in_of_a_node(tmp_path: Path) -> None:
    unit = (ROOT / "scripts/service/trunkline.service").read_text()
    unit = unit.replace("@LIB@/venv/bin/trunkline", "/bin/true").replace("@LIB@", "/").replace("@ETC@", "/etc")
    for user in ("User", "Group"):
        unit = unit.replace(f"{user}=trunkline", f"{user}=daemon")
    (tmp_path / "trunkline.service").write_text(unit)
    folder = tmp_path / "trunkline.service.d"
    folder.mkdir()
    shutil.copy(FILES / "node.conf", folder)
    assert _complaints(tmp_path / "trunkline.service") == []
    (folder / "node.conf").write_text("[Service]\nRestartSec=soon\n")
    assert len(_complaints(tmp_path / "trunkline.service")) == 1, "the drop-in is read"


def _complaints(unit: Path) -> list[str]:
    environment = os.environ | {"SYSTEMD_UNIT_PATH": f"{unit.parent}:"}
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, env=environment
    )
    return [line for line in done.stderr.splitlines() if "node.conf" in line or unit.name in line]


def test_the_files_are_named_in_the_page() -> None:
    page = (ROOT / "docs/how-to/cluster.md").read_text()
    assert all(f"(cluster/{path.name})" in page for path in FILES.iterdir())
