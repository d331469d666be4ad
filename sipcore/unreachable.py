"""Why no connection came about, in words for an operator."""

from __future__ import annotations

from typing import Final

_WORDS: Final = {
    "wrong version number": "what answers there does not speak TLS",
    "Operation timed out (PJ_ETIMEDOUT)": "it is silent",
    "Connection timed out": "it is silent",
    "End of file (PJ_EEOF)": "it ended the connection",
    "Connection reset by peer": "it ended the connection",
    "Broken pipe": "",
    "Service Unavailable": "",
    "SSL certificate verification error (PJSIP_TLS_ECERTVERIF)": "its certificate is for another name",
}
"""For what PJSIP and OpenSSL say; everything else says enough. A pipe breaks when TCP is refused or ended: chance
decides which of the words we get."""


def no_connection(source: str, why: str, since: str = "") -> str:
    """A sentence. `why`: PJSIP's words, "" for none; `since`: a time of day."""
    words = _WORDS.get(why, why)
    return f"no connection to {source}" + (f" since {since}" if since else "") + (f": {words}" if words else "")
