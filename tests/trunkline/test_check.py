"""`trunkline check` says what is missing, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from sipcore.leg import Leg
from trunkline import check

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def _waits_for_ever(leg: Leg) -> None:
    await leg.ended


@pytest.mark.parametrize(
    ("owner", "verb", "instead"),
    [(check.Endpoint, "set_sources", lambda *_: None), (Leg, "connected", _waits_for_ever)],
    ids=["the call does not come in", "there is no sound"],
)
async def test_a_call_to_ourselves_that_is_not_answered_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, verb: str, instead: Any
) -> None:
    monkeypatch.setattr(check, "AUDIO_WAIT_S", 0.5)
    monkeypatch.setattr(owner, verb, instead)
    with pytest.raises(OSError, match=r"was not answered within 0\.5 s: is a firewall"):
        await check._audio_path(Settings(data_dir=tmp_path))
