from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from scarlet.errors import ConfigError
from scarlet.experiment.checkpoints import FORMAT, Checkpoint, Checkpoints
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.comet import CometConfig, comet
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.store import Folder, Snapshot, Store
from tests.protocol.federation import Federation, contents, saved

IDENTITY = {"options": {"beta": 1.5, "bits": (1, 32)}, "data": "00ff"}
AGREEMENT = Agreement(clients=8, public_size=24, public_per_round=8, classes=3, seed=5)
METHODS: dict[str, Method] = {
    "scarlet": scarlet(ScarletConfig(cache_duration=3)),
    "cfd, delta": cfd(CfdConfig(delta=True)),
    "comet, server-assigned": comet(CometConfig(clusters=2, assign="server")),
}
WEIGHTS = {"layer.weight": np.ones((2, 2), np.float32)}


def federation(method: Method) -> Federation:
    """Half of the clients take part in each round."""
    return Federation(method, AGREEMENT, Participation(0.5), coding="compact")


def play(federated: Federation) -> set[int]:
    """One round; the clients that were asked."""
    federated.play()
    return {job.client for job in federated.jobs}


def opened(folder: Path, identity: Mapping[str, object] = IDENTITY) -> Checkpoints:
    return Checkpoints(folder, identity, every=1)


def loaded(folder: Path) -> Checkpoint:
    with opened(folder) as checkpoints:
        found = checkpoints.load()
    assert found is not None
    return found


@pytest.mark.parametrize("on_this_machine", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_what_the_server_remembers_of_a_client_is_saved_when_it_changed_and_restored_for_all(
    name: str, on_this_machine: bool, tmp_path: Path
) -> None:
    federated, ever = federation(METHODS[name]), set()
    with opened(tmp_path) as checkpoints:
        for _ in range(6):
            changed = play(federated)
            ever |= changed
            states = {number: saved(federated.clients[number].state) for number in changed if on_this_machine}
            snapshot = checkpoints.snapshot(federated.server, changed, states)
            checkpoints.save(snapshot, WEIGHTS)
            clients = {f"client-{number}" for number in states}
            remembered = {f"server-of-client-{number}" for number in changed} if name == "cfd, delta" else set()
            assert set(snapshot.parts) == {"server"} | clients | remembered
    assert len(ever) > len(changed), "not everybody takes part in a round"
    found, after = loaded(tmp_path), federation(METHODS[name])
    found.restore_server(after.server)
    assert contents(after.server.state) == contents(federated.server.state)
    assert after.server.ledger.total == federated.server.ledger.total
    assert set(found.clients()) == (ever if on_this_machine else set())
    for number, state in found.clients().items():
        after.restore_client(number, state)
        assert contents(after.clients[number].state) == contents(federated.clients[number].state)
    weights = found.server_model()
    assert weights.keys() == WEIGHTS.keys() and all(np.array_equal(weights[each], WEIGHTS[each]) for each in WEIGHTS)


@pytest.mark.parametrize("name", METHODS)
def test_a_snapshot_is_of_one_instant(name: str, tmp_path: Path) -> None:
    """The server goes on while it waits to be written."""
    federated = federation(METHODS[name])
    changed = play(federated) | play(federated)
    with opened(tmp_path) as checkpoints:
        snapshot = checkpoints.snapshot(federated.server, changed, {})
        expected = contents(federated.server.state)
        for _ in range(3):
            federated.play()
        checkpoints.save(snapshot, WEIGHTS)
    after = federation(METHODS[name])
    loaded(tmp_path).restore_server(after.server)
    assert contents(after.server.state) == expected != contents(federated.server.state)


def test_there_is_a_checkpoint_every_third_round(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, IDENTITY, every=3) as checkpoints:
        assert [round for round in range(1, 10) if checkpoints.due(round)] == [3, 6, 9]


def test_where_there_is_no_checkpoint_none_is_found(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        assert checkpoints.load() is None


def save_as(folder: Path, meta: Mapping[str, object]) -> None:
    Store(Folder(folder)).save(Snapshot(3, meta, {"server": {"stamp": np.arange(3)}}))


@pytest.mark.parametrize("meta", [{"round": 3}, {"format": FORMAT + 1}], ids=["1, which had no number", "a later one"])
def test_a_checkpoint_of_another_format_is_refused_in_one_line_that_names_the_remedy(
    meta: dict[str, object], tmp_path: Path
) -> None:
    save_as(tmp_path, meta | {"run": {"options": {"beta": 1.5, "bits": [1, 32]}, "data": "00ff"}})
    written = meta.get("format", 1)
    with opened(tmp_path) as checkpoints, pytest.raises(ConfigError) as caught:
        checkpoints.load()
    text = str(caught.value)
    assert (
        f"the checkpoint in {tmp_path} has format {written}, and this version of scarlet reads format {FORMAT}" in text
    )
    assert text.endswith("; resume with the version that wrote it, or run anew") and "\n" not in text


@pytest.mark.parametrize("other", [{"options": {"beta": 2.0}, "data": "00ff"}, IDENTITY | {"data": "ff00"}])
def test_a_checkpoint_of_other_options_or_other_data_is_refused(other: dict[str, object], tmp_path: Path) -> None:
    save_as(tmp_path, {"format": FORMAT, "run": other})
    with (
        opened(tmp_path) as checkpoints,
        pytest.raises(ConfigError, match=r"is of other options or other data; restore those, or run anew$"),
    ):
        checkpoints.load()


def test_an_identity_is_compared_as_json_has_it(tmp_path: Path) -> None:
    save_as(tmp_path, {"format": FORMAT, "run": {"options": {"beta": 1.5, "bits": [1, 32]}, "data": "00ff"}})
    assert loaded(tmp_path).snapshot.number == 3
