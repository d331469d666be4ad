"""How much one file may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadLimits:
    """Bounds of reading one file: of the process that reads it, and of what it may find."""

    file_bytes: int = 20 * 2**20
    memory_bytes: int = 2**30
    """Address space of the process."""
    cpu_s: int = 120
    """Processor time of the process."""
    text_cpu_s: int = 45
    """The same for kinds that are text: 5 million characters of usual Markdown take 5 to 10 s, 20 MiB of HTML 15 s."""
    wall_s: float = 300.0
    """From the start of the process to its end; more than `cpu_s`, because it gives way to everything else."""
    open_files: int = 32
    output_bytes: int = 160 * 2**20
    """What the process may write: more than the passages that the limits below allow."""
    unpacked_bytes: int = 100 * 2**20
    """What the parts of a packed file may unpack to, all together."""
    pages: int = 2_000
    characters: int = 5_000_000
    passages: int = 50_000
