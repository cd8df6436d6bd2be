from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from scarlet.arrays import Array, Values
from scarlet.errors import ConfigError
from scarlet.job import Job, Result
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.node import Node, model_part
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.client import Client
from scarlet.protocol.codec import Context
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.messages import Report
from scarlet.protocol.method import Method, Prepared
from scarlet.protocol.server import Server
from scarlet.protocol.uplink.labels import Answer
from scarlet.store import Disk
from scarlet.wire.ledger import Ledger
from tests.faults.disk import Crash, SimulatedDisk

AGREEMENT = Agreement(clients=1, public_size=12, public_per_round=6, classes=3, seed=2)
SCARLET = scarlet(ScarletConfig(cache_duration=2))
METHODS = {"scarlet": SCARLET, "cfd, delta": cfd(CfdConfig(delta=True))}


@dataclass(slots=True)
class Model:
    """A model of one weight, which says how often it has been trained."""

    weight: Values = field(default_factory=lambda: np.zeros(1, np.float32))

    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.weight = arrays["weight"].astype(np.float32)


@dataclass(slots=True)
class Place:
    """A machine with a disk, on which a node can be started again and again; and the server that it talks to."""

    disk: Disk | None
    method: Method = SCARLET
    prepared: int = 0  # how often the node has prepared what its filter needs
    abstain: int = 0  # rounds in which a node that finds nothing on its disk sends no labels
    server: Server = field(init=False)
    node: Node = field(init=False)
    model: Model = field(init=False)

    def __post_init__(self) -> None:
        wire = codec("reference", self.method, AGREEMENT)
        self.server = Server(self.method, AGREEMENT, wire, Ledger())
        self.restart()

    def restart(self) -> None:
        client = Client(0, self.method, AGREEMENT, self.server.codec)
        self.model = Model()
        self.node = Node(client, self.model, self._prepare, self.disk, abstain=self.abstain)

    def trained(self, downlink: bytes) -> partial[list[bytes]]:
        """The node has begun and its model is trained; what remains is to finish."""
        job = self.node.begin(downlink)
        assert isinstance(job, Job)
        self.model.weight += 1
        rng = np.random.default_rng(job.round)
        result = Result(rng.dirichlet(np.ones(3), len(job.request)).astype(np.float32), {"loss": 1.0})
        return partial(self.node.finish, job, result)

    def play(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            for message in self.trained(self.downlink())():
                self.server.take(0, message)
            closed = self.server.close_round()
            assert closed is not None and (closed.resets, dict(closed.rejections)) == (0, {})

    def downlink(self) -> bytes:
        return self.server.open_round()[0]

    def _prepare(self) -> Prepared:
        self.prepared += 1
        return {"threshold": np.array([0.5])}


def simulated(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(np.random.default_rng(seed))


def content(arrays: Mapping[str, Array]) -> dict[str, tuple[str, bytes]]:
    return {name: (array.dtype.str, array.tobytes()) for name, array in arrays.items()}


class Traced(SimulatedDisk):
    """Writes down what happens to it."""

    steps: list[str]

    def sync(self, name: str) -> None:
        self.steps.append(f"sync {name}".strip())
        super().sync(name)


def test_the_state_lasts_on_disk_before_the_reply_leaves() -> None:
    disk = Traced(np.random.default_rng(0))
    disk.steps = []
    place = Place(disk)
    finish = place.trained(place.downlink())
    assert disk.steps == [], "a job is no news"
    replies = finish()
    disk.steps.append("reply")
    assert disk.steps == ["sync 1.safetensors.part", "sync 1.json.part", "sync", "reply"]
    disk.crash()
    place.restart()
    assert place.node.client.state.reply == replies


@pytest.mark.parametrize("name", METHODS)
def test_a_node_that_was_started_anew_remembers_everything(name: str) -> None:
    one, other = Place(simulated(), METHODS[name]), Place(simulated(), METHODS[name])
    for _ in range(6):
        one.play()
        other.play()
        other.restart()
        assert content(one.node.arrays()) == content(other.node.arrays())
    assert other.model.weight == 6 and other.server.ledger.total == one.server.ledger.total


def test_the_kept_reply_is_sent_after_a_restart_and_nothing_is_trained_again() -> None:
    place = Place(simulated())
    place.play(2)
    downlink = place.downlink()
    replies = place.trained(downlink)()
    place.restart()
    assert place.node.begin(downlink) == replies and place.model.weight == 3


def test_what_a_filter_needs_is_prepared_once_and_only_for_a_client_that_answers() -> None:
    place = Place(simulated())
    place.trained(place.downlink())
    assert place.prepared == 0
    for _ in range(3):
        place.restart()
        place.play(2)
    assert place.prepared == 1
    prepared = place.node.client.state.prepared
    assert prepared is not None and prepared["threshold"] == 0.5


def test_a_node_without_a_disk_can_be_brought_to_the_state_of_another() -> None:
    one, other = Place(None), Place(None)
    one.play(3)
    arrays = {name: np.array(array) for name, array in one.node.arrays().items()}
    other.node.restore(arrays)
    assert content(other.node.arrays()) == content(arrays) and other.model.weight == 3
    assert {name: array.tolist() for name, array in model_part(arrays).items()} == {"weight": [3.0]}
    one.play()
    assert arrays["model.weight"] == other.model.weight == 3, "what was restored is a copy"


@pytest.mark.parametrize("room", [0, 1], ids=["arrays", "manifest"])
def test_a_full_disk_means_no_reply_until_there_is_room_again(room: int) -> None:
    disk = simulated()
    place = Place(disk)
    place.play(2)
    downlink = place.downlink()
    finish = place.trained(downlink)
    disk.fail_in = room
    with pytest.raises(OSError, match="No space left on device"):
        finish()
    disk.fail_in = room
    with pytest.raises(OSError, match="No space left on device"):
        place.node.begin(downlink)
    kept = place.node.begin(downlink)
    assert isinstance(kept, list) and place.model.weight == 3, "it was not trained again"
    disk.crash()
    place.restart()
    assert place.node.begin(downlink) == kept and place.model.weight == 3


def test_a_node_that_dies_while_it_saves_comes_back_as_before_the_job_or_after() -> None:
    ends = set()
    for step in range(12):
        for seed in range(10):
            disk = simulated(seed)
            place = Place(disk)
            place.play(2)
            before, downlink = content(place.node.arrays()), place.downlink()
            finish = place.trained(downlink)
            disk.crash_in = step
            with suppress(Crash):
                finish()
            after = content(place.node.arrays())
            disk.crash()
            place.restart()
            found = content(place.node.arrays())
            assert found in (before, after)
            begun = place.node.begin(downlink)
            assert isinstance(begun, Job) == (found == before)
            ends.add(found == before)
    assert ends == {True, False}


def test_a_node_that_is_not_asked_writes_nothing() -> None:
    disk = simulated()
    Place(disk)
    assert disk.names() == []


def test_a_disk_belongs_to_one_experiment_and_another_is_refused_in_one_line() -> None:
    disk = simulated()
    place = Place(disk)
    place.play(2)
    other = replace(AGREEMENT, nonce="another")
    client = Client(0, SCARLET, other, codec("reference", SCARLET, other))
    with pytest.raises(ConfigError) as caught:
        Node(client, Model(), dict, disk)
    text = str(caught.value)
    assert AGREEMENT.digest.hex() in text and other.digest.hex() in text and "\n" not in text
    place.restart()
    assert place.model.weight == 2, "nothing was lost"


def answered(place: Place) -> tuple[int, dict[str, float]]:
    """One round in which a cache that differs is sent again; the labels that the node sends, and its metrics."""
    begun = place.node.begin(place.downlink())
    if not isinstance(begun, Job):
        place.server.take(0, begun[0])
        begun = place.node.begin(place.server.resets()[0])
    assert isinstance(begun, Job)
    place.model.weight += 1
    value = np.full((len(begun.request), 3), 1 / 3, np.float32)
    replies = place.node.finish(begun, Result(value, {"loss": 1.0}))
    for message in replies:
        place.server.take(0, message)
    assert place.server.close_round() is not None
    answer, report = (place.server.codec.decode(message, Context(begun.request)) for message in replies)
    assert isinstance(answer, Answer) and isinstance(report, Report)
    return len(answer.labels.index), dict(report.metrics)


def test_a_node_that_lost_its_disk_learns_for_some_rounds_before_it_answers_whatever_is_restarted() -> None:
    place = Place(simulated(), scarlet(ScarletConfig(cache_duration=0)))
    place.play(2)
    place.disk, place.abstain = simulated(), 3
    place.restart()
    assert place.model.weight == 0, "its model is lost"
    said = []
    for _ in range(5):
        said.append(answered(place))
        place.restart()
    assert [labels for labels, _ in said] == [0, 0, 0, 6, 6]
    assert [metrics.get("abstains") for _, metrics in said] == [3.0, 2.0, 1.0, None, None]
    assert place.model.weight == 5, "it learns all the while"
