"""Keys are private, are never overwritten, and are what Flower takes; certificates are checked before they are used."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flwr.cli.supernode.register import try_load_public_key
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode, _try_setup_client_authentication

from scarlet.errors import ConfigError
from scarlet.flower import keys
from scarlet.flower.keys import (
    check_certificate,
    check_pair,
    check_site_key,
    make_server_keys,
    make_site_key,
    read_public_key,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_server_keys(folder, ["fl.example.org", "10.1.2.3"], days=30)
    return folder


def at(moment: datetime) -> type[datetime]:
    """A clock that has stopped."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return moment

    return Stopped


def test_private_keys_are_for_their_owner_only_and_the_rest_can_be_read(made: Path, tmp_path: Path) -> None:
    make_site_key(tmp_path / "site")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (*made.iterdir(), *tmp_path.iterdir())}
    private, public = 0o600, 0o644
    assert modes == {
        "ca.pem": public,
        "ca.key": private,
        "server.pem": public,
        "server.key": private,
        "site": private,
        "site.pub": public,
    }


def test_openssl_accepts_the_server_certificate_by_the_ca(made: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made / "server.pem", made / "server.key")
    client = ssl.create_default_context(cafile=made / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("fl.example.org", "10.1.2.3", "localhost", "127.0.0.1"):
        shake_hands(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "elsewhere.example.org")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname=host)]
    done: set[int] = set()
    for _ in range(10):
        for number in (1, 0):
            try:
                ends[number].do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
    assert done == {0, 1}


def test_flower_takes_both_halves_of_a_site_key_and_keeps_the_key_as_we_read_it(tmp_path: Path) -> None:
    public = make_site_key(tmp_path / "hospital")
    arguments = _parse_args_run_supernode().parse_args(["--auth-supernode-private-key", str(tmp_path / "hospital")])
    private, its_public = _try_setup_client_authentication(arguments)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == its_public
    assert try_load_public_key(public) == read_public_key(public)
    check_site_key(tmp_path / "hospital")


def test_a_key_is_never_overwritten(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.pem is there already"):
        make_server_keys(made, ["127.0.0.1"], days=30)
    (tmp_path / "server.key").touch()
    with pytest.raises(ConfigError, match=r"server\.key is there already"):
        make_server_keys(tmp_path, ["127.0.0.1"], days=30)
    assert [path.name for path in tmp_path.iterdir()] == ["server.key"]
    (tmp_path / "site.pub").touch()
    with pytest.raises(ConfigError, match=r"site\.pub is there already"):
        make_site_key(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_certificate_is_refused_after_its_last_day_and_before_its_first(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = check_certificate(made / "server.pem", "fl.example.org")
    assert timedelta(days=29) < ends - datetime.now(UTC) < timedelta(days=31)
    monkeypatch.setattr(keys, "datetime", at(ends))
    with pytest.raises(ConfigError, match=r"server\.pem expired on"):
        check_certificate(made / "server.pem")
    monkeypatch.setattr(keys, "datetime", at(ends - timedelta(days=400)))
    with pytest.raises(ConfigError, match=r"server\.pem is valid from"):
        check_certificate(made / "server.pem")


def test_a_certificate_is_refused_for_another_host_and_with_another_key(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not for 10\.9\.9\.9"):
        check_certificate(made / "server.pem", "10.9.9.9")
    make_server_keys(tmp_path, ["127.0.0.1"], days=1)
    check_pair(tmp_path / "server.pem", tmp_path / "server.key")
    with pytest.raises(ConfigError, match=r"is not the key of"):
        check_pair(made / "server.pem", tmp_path / "server.key")


@pytest.mark.parametrize("address", ["10.0.0.1:9092", "", "https://fl.example.org", "a b"])
def test_what_is_neither_a_host_name_nor_an_ip_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--address must be host names and IP addresses without a port"):
        make_server_keys(tmp_path / "keys", [address], days=1)
    assert not (tmp_path / "keys").exists()


def test_what_is_no_key_is_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there; make it with scarlet flower site-key"):
        check_site_key(tmp_path / "none")
    for wrong in (made / "ca.pem", made / "server.key"):
        with pytest.raises(ConfigError, match="must be an ECDSA private key in OpenSSH format"):
            check_site_key(wrong)
    with pytest.raises(ConfigError, match="must be an ECDSA public key in OpenSSH format"):
        read_public_key(made / "ca.pem")
    with pytest.raises(ConfigError, match="must be a certificate in PEM format"):
        check_certificate(made / "server.key")
