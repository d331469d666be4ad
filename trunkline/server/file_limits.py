"""How many files and sockets the process may have open."""

from __future__ import annotations

import resource
from typing import Final

import structlog

PER_CALL: Final = 4
"""RTP, RTCP and a recording, and one to spare."""
BESIDES: Final = 300
"""The database, models, SIP over TCP, webhooks on their way."""

log = structlog.get_logger()


def allow_enough(max_calls: int, max_connections: int) -> None:
    """Raise the soft limit to the hard one: the usual 1024 would be eaten up by 250 calls. One line when even that is
    too little."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = PER_CALL * max_calls + max_connections + BESIDES
    if hard != resource.RLIM_INFINITY and hard < needed:
        log.warning("descriptors.too_few", limit=hard, needed=needed, remedy="raise `ulimit -Hn` or `LimitNOFILE`")
