"""`trunkline --version` and `trunkline completion`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trunkline.server_process import TRUNKLINE
from trunkline.cli import main
from trunkline.cli.setup import version


def test_the_version_names_the_commit_and_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    first, *parts = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"trunkline \d+\.\d+\.\d+\S* \(commit ([0-9a-f]{7,40}\+?|unknown)\)", first)
    known = {line.rsplit(maxsplit=1)[0].strip(): line.split()[-1] for line in parts}
    assert {"Python", "PJSIP", "onnxruntime", "sherpa-onnx"} <= known.keys()
    assert known["PJSIP"] == "2.17" and known["onnxruntime"][0].isdigit()


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "trunkline", "agent", "shw"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("trunkline: agent: there is no command")


def test_the_commit_is_that_of_the_checkout_or_of_the_build(tmp_path: Path) -> None:
    assert version.commit(tmp_path) == "unknown"
    (tmp_path / "trunkline").mkdir()
    (tmp_path / "trunkline" / version.COMMIT_FILE).write_text("0123456789ab\n")
    assert version.commit(tmp_path) == "0123456789ab"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert version.commit(tmp_path) == "unknown", "a checkout without a commit"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert version.commit(tmp_path) == head[:12]


def test_the_version_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError("broken")

    for target in ("importlib.metadata.version", "subprocess.run", "ctypes.CDLL"):
        monkeypatch.setattr(target, fail)
    first, *parts = version.version_lines()
    assert first == "trunkline unknown (commit unknown)"
    assert all(line.endswith(" unknown") for line in parts if "Python" not in line)


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete "), ("zsh", "#compdef trunkline"), ("fish", "complete ")]
)
def test_a_script_is_printed_for_each_shell(shell: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    assert words in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "completed"),
    [("trunkline mod", {"models"}), ("trunkline org cr", {"create"}), ("trunkline trunk list --j", {"--json"})],
)
def test_bash_completes_commands_and_options(line: str, completed: set[str]) -> None:
    words = line.split(" ")
    script = f"""
        source <(trunkline completion bash)
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
        _trunkline_completion trunkline
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(TRUNKLINE).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert (set(done.stdout.split()), done.stderr) == (completed, "")
