"""Inbound calls whose trunk does not take all codecs."""

from __future__ import annotations

import pytest

from calls.admission.codec_limit import limit_codecs
from calls.admission.rejection import CallRejected
from tests.fakes.fake_leg import ArrayPump, Phone


async def test_a_call_is_limited_to_the_codecs_of_its_trunk_and_rejected_if_it_offers_none() -> None:
    phone = Phone(ArrayPump())
    phone.dialog.offered = {"PCMU", "G722"}
    await limit_codecs(phone.leg, ())
    assert not phone.dialog.codecs, "it may have all"
    await limit_codecs(phone.leg, ("PCMA", "G722"))
    assert phone.dialog.codecs == ("PCMA", "G722")
    with pytest.raises(CallRejected, match="PCMA, opus") as rejected:
        await limit_codecs(phone.leg, ("PCMA", "opus"))
    assert (rejected.value.code, dict(rejected.value.headers)) == (
        488,
        {"Warning": '305 trunkline "The offer has none of PCMA, opus"'},
    )
