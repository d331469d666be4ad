"""Voices and language models: what responses show."""

from __future__ import annotations

from typing import Final

from tests.contract.kinds import Choice, Flag, Id, Real, Text, Texts, Whole
from tests.contract.table import Field, Record

VOICE: Final = Record(
    (
        Field("id", Id("voice"), required=True),
        Field("name", Text(), required=True),
        Field("language", Text()),
        Field("engine", Text(), required=True),
        Field("quality", Text()),
        Field("sampleRate", Whole(8000, None)),
        Field("sampleUrl", Text(), required=True),
    )
)
LANGUAGE_MODEL: Final = Record(
    (
        Field("id", Id("language model"), required=True),
        Field("name", Text(), required=True),
        Field("provider", Choice(("builtin", "llama.cpp", "openai")), required=True),
        Field("contextLength", Whole(1, None)),
        Field("isDefault", Flag(), required=True),
        Field("promptTokensPerSecond", Real(0, 1e9)),
        Field("tokensPerSecond", Real(0, 1e9)),
    )
)
SPEECH_RECOGNIZER: Final = Record(
    (
        Field("id", Id("speech recognizer"), required=True),
        Field("name", Text(), required=True),
        Field("engine", Text(), required=True),
        Field("languages", Texts(), required=True),
        Field("streaming", Flag(), required=True),
        Field("isDefault", Flag(), required=True),
        Field("realTimeFactor", Real(0, 1e9)),
    )
)
