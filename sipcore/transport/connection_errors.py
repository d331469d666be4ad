"""Transport errors of PJSIP, OpenSSL and the system, in words for the operator."""

from __future__ import annotations

import errno
import os
from typing import Final

_WORDS: Final = {
    "wrong version number": "what answers there does not speak TLS",
    "Operation timed out (PJ_ETIMEDOUT)": "it is silent",
    "End of file (PJ_EEOF)": "it ended the connection",
    "Service Unavailable": "",
    "SSL certificate verification error (PJSIP_TLS_ECERTVERIF)": "its certificate is for another name",
}
"""For errors of PJSIP and OpenSSL; other texts are clear as they are. A pipe breaks when TCP is refused or ended, and
chance decides which of the errors is reported."""
_SYSTEM: Final = {
    errno.ETIMEDOUT: "it is silent",
    errno.ECONNRESET: "it ended the connection",
    errno.EPIPE: "",
    errno.ECONNREFUSED: "nothing listens there",
    errno.EINVAL: "this machine cannot send to that address from where SIP listens",
    errno.EACCES: "this machine does not send to that address",
    errno.EPERM: "the firewall of this machine forbids it",
    errno.ENETUNREACH: "this machine has no route to it",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.EADDRNOTAVAIL: "this machine has no address to send from",
    errno.EAFNOSUPPORT: "this machine does not speak that version of IP",
    errno.EMSGSIZE: "the message is too long for one packet",
    errno.ENOBUFS: "this machine has no room for packets",
}
"""For errors of the system (errno(3)), by the texts of its C library."""
_ALL: Final = _WORDS | {os.strerror(number): words for number, words in _SYSTEM.items()}


def operator_words(why: str) -> str:
    """An error text of PJSIP, OpenSSL or the system, in words for the operator; "" when it adds nothing."""
    return _ALL.get(why, why)


def connection_failure(source: str, why: str, since: str = "") -> str:
    """`no connection to 192.0.2.1 since 12:00:00Z: ...`. `why`: the error text, "" for none; `since`: a time of day."""
    words = operator_words(why)
    return f"no connection to {source}" + (f" since {since}" if since else "") + (f": {words}" if words else "")
