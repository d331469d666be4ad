"""Resource limits of reading one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadLimits:
    """Limits of the process that reads a file, and of the file's content."""

    file_bytes: int = 20 * 2**20
    memory_bytes: int = 2**30
    """Address space of the process."""
    cpu_s: int = 120
    """Processor time of the process."""
    text_cpu_s: int = 45
    """The same for text formats: 5 million characters of usual Markdown take 5 to 10 s, 20 MiB of HTML 15 s."""
    wall_s: float = 300.0
    """From the start of the process to its end; more than `cpu_s`, because the process has a low priority."""
    open_files: int = 32
    output_bytes: int = 160 * 2**20
    """Bytes of output: more than the passages within the limits below take."""
    unpacked_bytes: int = 100 * 2**20
    """Bytes that all parts of a compressed file may unpack to."""
    pages: int = 2_000
    characters: int = 5_000_000
    passages: int = 50_000
