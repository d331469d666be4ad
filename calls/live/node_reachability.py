"""Which other nodes this one could not reach, so that clients are told whose calls are shown as they are stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

KEEP_S: Final = 30.0
"""How long a failure counts when the node is not asked again, seconds."""

log = structlog.get_logger()


class NodeReachability:
    """Names of nodes, as of the last request to each. For the event loop, except `unreachable` and `warning`."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._unreachable: dict[str, float] = {}
        """The time until which the last failure counts, monotonic."""

    @property
    def unreachable(self) -> Sequence[str]:
        """The names of the nodes that are not down and cannot be reached. Any thread."""
        now_s = time.monotonic()
        return sorted(name for name, until_s in self._unreachable.copy().items() if until_s > now_s)

    @property
    def warning(self) -> str | None:
        """What that means for clients; None if all can be reached."""
        names = self.unreachable
        if not names:
            return None
        noun, whose = ("node", "its") if len(names) == 1 else ("nodes", "their")
        return f"{noun} {', '.join(names)} cannot be reached: {whose} calls are shown as they are stored"

    def failed(self, node: str, why: str) -> None:
        """A node could not be reached."""
        is_new = node not in self.unreachable
        self._unreachable[node] = time.monotonic() + KEEP_S
        if is_new:
            log.warning("node.not_reached", node=node, why=why)
            self.on_change()

    def succeeded(self, node: str) -> None:
        """A node has answered, or is down: then its calls are closed."""
        if self._unreachable.pop(node, None) is not None:
            self.on_change()
