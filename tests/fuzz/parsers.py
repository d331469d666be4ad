"""Our parsers by the names that `make fuzz FUZZ=name` takes. Each takes any bytes; what it raises is a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.fuzz import documents, model_answers, sip_texts

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
CRASHES: Final = HERE / "crashes"
"""A folder for each parser: inputs that reach different places, and inputs that once broke something."""

PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "text": documents.text,
    "markdown": documents.markdown,
    "html": documents.html,
    "csv": documents.csv,
    "json": documents.json_text,
    "docx": documents.docx_document,
    "docx_package": documents.docx_package,
    "pdf_lines": documents.pdf_lines,
    "sip_headers": sip_texts.names,
    "sip_shown": sip_texts.shown,
    "sip_digest": sip_texts.digest_answer,
    "tool_calls": model_answers.tool_calls,
    "server_events": model_answers.server_events,
    "server_errors": model_answers.server_errors,
    "wave_sound": model_answers.wave_sound,
    "chat_template": model_answers.chat_template,
}

NATIVE: Final = HERE / "native"
NATIVE_PARSERS: Final = tuple(sorted(path.stem.removeprefix("fuzz_") for path in NATIVE.glob("fuzz_*.c")))
"""Those in C, each with a harness in that folder."""


def kept(name: str) -> list[Path]:
    """The inputs of one parser, those that once broke something first."""
    return [path for folder in (CRASHES, CORPUS) for path in sorted((folder / name).glob("*"))]
