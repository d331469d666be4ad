"""The handler of `/calls/{id}/waveform`: the peaks of a recording, for pages that draw it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import numpy as np
from pydantic import Field

from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.schemas.base import View
from calls.fair_semaphore import FairSemaphore
from config.errors import Conflict, NotFound
from media.waveform_peaks import MAX_PEAKS, MIN_PEAK_S, WaveformPeaks, waveform_peaks
from storage.calls import calls
from storage.recording_store.blocking_reader import blocking_reader
from storage.recording_store.object_store import StoreUnavailable

MAX_READING: Final = 2
_READING: Final = ThreadPoolExecutor(MAX_READING, thread_name_prefix="waveform")
_READ_SLOTS: Final = FairSemaphore(MAX_READING)
_DECIMALS: Final = 4

Peaks = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(max_length=MAX_PEAKS)]


class Waveform(View):
    """The loudest sample of each stretch of a call's recording, 0 to 1 (full scale), in order of time. `caller` is the
    left channel, `agent` the right one; both have the same number of peaks."""

    seconds_per_peak: float = Field(ge=MIN_PEAK_S, description="Length of the stretch that a peak stands for, s")
    caller: Peaks = Field(description="Peaks of the left channel")
    agent: Peaks = Field(description="Peaks of the right channel")

    @classmethod
    def of(cls, peaks: WaveformPeaks) -> Waveform:
        """Returns the view of the peaks."""
        sides = {"caller": peaks.caller, "agent": peaks.agent}
        rounded = {side: np.round(values.astype(np.float64), _DECIMALS).tolist() for side, values in sides.items()}
        return cls(seconds_per_peak=peaks.seconds_per_peak, **rounded)


async def read_peaks(checked: CheckedRequest[None, NoQuery]) -> WaveformPeaks:
    """Read the recording, before the transaction of GET /calls/{id}/waveform: it takes long."""
    stored = await checked.services.database.read(
        lambda conn: calls.get(conn, checked.owner, checked.item), owner=checked.owner
    )
    if stored is None:
        raise NotFound("Call not found")
    if not stored.recorded:
        raise NotFound("Recording not found")
    files = checked.services.recording_files
    async with _READ_SLOTS.slot(checked.owner):
        source: Path | BinaryIO = files.path_of(stored)
        if files.store is not None:
            found = await files.open(stored)
            if found is None:
                raise NotFound("Recording not found")
            source = blocking_reader(found)
        return await asyncio.get_running_loop().run_in_executor(_READING, _peaks_of, source)


def _peaks_of(source: Path | BinaryIO) -> WaveformPeaks:
    try:
        return waveform_peaks(source)
    except FileNotFoundError:
        raise NotFound("Recording not found") from None
    except OSError as error:
        if isinstance(source, Path):
            raise
        raise StoreUnavailable(str(error)) from None
    except ValueError:
        raise Conflict("The recording cannot be read") from None


def get(context: RequestContext[None, NoQuery]) -> Waveform:
    """GET /calls/{id}/waveform"""
    return Waveform.of(context.prepared)


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/waveform",
        name="getCallWaveform",
        role="viewer",
        tag="Calls",
        summary="Get the waveform of a call's recording",
        description=f"At most {MAX_PEAKS} peaks of each channel, so that a page can draw the recording without reading "
        "it. 409: the recording's file is damaged.",
        prepare=read_peaks,
        handler=get,
        item="Call",
        response=DataResponse(Waveform),
        errors=(409,),
    ),
)
