"""Certificates for a server and keys for sites, as Flower's TLS and node authentication take them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scarlet.errors import ConfigError

CA, SERVER, SERVER_KEY = "ca.pem", "server.pem", "server.key"
_CA_KEY = "ca.key"
_LOOPBACK = ("localhost", "127.0.0.1")
_CLOCKS = timedelta(hours=1)  # a site's clock may be behind that of the machine that made the certificate


def make_server_keys(directory: Path, addresses: Sequence[str], days: int) -> None:
    """A certificate authority for a trial, and a server certificate for some host names and IP addresses.

    The server certificate is valid for this machine's loopback, too. Only ca.pem is for the sites.
    """
    names = list(dict.fromkeys([*map(_host_name, addresses), *_LOOPBACK]))
    if not 1 <= days <= 3650:
        raise ConfigError(f"--days must be from 1 to 3650, got {days}")
    files = [directory / name for name in (CA, _CA_KEY, SERVER, SERVER_KEY)]
    _refuse_existing(files)
    ca_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _named("SCARLET trial CA")
    ca = (
        _certificate(issuer, issuer, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .sign(ca_key, SHA384())
    )
    server = (
        _certificate(_named(names[0][:64]), issuer, server_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, SHA384())
    )

    pkcs8 = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    directory.mkdir(parents=True, exist_ok=True)
    _write_new(files[0], ca.public_bytes(Encoding.PEM), 0o644)
    _write_new(files[1], ca_key.private_bytes(*pkcs8), 0o600)
    _write_new(files[2], server.public_bytes(Encoding.PEM), 0o644)
    _write_new(files[3], server_key.private_bytes(*pkcs8), 0o600)


def make_site_key(path: Path) -> Path:
    """A site's own key (OpenSSH, ECDSA P-384), and beside it PATH.pub, the half that travels to the server."""
    public = path.with_name(f"{path.name}.pub")
    _refuse_existing((path, public))
    if not path.parent.is_dir():
        raise ConfigError(f"FILE must be in a directory that exists, and {path.parent} does not; make it first")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    half = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write_new(path, private, 0o600)
    _write_new(public, half + b" " + path.name.replace(" ", "-").encode() + b"\n", 0o644)
    return public


def check_certificate(path: Path, host: str | None = None) -> datetime:
    """Refuse a certificate that is not valid today, or not for a host; the day on which it ends."""
    certificate = _read_certificate(path)
    now, begins = datetime.now(UTC), certificate.not_valid_before_utc
    ends: datetime = certificate.not_valid_after_utc
    remedy = "make a new one with scarlet flower keys, and give its ca.pem to the sites"
    if now >= ends:
        raise ConfigError(f"{path} expired on {ends:%Y-%m-%d}, and today is {now:%Y-%m-%d}; {remedy}")
    if now < begins:
        raise ConfigError(
            f"{path} is valid from {begins:%Y-%m-%d %H:%M} UTC, and now it is {now:%H:%M}; check the clock"
        )
    if host is not None and not _covers(certificate, host):
        raise ConfigError(
            f"{path} is not for {host}, which --address names: it is for {', '.join(_names(certificate))}; {remedy}"
        )
    return ends


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse a private key that is not the one of a certificate."""
    if not key.is_file():
        raise ConfigError(f"{key} is missing; a server needs its private key beside {certificate.name}")
    try:
        private = load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{key} must be a private key in PEM format without a password") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != _read_certificate(certificate).public_key().public_bytes(*form):
        raise ConfigError(f"{key} is not the key of {certificate}; put the two that belong together in one directory")


def check_site_key(path: Path) -> None:
    """Refuse what is not a private key of a site."""
    if not path.is_file():
        raise ConfigError(f"--key {path} is not there; make it with scarlet flower site-key {path}")
    try:
        right = isinstance(load_ssh_private_key(path.read_bytes(), None), ec.EllipticCurvePrivateKey)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        right = False
    if not right:
        raise ConfigError(
            f"--key {path} must be an ECDSA private key in OpenSSH format without a password; "
            "make one with scarlet flower site-key FILE"
        )


def read_public_key(path: Path) -> bytes:
    """A site's public key, in the form in which Flower keeps it."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{path} must be an ECDSA public key in OpenSSH format, as scarlet flower site-key makes")
    content: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return content


def _read_certificate(path: Path) -> x509.Certificate:
    if not path.is_file():
        raise ConfigError(f"{path} is missing; make it with scarlet flower keys, or copy it here")
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ConfigError(f"{path} must be a certificate in PEM format; check the path") from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host_name(address: str) -> str:
    if _ip(address) is None and not all(part and part.replace("-", "").isalnum() for part in address.split(".")):
        raise ConfigError(f"--address must be host names and IP addresses without a port, got {address!r}")
    return address


def _ip(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _alternative(name: str) -> x509.GeneralName:
    ip = _ip(name)
    return x509.DNSName(name) if ip is None else x509.IPAddress(ip)


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _covers(certificate: x509.Certificate, host: str) -> bool:
    if ip := _ip(host):
        return str(ip) in _names(certificate)
    wildcard = f"*.{host.partition('.')[2]}"
    return any(name.lower() in (host.lower(), wildcard.lower()) for name in _names(certificate))


def _refuse_existing(files: Sequence[Path]) -> None:
    for file in files:
        if file.exists():
            raise ConfigError(f"{file} is there already, and a key is never overwritten; choose another name")


def _write_new(path: Path, content: bytes, mode: int) -> None:
    # The mode is set at creation: a private key is never readable by others, not even for an instant.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
