"""What Trunkline consists of, as a CycloneDX document: `sbom.py ENVIRONMENT.json OUTPUT.json`, where ENVIRONMENT.json
is what cyclonedx-py found installed in .venv. Of that the packages of the runtime's locks are kept, not those of tests
and checks, and what no package index knows of is added: PJSIP, llama.cpp and Swagger UI inside of their Python
packages, and the packages of the distribution that it runs with."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = ("requirements.lock", "requirements-llama.lock")
"""What `make setup` installs to run."""
BUNDLED: Final = {"llama.cpp": ("libllama.so.*.*.*", "MIT"), "ggml": ("libggml.so.*.*.*", "MIT")}
"""What the package llama-cpp-python has compiled into it, by the libraries whose names tell the versions."""
UNTOLD_LICENSES: Final = {"protobuf": "BSD-3-Clause", "sherpa-onnx": "Apache-2.0"}
"""Of packages whose metadata name none that the format knows."""
_LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_LICENSE: Final = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
Component = dict[str, Any]


def normalized(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(root: Path) -> dict[str, str]:
    """The names of the runtime's packages, each with the lock that has it."""
    return {normalized(name): lock for lock in LOCKS for name, _ in _LOCKED.findall((root / lock).read_text())}


def of_the_runtime(components: Iterable[Component], locks: dict[str, str]) -> list[Component]:
    """Those that a lock of the runtime names, each with that lock."""
    kept = []
    for component in components:
        name = normalized(component["name"])
        if name in locks:
            note = {"name": "trunkline:lock", "value": locks[name]}
            kept.append(component | {"properties": [*component.get("properties", []), note]})
            if name in UNTOLD_LICENSES and not component.get("licenses"):
                kept[-1]["licenses"] = [{"license": {"id": UNTOLD_LICENSES[name]}}]
    return kept


def pjsip(root: Path) -> Component:
    """The pinned source, whose binaries `make setup` builds."""
    pin = dict(re.findall(r"^pjproject_(\w+)=\"?([^\"\n]*)\"?$", (root / "scripts/pjproject.env").read_text(), re.M))
    package, _, version = pin["package"].partition(" ")
    return {
        "type": "library",
        "bom-ref": "pjproject",
        "name": "pjproject",
        "version": pin["version"],
        "description": "PJSIP: SIP and RTP, built from source without its bundled third-party codecs",
        "licenses": [{"license": {"id": "GPL-2.0-or-later"}}],
        "hashes": [{"alg": "SHA-256", "content": pin["sha256"]}],
        "purl": f"pkg:deb/debian/{package}@{quote(version, safe=':+~.-')}?arch=source",
        "externalReferences": [{"type": "website", "url": "https://www.pjsip.org/"}],
        "properties": [{"name": "trunkline:source", "value": f"{pin['tarball']}, kept in {pin['archive']}"}],
    }


def bundled(libraries: Path) -> list[Component]:
    """What is compiled into llama-cpp-python."""
    found = []
    for name, (pattern, license_id) in BUNDLED.items():
        (library,) = libraries.glob(pattern)
        found.append(
            {
                "type": "library",
                "bom-ref": f"llama-cpp-python/{name}",
                "name": name,
                "version": library.name.partition(".so.")[2],
                "description": "part of llama-cpp-python, compiled for the machine",
                "licenses": [{"license": {"id": license_id}}],
                "externalReferences": [{"type": "vcs", "url": f"https://github.com/ggml-org/{name}"}],
            }
        )
    return found


def swagger_ui(packages: Path) -> Component:
    """The script and style sheet in drf-spectacular-sidecar, whose metadata tell the version."""
    (metadata,) = packages.glob("drf_spectacular_sidecar-*.dist-info/METADATA")
    found = re.search(r"Swagger UI`_ version ``([\d.]+)``", metadata.read_text())
    if found is None:
        raise SystemExit(f"error: {metadata} does not tell the version of Swagger UI")
    return {
        "type": "library",
        "bom-ref": "drf-spectacular-sidecar/swagger-ui-dist",
        "name": "swagger-ui-dist",
        "version": found[1],
        "description": "part of drf-spectacular-sidecar, served at /docs",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:npm/swagger-ui-dist@{found[1]}",
    }


def distribution(names: Iterable[str], facts: str, distro: str, documents: Path) -> list[Component]:
    """The packages of the distribution of those names; `facts` are lines of package, version and architecture."""
    wanted, found = set(names), []
    for line in facts.splitlines():
        name, version, architecture = line.split("\t")
        if name in wanted:
            where = f"arch={architecture}&distro={quote(distro)}"
            found.append(
                {
                    "type": "library",
                    "bom-ref": f"deb/{name}",
                    "name": name,
                    "version": version,
                    "licenses": _licenses(documents / name / "copyright"),
                    "purl": f"pkg:deb/debian/{name}@{quote(version, safe=':+~.-')}?{where}",
                }
            )
    missing = wanted - {each["name"] for each in found}
    if missing:
        raise SystemExit(f"error: not installed: {', '.join(sorted(missing))}\n  what to do: make setup")
    return found


def _licenses(copyright_file: Path) -> list[dict[str, Any]]:
    """The short names of a machine-readable copyright file; the file itself where it is none."""
    text = copyright_file.read_text(errors="replace") if copyright_file.exists() else ""
    names = list(dict.fromkeys(each.strip() for each in _LICENSE.findall(text)))
    return [{"license": {"name": each}} for each in names or [f"see {copyright_file}"]]


def composed(
    environment: dict[str, Any], locks: dict[str, str], added: list[Component], version: str
) -> dict[str, Any]:
    """The document: Trunkline, what it is made of, and what asks for what."""
    components = [*of_the_runtime(environment["components"], locks), *added]
    there = {each["bom-ref"] for each in components}
    dependencies = [
        {"ref": each["ref"], "dependsOn": sorted(there.intersection(each.get("dependsOn", ())))}
        for each in environment.get("dependencies", ())
        if each["ref"] in there
    ]
    main = {
        "type": "application",
        "bom-ref": "trunkline",
        "name": "trunkline",
        "version": version,
        "licenses": [{"license": {"id": "GPL-3.0-or-later"}}],
    }
    return environment | {
        "metadata": {**environment.get("metadata", {}), "component": main},
        "components": sorted(components, key=lambda each: str(each["bom-ref"])),
        "dependencies": [{"ref": "trunkline", "dependsOn": sorted(there)}, *dependencies],
    }


def _distro() -> str:
    facts = platform.freedesktop_os_release()
    return f"{facts['ID']}-{facts.get('VERSION_ID', '')}"


def main(environment_path: str, output_path: str) -> None:
    """Write the document and say what it holds."""
    (libraries,) = (ROOT / ".venv/lib").glob("python3*/site-packages/llama_cpp/lib")
    facts = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = (ROOT / "scripts/packages-run.txt").read_text().split()
    packages = distribution(names, facts, _distro(), Path("/usr/share/doc"))
    found = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert found is not None
    environment = json.loads(Path(environment_path).read_text())
    added = [pjsip(ROOT), *bundled(libraries), swagger_ui(libraries.parents[1]), *packages]
    document = composed(environment, locked(ROOT), added, found[1])
    Path(output_path).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"    {len(document['components'])} components in {output_path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
