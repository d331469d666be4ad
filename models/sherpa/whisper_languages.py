"""The languages that Whisper knows. It is told no other one: sherpa-onnx ends the process over it."""

from __future__ import annotations

from typing import Final

_KNOWN: Final = frozenset((
    "en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv", "it", "id", "hi", "fi",
    "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no", "th", "ur", "hr", "bg", "lt", "la", "mi", "ml",
    "cy", "sk", "te", "fa", "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br", "eu", "is", "hy", "ne", "mn", "bs",
    "kk", "sq", "sw", "gl", "mr", "pa", "si", "km", "sn", "yo", "so", "af", "oc", "ka", "be", "tg", "sd", "gu", "am",
    "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my", "bo", "tl", "mg", "as", "tt", "haw", "ln",
    "ha", "ba", "jw", "su",
))  # fmt: skip
_OTHERWISE: Final = {"iw": "he", "nb": "no", "jv": "jw", "fil": "tl", "cmn": "zh"}


def whisper_language(tag: str | None) -> str:
    """Whisper's own name of a BCP 47 tag; "" lets it find out."""
    primary = (tag or "").lower().replace("_", "-").split("-")[0]
    primary = _OTHERWISE.get(primary, primary)
    return primary if primary in _KNOWN else ""
