"""Descriptions of transport errors of PJSIP, OpenSSL and the system, for the operator."""

from __future__ import annotations

import errno
import os
from typing import Final

_LIBRARY_ERRORS: Final = {
    "wrong version number": "what answers there does not speak TLS",
    "Operation timed out (PJ_ETIMEDOUT)": "it is silent",
    "End of file (PJ_EEOF)": "it ended the connection",
    "Service Unavailable": "",
    "SSL certificate verification error (PJSIP_TLS_ECERTVERIF)": "its certificate is for another name",
}
"""By error text of PJSIP and OpenSSL; other texts are left as they are. Of a refused or closed TCP connection, any of
several errors may be reported, a broken pipe among them."""
_SYSTEM_ERRORS: Final = {
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
    errno.EAFNOSUPPORT: "this machine does not support that version of IP",
    errno.EMSGSIZE: "the message is too long for one packet",
    errno.ENOBUFS: "this machine is out of packet buffers",
}
"""By errno(3); the C library's text of each is the key below."""
_DESCRIPTIONS: Final = _LIBRARY_ERRORS | {
    os.strerror(number): description for number, description in _SYSTEM_ERRORS.items()
}


def describe_error(text: str) -> str:
    """Describe an error, given the text of PJSIP, OpenSSL or the system; "" when that adds no information."""
    return _DESCRIPTIONS.get(text, text)


def describe_connection_failure(source: str, why: str, since: str = "") -> str:
    """`no connection to 192.0.2.1 since 12:00:00Z: ...`. `why`: the error text, "" for none; `since`: a time of day."""
    cause = describe_error(why)
    return f"no connection to {source}" + (f" since {since}" if since else "") + (f": {cause}" if cause else "")
