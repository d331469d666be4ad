"""The file descriptor limit of the process (RLIMIT_NOFILE): raised at the start, with a warning if it is too low."""

from __future__ import annotations

import resource
from typing import Final

import structlog

DESCRIPTORS_PER_CALL: Final = 4
"""RTP, RTCP, a recording, and one in reserve."""
OTHER_DESCRIPTORS: Final = 300
"""Database, models, SIP over TCP, webhooks in flight."""

log = structlog.get_logger()


def raise_file_descriptor_limit(max_calls: int, max_connections: int) -> None:
    """Raise the soft limit to the hard one, because 250 calls need the usual 1024. Logs a warning if the hard limit is
    too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = DESCRIPTORS_PER_CALL * max_calls + max_connections + OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        log.warning("descriptors.too_few", limit=hard, needed=needed, remedy="raise `ulimit -Hn` or `LimitNOFILE`")
