"""Software bill of materials of Trunkline as a CycloneDX document: `sbom.py ENVIRONMENT.json OUTPUT.json`.

ENVIRONMENT.json is cyclonedx-py's document of .venv. Its packages of the runtime's locks are included, those of tests
and checks are not. Components that are in no package index are added: PJSIP, llama.cpp and Swagger UI, which are parts
of Python packages, and the distribution's packages.
"""

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
LOCKS: Final = ("requirements.lock", "requirements-cluster.lock", "requirements-llama.lock")
"""The locks of the packages of an installed service."""
BUNDLED: Final = {"llama.cpp": ("libllama.so.*.*.*", "MIT"), "ggml": ("libggml.so.*.*.*", "MIT")}
"""Components compiled into llama-cpp-python: the pattern of the library whose name has the version, and the licence."""
MISSING_LICENSES: Final = {"protobuf": "BSD-3-Clause", "sherpa-onnx": "Apache-2.0"}
"""Licences of packages whose metadata have none that the format knows."""
_LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_LICENSE: Final = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
Component = dict[str, Any]


def normalized(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(root: Path) -> dict[str, str]:
    """The normalized names of the runtime's packages, each with its lock."""
    return {normalized(name): lock for lock in LOCKS for name, _ in _LOCKED.findall((root / lock).read_text())}


def runtime_components(components: Iterable[Component], locks: dict[str, str]) -> list[Component]:
    """The components that are in a lock of the runtime, each with its lock as a property."""
    selected = []
    for component in components:
        name = normalized(component["name"])
        if name in locks:
            note = {"name": "trunkline:lock", "value": locks[name]}
            selected.append(component | {"properties": [*component.get("properties", []), note]})
            if name in MISSING_LICENSES and not component.get("licenses"):
                selected[-1]["licenses"] = [{"license": {"id": MISSING_LICENSES[name]}}]
    return selected


def pjsip(root: Path) -> Component:
    """The component of the pinned PJSIP source, which `make setup` builds."""
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
    """The components that are compiled into llama-cpp-python; `libraries` is the folder of its libraries."""
    components = []
    for name, (pattern, license_id) in BUNDLED.items():
        (library,) = libraries.glob(pattern)
        components.append(
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
    return components


def swagger_ui(packages: Path) -> Component:
    """The component Swagger UI in drf-spectacular-sidecar, whose metadata have the version."""
    (metadata,) = packages.glob("drf_spectacular_sidecar-*.dist-info/METADATA")
    found = re.search(r"Swagger UI`_ version ``([\d.]+)``", metadata.read_text())
    if found is None:
        raise SystemExit(f"error: {metadata} does not contain the version of Swagger UI")
    return {
        "type": "library",
        "bom-ref": "drf-spectacular-sidecar/swagger-ui-dist",
        "name": "swagger-ui-dist",
        "version": found[1],
        "description": "part of drf-spectacular-sidecar, served at /docs",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:npm/swagger-ui-dist@{found[1]}",
    }


def distribution_packages(names: Iterable[str], installed: str, distro: str, documents: Path) -> list[Component]:
    """The components of the named packages of the distribution. `installed` has lines of package, version and
    architecture; `documents` is /usr/share/doc. Ends the program with a message if one is not installed."""
    required, components = set(names), []
    for line in installed.splitlines():
        name, version, architecture = line.split("\t")
        if name in required:
            qualifiers = f"arch={architecture}&distro={quote(distro)}"
            components.append(
                {
                    "type": "library",
                    "bom-ref": f"deb/{name}",
                    "name": name,
                    "version": version,
                    "licenses": _licenses(documents / name / "copyright"),
                    "purl": f"pkg:deb/debian/{name}@{quote(version, safe=':+~.-')}?{qualifiers}",
                }
            )
    missing = required - {each["name"] for each in components}
    if missing:
        raise SystemExit(f"error: not installed: {', '.join(sorted(missing))}\n  what to do: make setup")
    return components


def _licenses(copyright_file: Path) -> list[dict[str, Any]]:
    """The licences' short names in a machine-readable copyright file, or a reference to the file if it has none."""
    text = copyright_file.read_text(errors="replace") if copyright_file.exists() else ""
    names = list(dict.fromkeys(each.strip() for each in _LICENSE.findall(text)))
    return [{"license": {"name": each}} for each in names or [f"see {copyright_file}"]]


def compose(environment: dict[str, Any], locks: dict[str, str], added: list[Component], version: str) -> dict[str, Any]:
    """The document: Trunkline, its components, and their dependencies."""
    components = [*runtime_components(environment["components"], locks), *added]
    references = {each["bom-ref"] for each in components}
    dependencies = [
        {"ref": each["ref"], "dependsOn": sorted(references.intersection(each.get("dependsOn", ())))}
        for each in environment.get("dependencies", ())
        if each["ref"] in references
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
        "dependencies": [{"ref": "trunkline", "dependsOn": sorted(references)}, *dependencies],
    }


def _distro() -> str:
    release = platform.freedesktop_os_release()
    return f"{release['ID']}-{release.get('VERSION_ID', '')}"


def main(environment_path: str, output_path: str) -> None:
    """Writes the document and prints the number of its components."""
    (libraries,) = (ROOT / ".venv/lib").glob("python3*/site-packages/llama_cpp/lib")
    installed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = (ROOT / "scripts/packages-run.txt").read_text().split()
    packages = distribution_packages(names, installed, _distro(), Path("/usr/share/doc"))
    found = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert found is not None
    environment = json.loads(Path(environment_path).read_text())
    added = [pjsip(ROOT), *bundled(libraries), swagger_ui(libraries.parents[1]), *packages]
    document = compose(environment, locked(ROOT), added, found[1])
    Path(output_path).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"    {len(document['components'])} components in {output_path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
