"""English phrases to spot in noise. People hardly say them, and they are long: short ones are found in any noise.
Phrases that people say nearly so ("leave a message", "say your name") do not belong here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseKind

_PHRASES: Final[Mapping[PhraseKind, tuple[str, ...]]] = {
    PhraseKind.MAILBOX_UNAVAILABLE: (
        "the mailbox is full",
        "cannot accept any messages",
        "has not been set up",
        "is not in service",
        "no longer in service",
        "has been disconnected",
        "check the number and dial again",
        "cannot be completed as dialed",
    ),
    PhraseKind.CALL_SCREENING: (
        "record your name and reason",
        "state your name and the reason",
        "if this person is available",
        "person you're calling is using",
        "screening service",
        "call is being screened",
    ),
    PhraseKind.VOICEMAIL: (
        "leave a message after the",
        "leave your message after the",
        "wait for the beep",
        "record your message",
        "voice messaging system",
        "been forwarded to an automated",
        "has been forwarded to",
        "the voice mailbox of",
        "reached the voicemail of",
        "not available to take your call",
        "unable to take your call",
        "unable to answer your call",
        "the person at extension",
        "hang up or press the",
        "or press the pound key",
    ),
    PhraseKind.MENU: (
        "listen carefully as our",
        "menu options have changed",
        "repeat these options",
        "for sales press",
        "for support press",
        "for service press",
        "for customer service press",
        "for billing press",
        "for english press",
        "questions press",
        "press one for",
        "press two for",
        "your party's extension",
        "dial it at any time",
    ),
    PhraseKind.HOLD_QUEUE: (
        "your call is important",
        "your call is very important",
        "all of our agents are",
        "all our representatives are",
        "agents are currently",
        "representatives are currently",
        "next available representative",
        "next available agent",
        "in the order it was received",
        "please continue to hold",
        "your call will be answered",
        "estimated waiting time",
        "estimated wait time",
        "call may be recorded",
        "calls may be monitored",
        "quality and training purposes",
    ),
}
ENGLISH_SPOTTED: Final = {phrase: kind for kind, phrases in _PHRASES.items() for phrase in phrases}
"""What each phrase proves."""
