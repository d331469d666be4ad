"""Which failures of the database are duplicates in the log of a part that tries again."""

from __future__ import annotations

from storage.database.errors import StorageUnavailable


class DuplicateFilter:
    """The failures of one part, such as a periodic task: of an outage, which may last for hours, the first one is
    logged."""

    def __init__(self) -> None:
        self._has_outage = False

    def is_duplicate(self, error: StorageUnavailable) -> bool:
        """True if the log has this failure: the outage, or a full disk, which `DiskSpace` logs. For each failure."""
        had_outage, self._has_outage = self._has_outage, error.is_outage
        return error.disk_full or (had_outage and error.is_outage)

    def reset(self) -> None:
        """The part works again."""
        self._has_outage = False
