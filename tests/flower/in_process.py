"""A Grid of Flower whose nodes are in this process: real messages, real apps, and faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from scarlet.experiment.given import Given
from scarlet.flower.options import read_options
from scarlet.flower.serving import serve
from scarlet.flower.site import client
from scarlet.records import RunResult

CLASSES, FEATURES = 3, 6


def write_sites(folder: Path, sites: int = 3) -> None:
    """Blobs of rows: a file for each site, a public dataset and a test set."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(CLASSES, FEATURES)) * 2
    folder.mkdir(parents=True, exist_ok=True)

    def drawn(count: int) -> tuple[Any, Any]:
        labels = rng.integers(0, CLASSES, count)
        return (centres[labels] + rng.normal(size=(count, FEATURES))).astype(np.float32), labels

    for number in range(sites):
        (x, y), (test_x, test_y) = drawn(40), drawn(20)
        np.savez(folder / f"{number}.npz", train_x=x, train_y=y, test_x=test_x, test_y=test_y)
    np.savez(folder / "public.npz", x=drawn(60)[0])
    np.savez(folder / "other.npz", x=drawn(60)[0])
    x, y = drawn(50)
    np.savez(folder / "test.npz", x=x, y=y)


def run_config(folder: Path, **changes: object) -> dict[str, Any]:
    """The run config of an app on those data."""
    config: dict[str, Any] = {
        "method": "scarlet",
        "private": "sites",
        "public": f"npz:{folder / 'public.npz'}",
        "test": f"npz:{folder / 'test.npz'}",
        "out": str(folder / "run"),
        "classes": CLASSES,
        "clients": 3,
        "rounds": 4,
        "cache-duration": 2,
        "public-per-round": 20,
        "model": "mlp",
        "batch-size": 10,
        "wait-seconds": 0.5,
    }
    return config | {name.replace("_", "-"): value for name, value in changes.items()}


@dataclass
class SiteNode:
    """A node, as whoever runs the site started it."""

    node_id: int
    node_config: dict[str, Any]
    key: bytes = b""
    name: str = ""  # under which the operator registered the key
    online: bool = True
    silent: bool = False  # it takes messages and never answers
    starts: int = 1  # how often it was started
    app: ClientApp = field(default_factory=ClientApp)


class Killed(BaseException):
    """The server dies."""


class InProcessGrid(Grid):
    """Delivers a message when it is pushed; `before` is called with each message of a round first."""

    def __init__(self, config: dict[str, Any], nodes: Iterable[SiteNode]) -> None:
        self.config, self.nodes = config, {node.node_id: node for node in nodes}
        self.before: Callable[[SiteNode, int], None] = lambda node, number: None
        self.sent = 0  # messages of rounds
        self.received: list[Message] = []
        self._replies: dict[str, Message] = {}
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as in the process of an app
        for node in self.nodes.values():
            client(node.app)

    def get_nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(
                node_id=node.node_id, public_key=node.key, name=node.name, last_activated_at=f"start {node.starts}"
            )
            for node in self.nodes.values()
            if node.online
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        found = []
        for message in messages:
            node = self.nodes[message.metadata.dst_node_id]
            message.metadata.__dict__["_message_id"] = message.object_id
            found.append(message.metadata.message_id)
            if message.metadata.message_type == "train.round":
                self.sent += 1
                self.before(node, self.sent)
            if node.online and not node.silent:
                context = Context(1, node.node_id, node.node_config, RecordDict(), self.config)
                self._replies[message.metadata.message_id] = node.app(message, context)
        return found

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [self._replies.pop(each) for each in message_ids if each in self._replies]
        self.received += found
        return found

    def run_here(self, given: Given | None = None) -> RunResult | None:
        """The rounds of the app, to their end."""
        return serve(self, read_options(self.config), given or Given())

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def set_run(self, run: Run) -> None:
        raise AssertionError("the transport does not choose a run")

    @property
    def run(self) -> Run:
        raise AssertionError("the transport does not look at the run")

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise AssertionError("the transport makes its messages itself")

    def send_and_receive(self, *arguments: Any, **options: Any) -> list[Message]:
        raise AssertionError("the transport waits itself, with its own deadline")


def three_nodes(folder: Path, **options: object) -> list[SiteNode]:
    """A node for each of three sites, with registered keys."""
    return [
        SiteNode(
            100 + number,
            {"client": number, "data-path": str(folder / f"{number}.npz"), "state-dir": str(folder / f"state-{number}")}
            | {name.replace("_", "-"): value for name, value in options.items()},
            key=f"key {number}".encode(),
            name=f"site-{number}",
        )
        for number in range(3)
    ]
