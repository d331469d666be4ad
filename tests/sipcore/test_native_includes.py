"""Includes of `sipcore/native` are in the same folder or in layers below, and form no cycle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "sipcore" / "native"

# Top first. A folder may include its own files and those of the layers below, but none of a folder in its own layer.
LAYERS = (("python",), ("guard",), ("trunks",), ("sip",), ("pump",), ("rtp", "tls"), ("net",))
HEIGHT = {folder: -depth for depth, layer in enumerate(LAYERS) for folder in layer}

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

Includes = Mapping[str, frozenset[str]]


def read_includes(native: Path) -> Includes:
    """The includes in quotes of each file, all as paths from `native`."""
    return {
        str(path.relative_to(native)): frozenset(_INCLUDE.findall(path.read_text()))
        for path in sorted(native.rglob("*"))
        if path.suffix in (".c", ".h", ".cpp")
    }


def wrong_includes(includes: Includes) -> Iterator[str]:
    """A sentence for each include that is no path from `native`'s root, or points up or sideways."""
    for file, targets in includes.items():
        folder = file.split("/")[0]
        if folder not in HEIGHT:
            yield f"{file}: the folder {folder} is in no layer"
            continue
        for target in sorted(targets):
            other = target.split("/")[0]
            if target not in includes:
                yield f"{file} includes {target}, which is no file of sipcore/native (paths begin at its root)"
            elif other != folder and HEIGHT.get(other, 0) > HEIGHT[folder]:
                yield f"{file} includes {target}: {other} lies above {folder}"
            elif other != folder and HEIGHT.get(other, 0) == HEIGHT[folder]:
                yield f"{file} includes {target}: {other} lies beside {folder}"


def circle(includes: Includes) -> list[str]:
    """Modules (a source with its header) that include one another, the first again at the end; [] for none."""
    needs: dict[str, set[str]] = {}
    for file, targets in includes.items():
        module = file.rsplit(".", 1)[0]
        needs.setdefault(module, set()).update(target.rsplit(".", 1)[0] for target in targets)
        needs[module].discard(module)
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for needed in sorted(needs.get(module, ())):
            if found := search(needed, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(needs) if (found := search(module, []))), [])


def test_every_include_points_downwards() -> None:
    includes = read_includes(NATIVE)
    assert len(includes) > 100
    assert list(wrong_includes(includes)) == []


def test_no_files_include_one_another_in_a_cycle() -> None:
    assert circle(read_includes(NATIVE)) == []


def test_include_upwards_sideways_or_of_no_file_is_reported() -> None:
    none: frozenset[str] = frozenset()
    includes = {
        "net/sdp.c": frozenset({"sip/refer.h"}),
        "rtp/srtp.c": frozenset({"tls/peer_verify.h", "net/sdp.h", "srtp.h"}),
        "sip/refer.h": none,
        "tls/peer_verify.h": none,
        "net/sdp.h": none,
        "misc/more.h": none,
    }
    assert list(wrong_includes(includes)) == [
        "net/sdp.c includes sip/refer.h: sip lies above net",
        "rtp/srtp.c includes srtp.h, which is no file of sipcore/native (paths begin at its root)",
        "rtp/srtp.c includes tls/peer_verify.h: tls lies beside rtp",
        "misc/more.h: the folder misc is in no layer",
    ]


def test_include_cycle_through_a_source_and_a_header_is_reported() -> None:
    includes = {
        "rtp/a.c": frozenset({"rtp/a.h", "rtp/b.h"}),
        "rtp/a.h": frozenset[str](),
        "rtp/b.h": frozenset({"rtp/c.h"}),
        "rtp/c.h": frozenset[str](),
        "rtp/c.c": frozenset({"rtp/c.h", "rtp/a.h"}),
    }
    assert circle(includes) == ["rtp/a", "rtp/b", "rtp/c", "rtp/a"]
