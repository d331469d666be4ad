"""The names and addresses by which clients reach this machine's API."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from config.own_addresses import own_addresses
from config.settings import Settings
from config.special_addresses import Address

MAX_NAMES: Final = 100
"""Names, and addresses, of a certificate: a machine with many containers has hundreds."""
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_WILDCARDS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True)
class CertificateNames:
    """Host names, in lower case, and addresses."""

    hosts: tuple[str, ...]
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return ", ".join((*self.hosts, *map(str, self.addresses))) or "none"

    def without(self, others: CertificateNames) -> CertificateNames:
        """Returns those that are not among the others."""
        return CertificateNames(
            tuple(each for each in self.hosts if each not in others.hosts),
            tuple(each for each in self.addresses if each not in others.addresses),
        )

    def __bool__(self) -> bool:
        return bool(self.hosts or self.addresses)


def parse_names(texts: Sequence[str]) -> CertificateNames:
    """Returns host names and addresses in any order. Raises `ValueError` for a text that is neither, with the text."""
    hosts, addresses = [], []
    for text in texts:
        try:
            addresses.append(ip_address(text.strip("[]")))
        except ValueError:
            host = text.lower().rstrip(".")
            if not _HOST_NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
                raise ValueError(text) from None
            hosts.append(host)
    return CertificateNames(tuple(hosts), tuple(addresses))


def machine_names(settings: Settings, more: CertificateNames) -> CertificateNames:
    """Returns the names and addresses that the API listens on, the host of `[api] public_url`, and `more`. Link-local
    IPv6 addresses are left out, because a certificate cannot name their zone."""
    host = settings.api.host
    listening = own_addresses() if host in _WILDCARDS else ()
    texts = [host, urlsplit(settings.api.public_url or "").hostname or "", "localhost", *_host_names()]
    named = [_valid(text) for text in dict.fromkeys(texts) if text not in _WILDCARDS]
    found = sorted(map(ip_address, listening), key=lambda each: (each.version, int(each)))
    addresses = [
        *(address for each in named for address in each.addresses),
        *(each for each in found if not (each.version == 6 and each.is_link_local)),
    ]
    hosts = (host for each in named for host in each.hosts)
    return CertificateNames(
        tuple(dict.fromkeys((*more.hosts, *hosts)))[:MAX_NAMES],
        tuple(dict.fromkeys((*more.addresses, *addresses)))[:MAX_NAMES],
    )


def _host_names() -> tuple[str, ...]:
    """The name of the machine, in full, alone and as multicast DNS has it (RFC 6762)."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return name, short, f"{short}.local"


def _valid(text: str) -> CertificateNames:
    try:
        return parse_names([text])
    except ValueError:
        return CertificateNames((), ())
