"""Voices and language models: what responses show."""

from __future__ import annotations

from typing import Final

from tests.contract.kinds import Choice, Flag, Id, Text, Whole
from tests.contract.table import Field, Record

VOICE: Final = Record((Field("id", Id("voice"), required=True), Field("name", Text(), required=True)))
LANGUAGE_MODEL: Final = Record(
    (
        Field("id", Id("language model"), required=True),
        Field("name", Text(), required=True),
        Field("provider", Choice(("builtin", "llama.cpp", "openai")), required=True),
        Field("contextLength", Whole(1, None)),
        Field("isDefault", Flag(), required=True),
    )
)
