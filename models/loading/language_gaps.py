"""Languages of agents that no loaded model recognizes or speaks: what calls use instead."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final, Literal

from models.loading.catalogue import Catalogue, same_language

_DEFAULT: Final = "en"
"""The language of an agent without one."""


@dataclass(frozen=True)
class LanguageGap:
    """`of`: the setting of the agent that asks for what no model has. `text`: one sentence on what happens in calls."""

    of: Literal["language", "voice"]
    text: str


def language_gaps(models: Catalogue, language: str | None, voice: uuid.UUID | None) -> list[LanguageGap]:
    """Returns the gaps of an agent with this `language` (a BCP 47 tag; None: not set) and this chosen voice (None: the
    default for the language). A voice or a recognizer of unknown languages counts for all. A voice that is no longer
    installed is replaced by the default, as in calls."""
    wanted = language or _DEFAULT
    gaps: list[LanguageGap] = []
    if not models.recognizes(wanted):
        text = f"No installed speech recognizer has the language {wanted}: callers are {_recognized(models, language)}"
        gaps.append(LanguageGap("language", text))
    if voice is None or not models.has_voice(voice):
        if not models.speaks(wanted):
            synthesizer, name = models.voice(None, None)
            tag = synthesizer.language_of(name) or "unknown"
            text = f"No installed voice has the language {wanted}: the agent has the voice {name} ({tag})"
            gaps.append(LanguageGap("language", text))
        return gaps
    synthesizer, name = models.voice(voice, None)
    spoken = synthesizer.language_of(name)
    if spoken is None:
        return gaps
    if language is not None and not same_language(spoken, language):
        gaps.append(LanguageGap("voice", f"The voice {name} has the language {spoken}, not {language}"))
    elif language is None and not models.recognizes_by_default(spoken):
        text = (
            f"The voice {name} has the language {spoken}; without languageHint callers are {_recognized(models, None)}"
        )
        gaps.append(LanguageGap("voice", text))
    return gaps


def _recognized(models: Catalogue, language: str | None) -> str:
    recognizer = models.stt(language)
    return f"recognized by {recognizer.name} ({', '.join(models.languages_of(recognizer))})"
