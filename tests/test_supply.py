"""The SBOM is complete, and a vulnerability audit that could not be made does not count as clean."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from scripts import audit, sbom

ROOT: Final = Path(__file__).parent.parent
COPYRIGHT: Final = "Files: *\nLicense: BSD-3-clause\n\nFiles: debian/*\nLicense: BSD-3-clause\n\nLicense: MIT\n text\n"


def test_the_sbom_has_the_packages_of_the_locks_and_those_of_no_index() -> None:
    locks = dict.fromkeys(("aiohttp", "ruamel-yaml", "sherpa-onnx"), "requirements.lock")
    environment: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "metadata": {"tools": {}},
        "components": [
            {"name": "aiohttp", "bom-ref": "aiohttp==3"},
            {"name": "ruamel.yaml", "bom-ref": "ruamel.yaml==1"},
            {"name": "pytest", "bom-ref": "pytest==9"},
            {"name": "sherpa_onnx", "bom-ref": "sherpa_onnx==1"},
        ],
        "dependencies": [
            {"ref": "aiohttp==3", "dependsOn": ["ruamel.yaml==1", "pytest==9"]},
            {"ref": "pytest==9"},
        ],
    }
    document = sbom.compose(environment, locks, [sbom.pjsip(ROOT)], "1.2")
    assert [each["name"] for each in document["components"]] == ["aiohttp", "pjproject", "ruamel.yaml", "sherpa_onnx"]
    assert document["components"][3]["licenses"] == [{"license": {"id": "Apache-2.0"}}], "its metadata have no licence"
    assert document["components"][0]["properties"] == [{"name": "trunkline:lock", "value": "requirements.lock"}]
    assert document["dependencies"] == [
        {"ref": "trunkline", "dependsOn": ["aiohttp==3", "pjproject", "ruamel.yaml==1", "sherpa_onnx==1"]},
        {"ref": "aiohttp==3", "dependsOn": ["ruamel.yaml==1"]},
    ]
    assert (document["metadata"]["component"]["version"], document["bomFormat"]) == ("1.2", "CycloneDX")


def test_pjsip_is_the_pinned_source() -> None:
    found = sbom.pjsip(ROOT)
    assert found["version"] == "2.17" and found["hashes"][0]["content"].startswith("6860c2f7")
    assert found["purl"].startswith("pkg:deb/debian/asterisk@1:22.10.1+dfsg")
    (source,) = (each["value"] for each in found["properties"])
    assert "orig-Xpjproject.tar.xz, kept in Debian's snapshot archive" in source
    assert all(re.fullmatch(r"https://\S+", each["url"]) for each in found["externalReferences"])


def test_the_distributions_packages_have_version_and_licences(tmp_path: Path) -> None:
    (tmp_path / "libopus0").mkdir()
    (tmp_path / "libopus0/copyright").write_text(COPYRIGHT)
    facts = "libopus0\t1.3.1-3\tamd64\nbash\t5.2\tamd64\n"
    (found,) = sbom.distribution_packages(["libopus0"], facts, "debian-12", tmp_path)
    assert found["purl"] == "pkg:deb/debian/libopus0@1.3.1-3?arch=amd64&distro=debian-12"
    assert [each["license"]["name"] for each in found["licenses"]] == ["BSD-3-clause", "MIT"]
    with pytest.raises(SystemExit, match="not installed: libgsm1"):
        sbom.distribution_packages(["libopus0", "libgsm1"], facts, "debian-12", tmp_path)


def test_libraries_compiled_into_a_package_are_listed_with_their_versions(tmp_path: Path) -> None:
    for name in ("libllama.so", "libllama.so.0", "libllama.so.0.5.0", "libggml.so.0.25.3", "libggml-base.so.0.25.3"):
        (tmp_path / name).touch()
    assert {each["name"]: each["version"] for each in sbom.bundled(tmp_path)} == {
        "llama.cpp": "0.5.0",
        "ggml": "0.25.3",
    }


def test_swagger_ui_is_listed_with_the_installed_version() -> None:
    (packages,) = Path(sys.prefix).glob("lib/python3*/site-packages")
    found = sbom.swagger_ui(packages)
    assert re.fullmatch(r"pkg:npm/swagger-ui-dist@5\.\d+\.\d+", found["purl"])


def test_every_package_of_the_locks_is_installed_under_a_name_that_is_found() -> None:
    """No package is missing from the SBOM because its name is spelled differently."""
    installed = {
        sbom.normalized(path.name.partition("-")[0])
        for path in Path(sys.prefix).glob("lib/python3*/site-packages/*.dist-info")
    }
    lines = "".join((ROOT / lock).read_text() for lock in sbom.LOCKS)
    conditional = {sbom.normalized(name) for name in re.findall(r"^([\w.-]+)==[^;\n]*;", lines, re.MULTILINE)}
    assert len(installed) > 40
    assert sbom.locked(ROOT).keys() - installed <= conditional


REPORT: Final = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
VULNERABLE: Final = {
    "dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["2"]}]}]
}
PARTLY_CHECKED: Final = {"dependencies": [*REPORT["dependencies"], {"name": "b", "skip_reason": "not found"}]}
NONE: Final = {"dependencies": [{"name": "b", "skip_reason": "not found"}]}


@pytest.mark.parametrize(
    ("report", "status", "output"),
    [
        (REPORT, audit.CLEAN, "x.lock: 1 packages, no known vulnerability"),
        (VULNERABLE, audit.VULNERABLE, "x.lock: a 1: CVE-2026-1, fixed in 2"),
        (PARTLY_CHECKED, audit.NOT_CHECKED, "x.lock: b: NOT CHECKED: not found"),
        (NONE, audit.NOT_CHECKED, "x.lock: NOT CHECKED: the database knows none of these packages (not found)"),
        (None, audit.NOT_CHECKED, "x.lock: NOT CHECKED: no database of vulnerabilities was reached (no route to host)"),
    ],
)
def test_an_audit_distinguishes_clean_vulnerable_and_not_checked(
    report: dict[str, Any] | None, status: int, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"
    write = (
        f"cat >\"$out\" <<'X'\n{json.dumps(report)}\nX\n" if report else "echo trace >&2; echo no route to host >&2\n"
    )
    program.write_text(
        f'#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" != --output ] || out=$2; shift; done\n{write}exit 1\n'
    )
    program.chmod(0o755)
    assert audit.main(str(program), "x.lock") == status
    assert capsys.readouterr().out.strip() == output
