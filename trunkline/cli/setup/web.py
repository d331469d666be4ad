"""`trunkline web`: HTTPS for browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.framework.commands import Command, Group, json_option
from trunkline.cli.terminal.table import print_json

if TYPE_CHECKING:
    from config.settings import Settings
    from trunkline.certificates.local_certificate import LocalCertificate
    from trunkline.certificates.names import CertificateNames

HTTPS_PORT: Final = 8443
"""The port that the text proposes."""


@click.group(cls=Group, examples=("trunkline web certificate",))
def web() -> None:
    """Set up HTTPS for browsers."""


@web.command(
    "certificate",
    cls=Command,
    examples=(
        "trunkline web certificate",
        "trunkline web certificate --name voice.lan --address 192.0.2.7",
        "trunkline web certificate --new-authority",
    ),
)
@click.option("--name", "names", metavar="NAME", multiple=True, help="a further host name of this machine")
@click.option("--address", "addresses", metavar="ADDRESS", multiple=True, help="a further address of this machine")
@click.option("--new-authority", is_flag=True, help="replace the authority: devices must trust the new one")
@json_option
def certificate(
    settings: Settings, names: tuple[str, ...], addresses: tuple[str, ...], new_authority: bool, as_json: bool
) -> int:
    """Make a certificate for HTTPS, issued by a certificate authority of this machine.

    It is for the machine's names and addresses, and for those of --name and --address, which are kept until the command
    is called with others. The server makes it, too, when [api] https_port is set, renews it, and uses a new one within
    a minute. The authority can only certify this machine's names, domains that are not on the internet, and private
    addresses.
    """
    from config.clock import utc_now
    from trunkline.certificates import local_certificate

    keep = _parse(names, addresses) if names or addresses else None
    made = local_certificate.ensure(settings, utc_now(), keep=keep, replace_authority=new_authority)
    if as_json:
        print_json([_as_json(settings, made)])
    else:
        _print(settings, made)
    return 1 if made.left_out else 0


def _parse(names: tuple[str, ...], addresses: tuple[str, ...]) -> CertificateNames:
    from trunkline.certificates.names import parse_names

    try:
        parsed = parse_names([*names, *addresses])
    except ValueError as error:
        raise click.UsageError(f"{error} is neither a host name nor an IP address") from None
    if len(parsed.addresses) != len(addresses):
        raise click.UsageError("--name takes a host name, --address an IP address")
    return parsed


def _as_json(settings: Settings, made: LocalCertificate) -> dict[str, object]:
    server = made.server
    return {
        "authority": str(settings.local_authority_file),
        "fingerprint": made.authority.fingerprint,
        "authorityExpiresAt": made.authority.certificate.not_valid_after_utc.isoformat(),
        "certificate": str(settings.local_certificate_file),
        "names": [*server.names.hosts],
        "addresses": [*map(str, server.names.addresses)],
        "leftOut": [*made.left_out.hosts, *map(str, made.left_out.addresses)],
        "expiresAt": server.certificate.not_valid_after_utc.isoformat(),
    }


def _print(settings: Settings, made: LocalCertificate) -> None:
    authority, server, api = made.authority, made.server, settings.api
    print(f"authority    {settings.local_authority_file}, until {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
    print(f"SHA-256      {authority.fingerprint}")
    print(f"certificate  {'new' if made.renewed else 'kept'}, until {server.certificate.not_valid_after_utc:%Y-%m-%d}")
    print(f"for          {server.names}")
    if made.left_out:
        print(f"not for      {made.left_out}: the authority may not certify them; --new-authority makes one that may")
    if api.tls_cert is not None:
        print(f"The server does not use it: [api] tls_cert is {api.tls_cert}.")
    elif not api.https_port:
        print(f"To use it, set [api] https_port, for example {HTTPS_PORT} (TRUNKLINE_API__HTTPS_PORT), and restart.")
    else:
        print(
            f"Devices get the authority's certificate at http://THIS-MACHINE:{api.port}/ca.crt (docs/how-to/https.md)."
        )
