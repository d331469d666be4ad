"""The files of an installation as a service: unit, sample of the settings, command, container files."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from config.settings import Settings

ROOT: Final = Path(__file__).parent.parent
SERVICE: Final = ROOT / "scripts/service"
NEEDS_ROOT: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")
USER: Final = "daemon"
"""A user of each Debian, in place of the service's."""


def filled_in(name: str, target: Path, folder: Path) -> Path:
    """Write a file of the service as an installation in a folder has it."""
    text = (SERVICE / name).read_text().replace("@LIB@", str(folder / "lib")).replace("@ETC@", str(folder / "etc"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text.replace("user=trunkline", f"user={USER}"))
    return target


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in place of the installed one: it prints its user and its arguments."""
    program = tmp_path / "lib/venv/bin/trunkline"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$(id -un) $*"\n')
    program.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):  # for the other user
        if folder.stat().st_mode & stat.S_ISVTX:  # the temporary folder of all users
            break
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return program


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_and_rates_it_as_protected(program: Path, tmp_path: Path) -> None:
    unit = filled_in("trunkline.service", tmp_path / "trunkline.service", tmp_path)
    text = unit.read_text().replace("User=trunkline", f"User={USER}").replace("Group=trunkline", f"Group={USER}")
    unit.write_text(text)
    for check in (("verify",), ("security", "--offline=true", "--threshold=20", "--no-pager")):
        done = subprocess.run(["systemd-analyze", *check, unit], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if unit.name in line and "overall" not in line.lower()]
        assert (done.returncode, complaints) == (0, []), done.stdout + done.stderr


def test_the_sample_of_the_settings_loads_with_and_without_its_comments(tmp_path: Path) -> None:
    sample = (SERVICE / "trunkline.toml").read_text()
    whole = re.sub(r"^#(?=\w+ = )", "", sample, flags=re.MULTILINE)
    assert sum(len(table) for table in tomllib.loads(whole).values() if isinstance(table, dict)) >= 15
    for text in (sample, whole):
        (tmp_path / "trunkline.toml").write_text(text)
        settings = Settings.load(tmp_path / "trunkline.toml", {})
        assert settings.data_dir == Path("/var/lib/trunkline")
    assert (settings.node.name, settings.recordings.bucket) == ("node1", "calls")


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("arguments", "user", "with_settings"),
    [
        (["org", "list"], USER, True),
        (["serve"], USER, True),
        (["backup", "/root/b.tar"], "root", True),
        (["restore", "/root/b.tar"], "root", True),
        (["--config", "mine.toml", "org", "list"], "root", False),
        (["org", "--help"], "root", False),
        (["completion", "bash"], "root", False),
    ],
)
def test_root_runs_commands_as_the_services_user(
    program: Path, tmp_path: Path, arguments: list[str], user: str, with_settings: bool
) -> None:
    command = filled_in("trunkline.sh", tmp_path / "trunkline", tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")}
    done = subprocess.run(["sh", command, *arguments], capture_output=True, text=True, check=True, env=environment)
    settings = f"--config {tmp_path}/etc/trunkline/trunkline.toml " if with_settings else ""
    assert done.stdout == f"{user} {settings}{' '.join(arguments)}\n"


@NEEDS_ROOT
def test_the_command_has_the_variables_of_the_unit(program: Path, tmp_path: Path) -> None:
    unit = filled_in("trunkline.service", tmp_path / "trunkline.service", tmp_path).read_text()
    assert f"EnvironmentFile=-{tmp_path}/etc/trunkline/trunkline.env\n" in unit
    variables = tmp_path / "etc/trunkline/trunkline.env"
    variables.parent.mkdir(parents=True)
    variables.write_text(
        "# the database\nTRUNKLINE_DATABASE__URL=postgresql+psycopg://a:$(id)%20b@c/d?x=y\n\n"
        'TRUNKLINE_NODE__NAME="n 1"\n'
        "TRUNKLINE_LOG_LEVEL=debug\nPGSSLMODE='require'\nPATH=/nowhere\nTRUNKLINE_A-B=1\nTRUNKLINE_API__PORT=81"
    )
    program.write_text("#!/bin/sh\nenv | grep -E '^(TRUNKLINE_|PG|PATH)' | sort\n")
    command = filled_in("trunkline.sh", tmp_path / "trunkline", tmp_path)
    given = {"PATH": os.environ["PATH"], "TRUNKLINE_LOG_LEVEL": "info"}
    done = subprocess.run(["sh", command, "org", "list"], capture_output=True, text=True, check=True, env=given)
    assert done.stdout.splitlines() == [
        f"PATH={os.environ['PATH']}",
        "PGSSLMODE=require",
        "TRUNKLINE_API__PORT=81",
        "TRUNKLINE_DATABASE__URL=postgresql+psycopg://a:$(id)%20b@c/d?x=y",
        "TRUNKLINE_LOG_LEVEL=info",
        "TRUNKLINE_NODE__NAME=n 1",
    ]


@NEEDS_ROOT
def test_another_user_is_told_what_to_do(program: Path, tmp_path: Path) -> None:
    command = filled_in("trunkline.sh", tmp_path / "trunkline", tmp_path)
    other = ["setpriv", "--reuid", "games", "--regid", "games", "--clear-groups"]
    done = subprocess.run([*other, "sh", command, "org", "list"], capture_output=True, text=True, check=False, env={})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"trunkline: the service's data belongs to the user {USER}: sudo trunkline org list\n"


def _installed_lock(folder: Path, *locked: str) -> subprocess.CompletedProcess[str]:
    lock = folder / "lock"
    lock.write_text("".join(f"{each} \\\n    --hash=sha256:00\n" for each in locked))
    command = [sys.executable, str(ROOT / "scripts/copy_packages.py"), str(folder / "site"), str(lock)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_packages_of_a_lock_are_copied_and_others_are_named(tmp_path: Path) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (structlog,) = re.findall(r"^structlog==\S+", lock, re.MULTILINE)
    assert _installed_lock(tmp_path, structlog).stdout == "1\n"
    copied = tmp_path / "site/structlog/__init__.py"
    assert copied.exists()
    assert list((tmp_path / "site").glob("structlog-*.dist-info/METADATA"))
    done = _installed_lock(tmp_path, "structlog==0.0.1")
    assert done.returncode == 1
    assert "is installed, not 0.0.1\n  what to do: make setup" in done.stderr
    assert "lighthouses is not installed" in _installed_lock(tmp_path, "lighthouses==1").stderr


def _compose() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["trunkline"]
    return service


def test_the_container_files_name_existing_files_settings_and_the_volume() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile.replace("\\\n", ""), re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    for script in re.findall(r"scripts/[\w-]+\.sh", dockerfile):
        assert os.access(ROOT / script, os.X_OK), script
    service = _compose()
    assert service["volumes"] == ["data:/data"]
    assert "TRUNKLINE_DATA_DIR=/data" in dockerfile
    Settings.load(None, service["environment"])
    drain_s = Settings().sip.drain_timeout_s
    assert int(service["stop_grace_period"].removesuffix("s")) > drain_s


def test_the_variables_of_compose_get_into_neither_image_nor_installation_nor_repository() -> None:
    """docs/how-to/cluster/.env has the database's password."""
    assert "**/.env" in (ROOT / ".dockerignore").read_text().splitlines()
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert re.search(r"tar -C docs -cf - --exclude=\.env ", (ROOT / "scripts/install.sh").read_text())


def test_the_first_layers_of_the_image_have_the_scripts_that_they_run() -> None:
    """They are copied one by one, so that another script's change does not build PJSIP anew."""
    build = (ROOT / "Dockerfile").read_text().partition("COPY . .")[0].replace("\\\n", "")
    copied = set(re.findall(r"scripts/([\w.-]+\.\w+)", " ".join(re.findall(r"^COPY (.*)$", build, re.MULTILINE))))
    for name in [each for each in copied if each.endswith(".sh")]:
        text = (ROOT / "scripts" / name).read_text()
        code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        sourced = re.findall(r"(?:\./|scripts/|\s)([\w-]+\.(?:sh|env|h))\b", code)
        needed = {each for each in sourced if (ROOT / "scripts" / each).exists()} - {"sanitizers.sh"}
        assert needed <= copied, name
    lists = re.findall(r"^RUN scripts/apt-packages\.sh ((?:\w+ )+)", build, re.MULTILINE)
    assert lists
    assert {f"packages-{each}.txt" for each in " ".join(lists).split()} <= copied


@pytest.mark.parametrize("mounted", [False, True])
def test_a_purge_removes_the_data_unless_folders_are_mounted_in_it(tmp_path: Path, mounted: bool) -> None:
    """What is mounted there is shared with the other nodes."""
    data, settings, mounts = (tmp_path / name for name in ("data", "settings", "mounts"))
    (data / "knowledge").mkdir(parents=True)
    settings.mkdir()
    mounts.write_text(f"nfs:/knowledge {data}/knowledge nfs4 rw 0 0\n" if mounted else f"disk {tmp_path} ext4 rw 0 0\n")
    stubs = tmp_path / "bin"
    stubs.mkdir()
    for name in ("getent", "systemctl", "deb-systemd-helper", "userdel", "groupdel"):
        (stubs / name).write_text("#!/bin/sh\nexit 1\n")
        (stubs / name).chmod(0o755)
    script = (ROOT / "scripts/debian/postrm").read_text().replace("/proc/self/mounts", str(mounts))
    script = script.replace("/var/lib/trunkline", str(data)).replace("/etc/trunkline", str(settings))
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script, "postrm", "purge"], capture_output=True, text=True, check=True, env=environment
    )
    assert (data.exists(), settings.exists()) == (mounted, False)
    assert ("its data stays" in done.stdout) == mounted


def test_another_python_than_debians_is_refused_before_the_package_is_built(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ndeb:")[2].splitlines()
    assert recipe[1] == "\t@scripts/deb.sh check"
    if "\nID=debian\n" not in f"\n{Path('/etc/os-release').read_text()}\n":
        pytest.skip("packages are made on Debian")
    python = tmp_path / "python3"
    for home, status in (("/usr", 0), ("/opt/python", 1)):
        python.write_text(f"#!/bin/sh\necho {home}\n")
        python.chmod(0o755)
        environment = os.environ | {"PYTHON": str(python)}
        done = subprocess.run(
            [ROOT / "scripts/deb.sh", "check"], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == status, done.stderr
