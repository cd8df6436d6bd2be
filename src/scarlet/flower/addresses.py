"""Addresses, HOST:PORT: where to listen, which ports are free, and whether a SuperLink answers."""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from scarlet.errors import ConfigError

_PATIENCE = 5.0  # seconds for a connection that is to prove that somebody is there


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; an IPv6 host is written in brackets."""

    host: str
    port: int

    @classmethod
    def read(cls, option: str, text: str) -> Address:
        """The address that an option names."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        if not host or (":" in host and not text.startswith("[")) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"{option} must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092, got {text!r}")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def listening(address: Address) -> Address:
    """Where to listen so that sites find a server at an address.

    There, or on all interfaces if it is not of this machine but of a router, say.
    """
    if address.host in ("0.0.0.0", "::"):
        raise ConfigError(
            f"--address must be what sites connect to, and {address.host} is no machine; use a name or an IP"
        )
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        raise ConfigError(f"--address {address} has no such host: {address.host}; check the name") from None
    for family, kind, _, _, where in found:
        if ip_address(where[0]).is_loopback and not address.is_loopback:
            continue  # many a machine has 127.0.1.1 for its own name, where no site would find it
        try:
            _bind(family, kind, where)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            raise _not_free(address, error) from None
        return Address(str(where[0]), address.port)
    everywhere = Address("0.0.0.0", address.port)
    try:
        _bind(socket.AF_INET, socket.SOCK_STREAM, (everywhere.host, everywhere.port))
    except OSError as error:
        raise _not_free(address, error) from None
    return everywhere


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_superlink(address: Address, ca: Path | None, *, insecure: bool) -> None:
    """Refuse an address at which no SuperLink answers, or one that the CA does not vouch for."""
    option = f"--superlink {address}"
    try:
        context = None if insecure else ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ConfigError(f"--ca {ca} holds no certificate; use the ca.pem of the server") from None
    try:
        status = ask(address, "/v1/fleet/pull-messages", context)
    except ssl.SSLCertVerificationError as error:
        whose = f"--ca {ca}" if ca else "this machine's certificates"
        raise ConfigError(
            f"{option} has a certificate that {whose} cannot verify: {error.verify_message}; "
            "use the ca.pem of the server"
        ) from None
    except ssl.SSLError as error:
        raise ConfigError(
            f"{option} does not speak TLS ({error.reason}); is the server started with --insecure?"
        ) from None
    except socket.gaierror:
        raise ConfigError(f"{option} has no such host: {address.host}; check the name") from None
    except OSError as error:
        why = error.strerror or "no answer"
        raise ConfigError(
            f"{option} does not answer: {why}; start scarlet flower serve first, or check address and firewall"
        ) from None
    except HTTPException:
        status = 0
    # A route that takes POST only: a SuperLink says so (405); nginx says 400 to plain HTTP on its TLS port.
    if status == 400 and insecure:
        raise ConfigError(f"{option} speaks TLS; use --ca and --key instead of --insecure")
    if status == 502:
        raise ConfigError(f"{option} is a proxy whose SuperLink is not there yet; try again in some seconds")
    if status != 405:
        raise ConfigError(f"{option} answers, but is no SuperLink's Fleet API (HTTP status {status}); check the port")


def ask(address: Address, path: str, context: ssl.SSLContext | None) -> int:
    """The status of a GET, with TLS if there is a context."""
    if context is None:
        connection = HTTPConnection(address.host, address.port, timeout=_PATIENCE)
    else:
        connection = HTTPSConnection(address.host, address.port, timeout=_PATIENCE, context=context)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def _bind(family: int, kind: int, where: Any) -> None:
    with closing(socket.socket(family, kind)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)


def _not_free(address: Address, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"--address {address} cannot be used: port {address.port} is in use; choose another port")
    return ConfigError(f"--address {address} cannot be used: {error.strerror}; choose another port")
