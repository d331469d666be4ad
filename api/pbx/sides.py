"""The PBXs whose side of a phone number can be printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pbx import asterisk, freepbx, freeswitch, fritzbox, kamailio, three_cx
from api.pbx.server import SipServer
from config.errors import StartupError

Lines = Callable[[Mapping[str, Any], SipServer, str | None], Iterator[str]]
"""The lines for a phone number of the API, for this server, with the number's password if it may be shown."""


@dataclass(frozen=True)
class Pbx:
    """A kind of PBX, and what it needs for each kind of trunk. `by_address` is None if it has none."""

    title: str
    introduction: str
    """What is printed before the lines."""
    registration: Lines
    by_address: Lines | None = None
    extension: bool = False
    """Its registrations are those of extensions: the user is a number."""
    own_auth_user: bool = False
    """The user of the digest may be another than that of the registration."""
    dials_user: bool = False
    """The user is in its dialplan, which runs what is in `${}` and has separators."""


_DIALLED_USER: Final = re.compile(r"[\w.+~*!=#-]+")


PBXS: Final = {
    "asterisk": Pbx(
        "Asterisk", "for Asterisk, whose existing sections may replace some of these",
        asterisk.registration, asterisk.by_address, own_auth_user=True, dials_user=True,
    ),
    "freepbx": Pbx(
        "FreePBX", "for FreePBX, by the names of its screens", freepbx.registration, freepbx.by_address, extension=True
    ),
    "freeswitch": Pbx(
        "FreeSWITCH", "for FreeSWITCH, a file each", freeswitch.registration, freeswitch.by_address, dials_user=True
    ),
    "kamailio": Pbx("Kamailio", "for Kamailio", kamailio.registration, kamailio.by_address, own_auth_user=True),
    "3cx": Pbx(
        "3CX", "for 3CX, by the names of its screens", three_cx.registration, three_cx.by_address,
        extension=True, own_auth_user=True,
    ),
    "fritzbox": Pbx("FRITZ!Box", "for a FRITZ!Box, by the names of its screens", fritzbox.registration),
}  # fmt: skip
"""By their names on the command line."""


def require_possible(name: str, number: Mapping[str, Any]) -> None:
    """Raises `StartupError` if this PBX cannot have the trunk of the phone number, whose fields may be incomplete."""
    pbx, user, auth_user = PBXS[name], number.get("sipUsername"), number.get("sipAuthUser")
    match number.get("sipMode"):
        case "ip_allowlist" if pbx.by_address is None:
            raise StartupError(f"a {pbx.title} has no trunk by address: use a registration")
        case "registration" if pbx.extension and user and not str(user).isdecimal():
            raise StartupError(f"{pbx.title} registers extensions: the SIP user is the number of one, as 700")
        case "registration" if pbx.dials_user and user and _DIALLED_USER.fullmatch(str(user)) is None:
            raise StartupError(f"{pbx.title} dials the user {user}, which may have letters, digits and .+~*!=#_- only")
        case "registration" if not pbx.own_auth_user and auth_user not in (None, "", user):
            raise StartupError(f"{pbx.title} has no user of its own for the digest: leave the authentication user out")


def pbx_side(name: str, number: Mapping[str, Any], server: SipServer, password: str | None = None) -> str | None:
    """Returns what this PBX needs for a phone number of the API; None if its trunk is not set up. `password` is that of
    the number, if it may be shown. Raises `StartupError`, as `require_possible`."""
    require_possible(name, number)
    lines = {"registration": PBXS[name].registration, "ip_allowlist": PBXS[name].by_address}.get(number["sipMode"])
    return None if lines is None else "\n".join(lines(number, server, password)) + "\n"
