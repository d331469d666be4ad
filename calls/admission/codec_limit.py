"""The codecs of inbound calls whose trunk does not take all of the endpoint's."""

from __future__ import annotations

from collections.abc import Sequence

from calls.admission.rejection import CallRejected
from sipcore.dialogs.leg import Leg


async def limit_codecs(leg: Leg, codecs: Sequence[str]) -> None:
    """Let an inbound leg have these codecs alone; (): all of the endpoint. Raises `CallRejected` (488, with the Warning
    of RFC 3261, 20.43) if its offer has none of them."""
    if codecs and not await leg.limit_codecs(codecs):
        names = ", ".join(codecs)
        warning = ("Warning", f'305 trunkline "The offer has none of {names}"')
        raise CallRejected(488, f"the offer has none of the trunk's codecs: {names}", headers=(warning,))
