"""A local certificate authority (RFC 5280) whose certificates are valid for this machine's names and for private
addresses only: whoever steals its key cannot pass for a site on the internet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_network
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from config.special_addresses import Address, Network
from trunkline.certificates.names import CertificateNames

AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 90
"""Browsers refuse long ones: Safari those of more than 825 days."""
CLOCK_SKEW: Final = timedelta(hours=1)
"""A certificate is valid from this long before its issue, for devices whose clock is slow."""
PRIVATE_SUFFIXES: Final = ("localhost", "local", "lan", "home", "home.arpa", "internal", "intranet", "private", "corp")
"""Domains that are not on the internet (RFC 6761, 6762, 8375 and usage)."""
PRIVATE_NETWORKS: Final[tuple[Network, ...]] = tuple(
    ip_network(each)
    for each in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16",
        "::1/128", "fc00::/7", "fe80::/10",
    )
)  # fmt: skip
OWN_IPV6_PREFIX: Final = 64
"""The prefix of a public IPv6 address of this machine that is permitted: its last half may change daily (RFC 8981)."""


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def from_pem(cls, content: bytes) -> Issued:
        """Raises `ValueError` if the content is not a key with its certificate."""
        key, certificate = load_pem_private_key(content, password=None), x509.load_pem_x509_certificate(content)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(certificate, key)

    def to_pem(self) -> bytes:
        """The key, then the certificate."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + self.certificate.public_bytes(Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate: hexadecimal bytes with colons, as browsers show it."""
        return self.certificate.fingerprint(hashes.SHA256()).hex(":").upper()

    @property
    def names(self) -> CertificateNames:
        """The names and addresses that a server's certificate is for."""
        san = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (each for each in san.get_values_for_type(x509.IPAddress))
        return CertificateNames(tuple(san.get_values_for_type(x509.DNSName)), tuple(addresses))  # type: ignore[arg-type]


def new_authority(names: CertificateNames, label: str, now: datetime) -> Issued:
    """Make an authority for private names and addresses, and for `names`, its public ones included. `label` tells
    people which machine it is of."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Trunkline"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"Trunkline on {label}"[:64]),
    ])  # fmt: skip
    permitted = [*map(x509.DNSName, dict.fromkeys((*PRIVATE_SUFFIXES, *names.hosts))), *_permitted_networks(names)]
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(certificate, key)


def issue(authority: Issued, names: CertificateNames, now: datetime) -> Issued:
    """Issue a server's certificate. It does not outlive the authority, and `names` must be permitted."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    alternative_names = [*map(x509.DNSName, names.hosts), *map(x509.IPAddress, names.addresses)]
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        x509.CertificateBuilder(issuer.subject, None, key.public_key(), x509.random_serial_number())
        .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Trunkline")]))
        .not_valid_before(max(now - CLOCK_SKEW, issuer.not_valid_before_utc))
        .not_valid_after(min(now + timedelta(days=SERVER_DAYS), issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Issued(certificate, key)


def permitted_names(authority: Issued, names: CertificateNames) -> CertificateNames:
    """Returns those of the names that the authority may issue certificates for."""
    permitted = authority.certificate.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees
    suffixes = [each.value for each in permitted or () if isinstance(each, x509.DNSName)]
    networks = [each.value for each in permitted or () if isinstance(each, x509.IPAddress)]
    return CertificateNames(
        tuple(host for host in names.hosts if any(f".{host}".endswith(f".{suffix}") for suffix in suffixes)),
        tuple(address for address in names.addresses if any(address in network for network in networks)),  # type: ignore[operator]
    )


def _permitted_networks(names: CertificateNames) -> Iterable[x509.IPAddress]:
    """The private networks, and the machine's addresses outside of them."""
    own = (_own_network(each) for each in names.addresses if not any(each in network for network in PRIVATE_NETWORKS))
    return map(x509.IPAddress, dict.fromkeys((*PRIVATE_NETWORKS, *own)))


def _own_network(address: Address) -> Network:
    if isinstance(address, IPv6Address):
        return ip_network((int(address), OWN_IPV6_PREFIX), strict=False)
    return ip_network(address)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=is_authority, crl_sign=is_authority, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
