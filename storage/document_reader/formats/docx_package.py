"""The zip package of a DOCX document. Its parts are parsed as streams by expat, so that none is in memory as a
whole."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol
from xml.parsers import expat

from storage.document_reader.base.errors import TOO_MUCH_DATA, UnreadableDocument

_PIECE: Final = 2**16
_PREFIXES: Final = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "math:",
    "http://purl.oclc.org/ooxml/officeDocument/math": "math:",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "compatibility:",
}
"""Namespaces that are read, of both conformance classes, with their prefix in a handler's names."""
_MAIN: Final = "word/document.xml"


class PartHandler(Protocol):
    """Receives the elements of a part. Names are local, with a prefix for all but the main namespaces."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, text: str) -> None:
        """Text inside the element."""


class Package:
    """A package whose parts unpack to at most `unpacked_bytes`, all reads together."""

    def __init__(self, data: bytes, unpacked_bytes: int) -> None:
        """Raises `BadZipFile`, and what `read` raises."""
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._left = unpacked_bytes
        self.main = next(iter(self._targets("", "officeDocument")), _MAIN)

    def related(self, kind: str) -> list[str]:
        """Names of the main part's related parts of one kind, if they exist."""
        return [name for name in self._targets(self.main, kind) if name in self._zip.NameToInfo]

    def read(self, name: str, handler: PartHandler) -> Iterator[None]:
        """Feed a part to `handler` piece by piece. Raises `UnreadableDocument` for too much data and for a document
        type declaration (no program writes one; entities need one), `KeyError` for a missing part, else what zipfile,
        zlib and expat raise."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.StartElementHandler = lambda tag, attributes: handler.start(
            _local(tag), {_local(key): value for key, value in attributes.items()} if attributes else attributes
        )
        parser.EndElementHandler = lambda tag: handler.end(_local(tag))
        parser.CharacterDataHandler = handler.text
        for piece in self._pieces(name):
            parser.Parse(piece, False)
            yield
        parser.Parse(b"", True)
        yield

    def _pieces(self, name: str) -> Iterator[bytes]:
        info = self._zip.getinfo(name)
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError("an encrypted or unusually packed part")
        with self._zip.open(info) as part:
            while piece := part.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise UnreadableDocument(TOO_MUCH_DATA)
                yield piece

    def _targets(self, source: str, kind: str) -> list[str]:
        """Names of the parts that `source` (the package itself when empty) relates to as `kind`."""
        folder, file = posixpath.split(source)
        name = posixpath.join(folder, "_rels", f"{file}.rels")
        if name not in self._zip.NameToInfo:
            return []
        relations = _Relations(kind)
        for _ in self.read(name, relations):
            pass
        return [posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/") for target in relations.targets]


class _Relations:
    """Targets inside the package of one kind of relationship."""

    def __init__(self, kind: str) -> None:
        self._ending = f"/{kind}"
        self.targets: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        inside = attributes.get("TargetMode") != "External"
        if name == "Relationship" and inside and attributes.get("Type", "").endswith(self._ending):
            self.targets.append(attributes.get("Target", ""))

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


@lru_cache(maxsize=1024)
def _local(name: str) -> str:
    """The name without its main namespace, which may have any prefix in the file; other known namespaces become a fixed
    prefix, unknown ones stay in the name, so that it matches nothing."""
    namespace, _, local = name.rpartition(" ")
    if not namespace:
        return local
    prefix = _PREFIXES.get(namespace)
    return name if prefix is None else prefix + local


def _refuse_doctype(*_: object) -> None:
    raise UnreadableDocument("The DOCX file holds a document type declaration")
