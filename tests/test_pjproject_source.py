"""The setup builds only the pinned pjproject source, and names the archive of older versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
CONTENT: Final = b"the source that was tested"
SHA256: Final = hashlib.sha256(CONTENT).hexdigest()
NEWER: Final = "f" * 64
POOL: Final = "pool/main/a/asterisk/asterisk_1%2b2%7e3.orig-Xpjproject.tar.xz"
Script = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(not Path("/usr/lib/apt/apt-helper").exists(), reason="there is no apt")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a script of the setup with a pin of the test, and with a mirror whose index has only a newer version."""
    scripts = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", scripts)
    (scripts / "pjproject.env").write_text(
        f"pjproject_version=2.17\npjproject_sha256={SHA256}\npjproject_package='asterisk 1+2~3'\n"
        "pjproject_tarball=asterisk_1+2~3.orig-Xpjproject.tar.xz\n"
        'pjproject_archive="Debian\'s snapshot archive"\n'
    )
    index = tmp_path / "bin/apt-get"
    index.parent.mkdir()
    index.write_text(
        "#!/bin/sh\ncase $* in *print-uris*)"
        f" echo \"'http://mirror/newer-Xpjproject.tar.xz' newer.tar.xz 7 SHA256:{NEWER}\" ;; esac\n"
    )
    index.chmod(0o755)

    def run(name: str, *arguments: str | Path, **environment: str | Path) -> subprocess.CompletedProcess[str]:
        base = {"PATH": f"{index.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        overrides = {key: str(value) for key, value in environment.items()}
        command = [str(scripts / name), *map(str, arguments)]
        return subprocess.run(command, env=base | overrides, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def mirrored(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes the pinned file with a content into the mirror. Returns its path."""

    def write(content: bytes) -> Path:
        path = tmp_path / "mirror" / POOL.replace("%2b", "+").replace("%7e", "~")
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path

    return write


def test_the_pin_has_the_hash_of_the_tested_source() -> None:
    pin = (ROOT / "scripts/pjproject.env").read_text()
    assert "pjproject_sha256=6860c2f7604b4eee75f38151a9ef69774eb3f0c5286fc1d14bc1db2dc5a9e8aa\n" in pin


def test_a_source_with_the_pinned_hash_is_downloaded_from_the_operators_uri(
    script: Script, mirrored: Callable[[bytes], Path], tmp_path: Path
) -> None:
    done = script("pjproject-source.sh", tmp_path / "cache", PJPROJECT_URI=f"file:{mirrored(CONTENT)}")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1])
    assert (path.name, path.read_bytes()) == (f"pjproject-{SHA256}.tar.xz", CONTENT)
    again = script("pjproject-source.sh", tmp_path / "cache", PJPROJECT_URI="file:/nowhere")
    assert (again.returncode, again.stdout) == (0, f"{path}\n"), "the file is in the cache"


def test_a_source_with_another_hash_is_rejected(
    script: Script, mirrored: Callable[[bytes], Path], tmp_path: Path
) -> None:
    done = script("fetch-pjproject.sh", tmp_path / "cache/x", PJPROJECT_URI=f"file:{mirrored(CONTENT + b'!')}")
    assert done.returncode == 1
    assert "is not there, or is not the pinned pjproject 2.17" in done.stderr
    assert "Debian's snapshot archive" in done.stderr and SHA256 in done.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_a_mirror_with_a_newer_index_may_still_have_the_file(
    script: Script, mirrored: Callable[[bytes], Path], tmp_path: Path
) -> None:
    mirrored(CONTENT)
    done = script("fetch-pjproject.sh", tmp_path / "cache/x", DEBIAN_MIRROR=f"file:{tmp_path / 'mirror'}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache/x").read_bytes() == CONTENT


def test_the_error_for_a_mirror_without_the_file_names_the_archive(script: Script, tmp_path: Path) -> None:
    done = script("fetch-pjproject.sh", tmp_path / "cache/x", DEBIAN_MIRROR=f"file:{tmp_path / 'mirror'}")
    assert done.returncode == 1
    assert "has moved on: it has http://mirror/newer-Xpjproject.tar.xz, not the pinned" in done.stderr
    assert "PJPROJECT=/path/to/it" in done.stderr and "Debian's snapshot archive" in done.stderr
    assert not (tmp_path / "cache/x").exists()


def test_a_damaged_copy_in_the_cache_is_downloaded_again(
    script: Script, mirrored: Callable[[bytes], Path], tmp_path: Path
) -> None:
    cached = tmp_path / f"cache/pjproject-{SHA256}.tar.xz"
    cached.parent.mkdir()
    cached.write_bytes(b"half")
    done = script("pjproject-source.sh", cached.parent, PJPROJECT_URI=f"file:{mirrored(CONTENT)}")
    assert done.returncode == 0 and "is damaged" in done.stderr
    assert cached.read_bytes() == CONTENT


def test_the_operators_source_is_built_with_a_warning(script: Script, tmp_path: Path) -> None:
    own = tmp_path / "own.tar.gz"
    own.write_bytes(CONTENT)
    assert script("pjproject-source.sh", tmp_path / "cache", PJPROJECT=own).stderr == ""
    own.write_bytes(b"another")
    done = script("pjproject-source.sh", tmp_path / "cache", PJPROJECT=own)
    assert (done.returncode, done.stdout) == (0, f"{own}\n")
    assert "warning" in done.stderr and SHA256 in done.stderr
    assert "warning" in script("pjproject-source.sh", tmp_path / "cache", PJPROJECT=tmp_path).stderr
    missing = script("pjproject-source.sh", tmp_path / "cache", PJPROJECT=tmp_path / "no")
    assert (missing.returncode, missing.stdout) == (1, "") and "there is no pjproject source" in missing.stderr
