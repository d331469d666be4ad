"""What Whisper calls the languages that it knows. It is told no other one: sherpa-onnx ends the process over it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_OTHERWISE: Final = {"iw": "he", "nb": "no", "jv": "jw", "fil": "tl", "cmn": "zh"}


def whisper_language(tag: str | None, known: Collection[str]) -> str:
    """The model's own name of a BCP 47 tag, one of those `known` to it; "" lets it find out."""
    primary = (tag or "").lower().replace("_", "-").split("-")[0]
    return next((name for name in (primary, _OTHERWISE.get(primary, "")) if name in known), "")
