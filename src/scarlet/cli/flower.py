"""`scarlet flower new|simulate|keys|site-key|serve|join`: the federation across machines, on Flower."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typing_extensions import Doc

from scarlet.cli.options import Command, flag, options_of
from scarlet.errors import ConfigError, unknown

T = TypeVar("T")

HELP = """usage: scarlet flower COMMAND [options]

The same federation across real machines, on Flower: a server, and a node for
each site.

  new       write an app, which says what is run: scarlet flower new DIR
  simulate  run an app in Flower's simulation, on this machine: simulate APP
  keys      make trial certificates: scarlet flower keys DIR --address HOST
  site-key  make a site's own key, on the site: scarlet flower site-key FILE
  serve     run an app, on the server: scarlet flower serve APP --keys DIR ...
  join      take part, on a site: scarlet flower join --superlink HOST:PORT ...

'scarlet flower COMMAND --help' lists the options of a command."""


@dataclass(frozen=True, slots=True)
class NewOptions:
    """The options of `scarlet flower new`."""

    method: Annotated[str, Doc("method of the federation")] = "scarlet"
    trial: Annotated[
        int | None, Doc("write the embedded data for so many sites into DIR/data, for a trial (default: no data)")
    ] = None


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options of `scarlet flower simulate`."""

    nodes: Annotated[int | None, Doc("nodes to simulate (default: as many as the app has clients)")] = None
    home: Annotated[
        Path | None,
        Doc("directory of this command: database, logs, configuration (default: APP-simulation, beside APP)"),
    ] = None
    run_config: Annotated[
        str | None, Doc("options of the app to change, such as 'rounds=5 seed=1' (default: none)")
    ] = None


@dataclass(frozen=True, slots=True)
class KeysOptions:
    """The options of `scarlet flower keys`."""

    address: Annotated[str, Doc("host names and IP addresses by which sites reach the server: HOST[,HOST...]")] = (
        "127.0.0.1"
    )
    days: Annotated[int, Doc("days for which the certificates are valid")] = 365


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `scarlet flower serve`."""

    address: Annotated[str, Doc("HOST:PORT that sites connect to")] = "127.0.0.1:9092"
    keys: Annotated[Path | None, Doc("directory with server.pem and server.key; required, but for --insecure")] = None
    sites: Annotated[
        Path | None, Doc("directory with the public key of each site, NAME.pub; required, but for --insecure")
    ] = None
    home: Annotated[
        Path | None,
        Doc(
            "directory of this command: the SuperLink's database, logs, configuration (default: APP-server, beside APP)"
        ),
    ] = None
    run_config: Annotated[
        str | None, Doc("options of the app to change, such as 'rounds=5 seed=1' (default: none)")
    ] = None
    insecure: Annotated[bool, Doc("no TLS and no authentication: for a trial on one machine")] = False
    no_proxy: Annotated[bool, Doc("no nginx in front: the SuperLink serves this machine only")] = False
    dry_run: Annotated[bool, Doc("stop after the checks")] = False


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The options of `scarlet flower join`."""

    superlink: Annotated[str, Doc("HOST:PORT of the server, its --address")] = "127.0.0.1:9092"
    client: Annotated[int | None, Doc("number of this site among all, from 0; required")] = None
    data: Annotated[str | None, Doc("the site's own data: npz:FILE, or folder:PATH of images; required")] = None
    state: Annotated[Path | None, Doc("directory that keeps model, cache and last reply; required")] = None
    public: Annotated[
        str | None, Doc("the site's copy of the public dataset, npz:FILE (default: as the app names it)")
    ] = None
    policy: Annotated[Path | None, Doc("rules of this site, a TOML file (default: none)")] = None
    ca: Annotated[
        Path | None, Doc("ca.pem that vouches for the server (default: the certificates of this machine)")
    ] = None
    key: Annotated[Path | None, Doc("the site's own key; required, but for --insecure")] = None
    insecure: Annotated[bool, Doc("no TLS and no authentication: for a trial on one machine")] = False
    dry_run: Annotated[bool, Doc("stop after the checks")] = False


def main(argv: Sequence[str]) -> int:
    """Run one of the commands."""
    command, *rest = argv or ["--help"]
    if command == "--help":
        print(HELP)
        return 0
    if command not in COMMANDS:
        raise unknown("flower command", command, COMMANDS)
    # What Flower's processes print comes in between, so that no line may wait for the next.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return COMMANDS[command](rest)


def _new(argv: Sequence[str]) -> int:
    about = (
        "Write a Flower app into DIR: a server_app.py and a client_app.py of a few lines, and every option of a run in "
        "pyproject.toml. It runs in Flower's simulation as it is, and across machines with private = 'sites'."
    )
    words, options = _parsed("scarlet flower new DIR", about, NewOptions, argv)
    directory = Path(_one(words, "new", "DIR, the directory to make"))
    from scarlet.flower.template import new_app, new_trial

    if options.trial is None:
        new_app(directory, options.method)
    else:
        new_trial(directory, options.method, options.trial)
    print(f"{directory / 'pyproject.toml'}: the options; {directory / 'federation'}: the apps of server and clients")
    return 0


def _simulate(argv: Sequence[str]) -> int:
    about = (
        "Run APP in Flower's simulation (Ray) on this machine. The command ends with the run; the exit code is 0 if "
        "the run completed."
    )
    words, options = _parsed("scarlet flower simulate APP", about, SimulateOptions, argv)
    app = Path(_one(words, "simulate", "APP, the directory of an app")).resolve()
    home = _absolute(options.home) or app.with_name(f"{app.name}-simulation")
    from scarlet.flower.version import check_flower

    check_flower()
    from scarlet.flower.superlink import simulate

    return simulate(app, home, options.run_config or "", options.nodes)


def _keys(argv: Sequence[str]) -> int:
    about = (
        "Make a certificate authority for a trial (ca.pem, ca.key) and a server certificate (server.pem, server.key) "
        "in DIR. Sites need ca.pem and nothing else of it; the two keys stay where they are."
    )
    words, options = _parsed("scarlet flower keys DIR", about, KeysOptions, argv)
    directory = Path(_one(words, "keys", "DIR, the directory to make"))
    from scarlet.flower.version import check_flower

    check_flower()
    from scarlet.flower.keys import CA, make_server_keys

    names = [name.strip() for name in options.address.split(",")]
    make_server_keys(directory, names, options.days)
    print(f"{directory / CA}: for every site; the other files of {directory} stay on the server")
    return 0


def _site_key(argv: Sequence[str]) -> int:
    about = (
        "Make a site's own key: FILE, which never leaves the site, and FILE.pub, which goes to the server's --sites."
    )
    words, _ = _parsed("scarlet flower site-key FILE", about, None, argv)
    path = Path(_one(words, "site-key", "FILE, the key to make"))
    from scarlet.flower.version import check_flower

    check_flower()
    from scarlet.flower.keys import make_site_key

    public = make_site_key(path)
    print(f"{public}: for whoever runs the server; {path} stays on this site")
    return 0


def _serve(argv: Sequence[str]) -> int:
    about = (
        "Check everything, then start a SuperLink on loopback and nginx in front of it, which lets sites through and "
        "nobody else, register the sites' keys, and run APP (scarlet flower new makes one). The command ends with the "
        "run; the exit code is 0 if the run completed. Start it again after a crash: sites that wait go on with it."
    )
    words, options = _parsed("scarlet flower serve APP", about, ServeOptions, argv)
    app = Path(_one(words, "serve", "APP, the directory of an app")).resolve()
    if options.insecure and (options.keys or options.sites):
        raise ConfigError("--insecure has no use for --keys and --sites; leave it out, or leave them out")
    if not options.insecure and options.keys is None:
        raise ConfigError(
            "--keys must be given, a directory that scarlet flower keys has made; or --insecure, for a trial on one "
            "machine"
        )
    from scarlet.flower.version import check_flower

    check_flower()
    from scarlet.flower.addresses import Address
    from scarlet.flower.superlink import Serving, check, serve

    address = Address.read("--address", options.address)
    if options.insecure and not address.is_loopback:
        raise ConfigError(
            f"--insecure is for a trial on one machine, and --address is {address}; use --keys and --sites"
        )
    serving = Serving(
        app,
        address,
        _absolute(options.keys),
        _absolute(options.sites),
        _absolute(options.home) or app.with_name(f"{app.name}-server"),
        options.run_config or "",
        proxy=not options.no_proxy,
    )
    if options.dry_run:
        check(serving)
        return 0
    return serve(serving)


def _join(argv: Sequence[str]) -> int:
    about = (
        "Check everything, then start a SuperNode: the site's part of the federation. It waits for runs, and for a "
        "server that is away, until it is ended (Ctrl-C)."
    )
    _, options = _parsed("scarlet flower join", about, JoinOptions, argv)
    for name in ("client", "data", "state"):
        if getattr(options, name) is None:
            raise ConfigError(f"{flag(name)} must be given; see scarlet flower join --help")
    if options.insecure and (options.ca or options.key):
        raise ConfigError("--insecure has no use for --ca and --key; leave it out, or leave them out")
    if not options.insecure and options.key is None:
        raise ConfigError(
            "--key must be given, a key that scarlet flower site-key has made; or --insecure for a trial on one machine"
        )
    from scarlet.flower.version import check_flower

    check_flower()
    from scarlet.flower.addresses import Address
    from scarlet.flower.supernode import Joining, check, join

    assert options.client is not None and options.data is not None and options.state is not None
    joining = Joining(
        Address.read("--superlink", options.superlink),
        options.client,
        _dataset(options.data),
        options.state.absolute(),
        None if options.public is None else _dataset(options.public),
        _absolute(options.policy),
        _absolute(options.ca),
        _absolute(options.key),
    )
    check(joining)
    return 0 if options.dry_run else join(joining)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "new": _new,
    "simulate": _simulate,
    "keys": _keys,
    "site-key": _site_key,
    "serve": _serve,
    "join": _join,
}


def _parsed(usage: str, about: str, kind: type[T] | None, argv: Sequence[str]) -> tuple[list[str], T | Any]:
    words, given = Command(usage, about, {} if kind is None else options_of(kind), named_by=3).parse(argv)
    return words, None if kind is None else kind(**given)


def _one(words: Sequence[str], command: str, what: str) -> str:
    if len(words) != 1:
        raise ConfigError(f"scarlet flower {command} takes {what}, before the options, got {len(words)} words")
    return words[0]


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()


def _dataset(text: str) -> str:
    """A dataset as --private names it, with an absolute path: a node's processes are started elsewhere."""
    from scarlet.flower.options import with_prefix

    kind, _, path = with_prefix(text).partition(":")
    return f"{kind}:{Path(path).expanduser().absolute()}"
