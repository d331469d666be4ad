"""The fields of a FRITZ!Box, as in docs/how-to/pbx/fritzbox.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.pbx.screens import screen
from api.pbx.server import SipServer, shown


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for an IP telephone, as which Trunkline registers."""
    device = "Telefon (mit und ohne Anrufbeantworter) > LAN/WLAN (IP-Telefon)"
    yield from screen(
        f"Telefonie > Telefoniegeräte > Neues Gerät einrichten > {device}",
        {"Name": "Trunkline", "Benutzername": number["sipUsername"], "Kennwort": shown(password)},
    )
