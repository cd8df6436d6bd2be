"""A real SuperLink with TLS and node authentication, real SuperNodes through nginx, on the embedded data."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scarlet
from scarlet.cli.main import main
from scarlet.flower.addresses import free_port
from scarlet.flower.site_data import read_site, read_test
from tests.flower.commands import Command, children_of, is_alive, processes_of, wait_until

pytestmark = pytest.mark.xdist_group("deployment")  # one after another: each uses all cores
_NOT_OF_THE_METHOD = ("seconds", "uplink_transport_bytes", "downlink_transport_bytes")
_A_RUN = 300.0  # seconds, after which a run of some rounds is taken for stuck
_SITES = 3


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start a command; what still runs when the test ends is ended."""
    started: list[Command] = []

    def begin(log: str, *arguments: object) -> Command:
        started.append(Command(tmp_path / log, *arguments))
        return started[-1]

    yield begin
    for command in started:
        command.clear()


class Deployment:
    """An app, its keys, and the commands of the server and of each site, as three administrators type them."""

    def __init__(self, folder: Path, start: Callable[..., Command], *others: str) -> None:
        self.folder, self.start, self.port = folder, start, free_port()
        self.run, self.home = folder / "app" / "run", folder / "home"
        self._flower("new", folder / "app", "--trial", _SITES)
        self._flower("keys", folder / "keys", "--address", "127.0.0.1")
        (folder / "sites").mkdir()
        for name in (*(f"site-{number}" for number in range(_SITES)), *others):
            self.key(name).rename(folder / "sites" / f"{name}.pub")

    def key(self, name: str) -> Path:
        """A new key of a site; its public half."""
        self._flower("site-key", self.folder / name)
        return self.folder / f"{name}.pub"

    def serve(self, log: str, options: str) -> Command:
        where = ["--address", f"127.0.0.1:{self.port}", "--home", self.home, "--run-config", options]
        keys = ["--keys", self.folder / "keys", "--sites", self.folder / "sites"]
        command = self.start(log, "serve", self.folder / "app", *where, *keys)
        command.wait_for("waiting for 3 clients")
        return command

    def join(self, name: str, client: int, *more: object) -> Command:
        where = ["--superlink", f"127.0.0.1:{self.port}", "--ca", self.folder / "keys" / "ca.pem"]
        own = ["--client", client, "--data", self.folder / "app" / "data" / f"{client}.npz"]
        kept = ["--key", self.folder / name, "--state", self.state(name)]
        return self.start(f"{name}.log", "join", *where, *own, *kept, *more)

    def state(self, name: str) -> Path:
        return self.folder / f"state of {name}"

    def processes(self) -> list[int]:
        """What this test has started and not ended, the nodes that knock in vain included."""
        return processes_of(self.home, *(path / "flower" for path in self.folder.glob("state of *")))

    def _flower(self, *arguments: object) -> None:
        assert main(["flower", *map(str, arguments)]) == 0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_the_method(path: Path) -> list[dict[str, Any]]:
    found = lines(path / "metrics.jsonl")
    return [{name: value for name, value in each.items() if name not in _NOT_OF_THE_METHOD} for each in found]


def local_run(data: Path, rounds: int, out: Path) -> Path:
    """The same federation without Flower."""
    sites = [read_site(f"npz:{data / f'{number}.npz'}") for number in range(_SITES)]
    config = scarlet.Config(rounds=rounds, clients=_SITES, model="cnn", public=f"npz:{data / 'public.npz'}")
    test = read_test(f"npz:{data / 'test.npz'}")
    scarlet.run(scarlet.ScarletConfig(), config, sites=sites, test=test, classes=10, out=out)
    return out


def test_undisturbed_it_is_the_local_run_bit_for_bit_and_leaves_no_process(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    there = Deployment(tmp_path, start)
    server = there.serve("serve.log", "rounds=5")
    nodes = [there.join(f"site-{number}", number) for number in range(_SITES)]
    assert server.wait(_A_RUN) == 0, server.output
    assert [node.end(signal.SIGINT) for node in nodes] == [130] * _SITES
    assert there.processes() == []
    assert server.output.count("answered all 3") == 5

    local = local_run(there.folder / "app" / "data", 5, tmp_path / "local")
    assert of_the_method(there.run) == of_the_method(local)
    for name in ("ledger.csv", "clients.csv", "server.safetensors"):
        assert (there.run / name).read_bytes() == (local / name).read_bytes(), name
    assert (there.run / "report.html").exists()


def test_every_round_closes_and_the_record_says_what_happened_whatever_happens(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    there, options, rounds = Deployment(tmp_path, start, "impostor", "stranger"), "rounds=6 deadline=75", 6
    server = there.serve("serve.log", options)
    nodes = [there.join(f"site-{number}", number) for number in range(_SITES)]
    server.wait_for("client 1 (node site-1) joined")

    impostor = there.join("impostor", 1)  # its key is registered, its number is another's
    other = tmp_path / "other.npz"
    np.savez(other, x=np.load(there.folder / "app" / "data" / "public.npz")["x"][::-1])
    stranger = there.join("stranger", 2, "--public", other)
    there.key("unknown")
    unknown = there.join("unknown", 0)  # its key was never given to the server
    assert unknown.wait() == 2, unknown.output
    assert "its key is not registered there" in unknown.output

    server.wait_for("scarlet: round 1:", _A_RUN)
    assert nodes[0].end(signal.SIGKILL) == -signal.SIGKILL  # in round 2
    server.wait_for("scarlet: round 2:", _A_RUN)
    nodes[0] = there.join("site-0", 0)
    server.wait_for("scarlet: round 3:", _A_RUN)
    shutil.rmtree(there.state("site-2") / "client")  # a new process is started for the next round, and finds nothing
    server.wait_for("scarlet: round 4:", _A_RUN)
    parts = children_of(server.pid)
    assert len(parts) == 3  # SuperLink, nginx, flwr run
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    gone = "the end of all that the server has started"
    wait_until(lambda: not processes_of(there.home) and not any(map(is_alive, parts)), gone)
    again = there.serve("again.log", options)
    assert "supernode register" not in again.output  # the keys are in the database
    assert again.wait(_A_RUN) == 0, again.output
    for node in (*nodes, impostor, stranger):
        assert node.end(signal.SIGINT) == 130
    assert there.processes() == []

    records = lines(there.run / "metrics.jsonl")
    assert [record["round"] for record in records] == list(range(1, rounds + 1))
    assert all(record["answers"] >= 2 for record in records)
    assert records[0]["answers"] == records[-1]["answers"] == 3
    assert set(records[1]["failures"]) <= {"late", "node unavailable"}
    assert records[1]["failures"]
    assert [record["abstained"] for record in records] == [0, 0, 0, 1, 1, 1]  # the client whose state was wiped
    assert sum(record["resets"] for record in records) >= 1
    assert all(record["rejections"] == {} for record in records)

    said = Counter((event["node"], event["client"], event["what"]) for event in lines(there.run / "nodes.jsonl"))
    assert said["impostor", 1, "refused: client 1 belongs to a node with another key"] >= 2  # once for each server
    assert said["stranger", None, "cannot take part: public dataset differs"] >= 2
    assert said["site-0", 0, "late"] + said["site-0", 0, "node unavailable"] >= 1
    assert said["site-0", 0, "joined"] >= 2
    assert not any(node == "unknown" for node, _, _ in said)

    for number in range(_SITES):  # what a site was taught is checked against the server's digest before it answers
        audit = lines(there.state(f"site-{number}") / "audit.jsonl")
        assert {line["code"] for line in audit} == {None}
        replies: dict[int, set[str]] = {}
        for line in audit:
            if line["bytes_sent"] > 100:  # an answer, and not only the request for a reset
                replies.setdefault(line["round"], set()).add(line["reply"])
        # Whoever was asked again by the server that came back sent the reply that it had kept.
        assert {len(each) for each in replies.values()} == {1}, audit
    assert not (there.state("impostor") / "client").exists()
    assert not (there.state("stranger") / "client").exists()


def test_in_simulation_20_clients_give_the_local_run(tmp_path: Path, start: Callable[..., Command]) -> None:
    assert main(["flower", "new", str(tmp_path / "app")]) == 0
    out = tmp_path / "run"
    options = f"clients=20 rounds=3 local-epochs=1 distil-epochs=1 out='{out}'"
    where = ["--nodes", 20, "--home", tmp_path / "home", "--run-config", options]
    command = start("simulate.log", "simulate", tmp_path / "app", *where)
    assert command.wait(_A_RUN) == 0, command.output
    assert processes_of(tmp_path / "home") == []
    config = scarlet.Config(clients=20, rounds=3, local_epochs=1, distil_epochs=1)
    scarlet.run(scarlet.ScarletConfig(), config, out=tmp_path / "local")
    assert of_the_method(out) == of_the_method(tmp_path / "local")
    for name in ("ledger.csv", "clients.csv", "server.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name
