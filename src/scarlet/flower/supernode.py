"""`scarlet flower join`: one SuperNode, which takes part for one site."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from scarlet.errors import ConfigError
from scarlet.flower.addresses import Address, check_superlink, free_port
from scarlet.flower.keys import check_certificate, check_site_key
from scarlet.flower.processes import (
    FlowerError,
    Processes,
    end_left_over,
    ended_by_signals,
    environment,
    private,
    program,
)
from scarlet.flower.version import check_flower

# A SuperLink takes a node that was killed for online, and refuses it, until two heartbeats of 30 s are missing.
_UNTIL_OFFLINE = 75.0
_RETRY = 5.0
_REFUSED, _ONLINE = "Failed to activate SuperNode", "SuperNode ID:"  # what a SuperNode prints


@dataclass(frozen=True, slots=True)
class Joining:
    """What `join` is asked to do."""

    superlink: Address
    client: int
    data: str  # npz:FILE or folder:PATH, as is `public`
    state: Path
    public: str | None
    policy: Path | None
    ca: Path | None
    key: Path | None  # None: without TLS and without authentication


def check(joining: Joining) -> None:
    """Refuse what cannot take part, and say what takes part."""
    check_flower()
    if joining.client < 0:
        raise ConfigError(f"--client must be 0 or more, the number of this site among all, got {joining.client}")
    if joining.key is not None:
        check_site_key(joining.key)
    if joining.ca is not None:
        ends = check_certificate(joining.ca)
        print(f"ca: {joining.ca}, until {ends:%Y-%m-%d}")
    _check_data(joining)
    _check_state(joining.state)
    if joining.policy is not None:
        from scarlet.flower.policy import Policy

        print(f"policy: {joining.policy}: {Policy.read(joining.policy)}")
    check_superlink(joining.superlink, joining.ca, insecure=joining.key is None)
    print(f"superlink: {joining.superlink} answers")


def join(joining: Joining) -> int:
    """Run a SuperNode until it ends or is ended; its exit code."""
    home = joining.state / "flower"
    with private(home, "--state"), ended_by_signals():
        mark = str(home)
        end_left_over(mark)  # of a `join` that was killed
        # The file is there while a node is online: where it is left, the node was killed, and the SuperLink not told.
        online = home / "online"
        until = time.monotonic() + (_UNTIL_OFFLINE if online.exists() else 0)
        processes = Processes(mark, environment(mark, home))
        try:
            while _refused(processes, joining, online):
                if time.monotonic() > until:
                    raise FlowerError(
                        f"--superlink {joining.superlink} refuses this site: its key is not registered there, or a "
                        "node with the same key is online; send the .pub file of --key to whoever runs the server"
                    )
                print("the SuperLink still takes this site for online, since it was killed; trying again")
                time.sleep(_RETRY)
        finally:
            processes.end()
            if processes.codes and processes.codes[-1] == 0:
                online.unlink(missing_ok=True)
        code = processes.codes[-1]
        return code if code >= 0 else 128 - code


def command(joining: Joining) -> list[str]:
    """How the SuperNode is started; the port is its own, for the processes that it starts."""
    line = [program("flower-supernode"), "--superlink", str(joining.superlink), "--host", "127.0.0.1"]
    line += ["--port", str(free_port()), "--node-config", _node_config(joining)]
    if joining.key is None:
        return [*line, "--insecure"]
    if joining.ca is not None:
        line += ["--root-certificates", str(joining.ca)]
    return [*line, "--auth-supernode-private-key", str(joining.key)]


def _refused(processes: Processes, joining: Joining, online: Path) -> bool:
    """Run a SuperNode to its end, and show what it prints; whether the SuperLink has refused it."""
    refusals: list[str] = []

    def see(line: str) -> None:
        if _REFUSED in line:
            refusals.append(line)
        if _ONLINE in line:
            online.touch()

    return processes.show(processes.start(command(joining)), see) != 0 and bool(refusals)


def _node_config(joining: Joining) -> str:
    paths = {
        "data-path": joining.data,
        "state-dir": joining.state,
        "public-path": joining.public,
        "policy": joining.policy,
    }
    given = [f"{name}={_quoted(name, str(path))}" for name, path in paths.items() if path is not None]
    return " ".join([f"client={joining.client}", *given])


def _quoted(name: str, path: str) -> str:
    # Flower cuts the text at quotes before it reads it as TOML, so that no quote can be escaped.
    if any(sign in path for sign in '"\\\n'):
        raise ConfigError(f"{name} must be a path without quotes, backslashes and line breaks, got {path!r}; rename it")
    return f'"{path}"'


def _check_data(joining: Joining) -> None:
    from scarlet.data.datasets import default_data_dir, load_public
    from scarlet.data.samples import fingerprint
    from scarlet.flower.site_data import read_site

    kind, _, path = joining.data.partition(":")
    if kind == "folder" and Path(path).is_dir():
        _check_images(joining, Path(path))
        return
    train = read_site(joining.data, None).train
    print(f"data: {joining.data}, {len(train):,} training samples of {len(set(train.labels.tolist()))} classes")
    if joining.public is not None:
        public = load_public(joining.public, default_data_dir(), train.of.inputs.shape[1:])
        print(f"public: {joining.public}, {len(public):,} samples, fingerprint {fingerprint(public)}")


def _check_images(joining: Joining, folder: Path) -> None:
    """See that every image can be opened; the classes and the size of all images are in the app, as yet unseen."""
    from scarlet.data.image_folder import client_parts
    from scarlet.data.images import own_shapes

    parts = client_parts(folder)
    train, test = (list(chain(*each.values())) for each in (parts.train, parts.test))
    own_shapes([*train, *test])
    print(f"data: {joining.data}, {len(train):,} training images of {len(parts.train)} classes")
    if joining.public is not None:
        print(f"public: {joining.public}, read when the app says which size images have")


def _check_state(state: Path) -> None:
    probe = state / ".writable"
    try:
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o700)  # a model of private data is there
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"--state must be a directory that can be written, and {state} is not: {error.strerror}; choose another"
        ) from None
    print(f"state: {state}")
