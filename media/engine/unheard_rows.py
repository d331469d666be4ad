"""Rows whose audio is only recorded and played. Nobody listens, so it is read in pieces as large as recordings need."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import row_of
from media.engine.call_audio import CallAudio

READ_MS: Final = 250
"""Audio of such a row that is read at a time: half of what its recording gets at a time."""


class UnheardRows:
    """`least`: `int32[rows]`, the samples from which on a row is read. A row is read whole in the tick in which a
    command of its call runs, so that the call hears nothing from before the command, and no recording lacks its
    end."""

    def __init__(self, rows: int) -> None:
        self.least: NDArray[np.int32] = np.zeros(rows, np.int32)
        self.heard: set[int] = set()
        """The other rows with a call."""
        self._unheard = [False] * rows

    def __contains__(self, row: int) -> bool:
        return self._unheard[row]

    def read_whole(self, call: CallAudio) -> None:
        """The next read of the call's row leaves nothing."""
        self.least[row_of(call.slot)] = 0

    def update(self, row: int, call: CallAudio | None) -> None:
        """After a command: `call` is that of the row."""
        self.heard.discard(row)
        self._unheard[row] = False
        self.least[row] = 0
        if call is None:
            return
        if call.listening or call.monitor is not None or call.taps:
            self.heard.add(row)
        else:
            self._unheard[row] = True
            self.least[row] = READ_MS * call.rate // 1000
