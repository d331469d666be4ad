"""The fuzzed parsers by their names in `make fuzz FUZZ=name`. Each check accepts any bytes; an exception is a
finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.fuzz import documents, model_outputs, sip_messages

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
CRASHES: Final = HERE / "crashes"
"""Both have a folder for each parser: inputs with different code coverage, and inputs that once broke the parser."""

PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "text": documents.text,
    "markdown": documents.markdown,
    "html": documents.html,
    "csv": documents.csv,
    "json": documents.json_text,
    "docx": documents.docx_document,
    "docx_package": documents.docx_package,
    "pdf_lines": documents.pdf_lines,
    "sip_headers": sip_messages.header_values,
    "sip_shown": sip_messages.masked_message,
    "sip_digest": sip_messages.digest_credentials,
    "tool_calls": model_outputs.tool_calls,
    "server_events": model_outputs.server_events,
    "server_errors": model_outputs.server_errors,
    "wave_sound": model_outputs.wave_sound,
    "chat_template": model_outputs.chat_template,
}

NATIVE: Final = HERE / "native"
NATIVE_PARSERS: Final = tuple(sorted(path.stem.removeprefix("fuzz_") for path in NATIVE.glob("fuzz_*.c")))
"""The parsers in C, each with a harness in that folder."""


def stored_inputs(name: str) -> list[Path]:
    """The stored inputs of one parser, those that once broke it first."""
    return [path for folder in (CRASHES, CORPUS) for path in sorted((folder / name).glob("*"))]
