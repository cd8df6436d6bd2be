"""What a SuperLink knows of nodes and runs, asked over its Control API on loopback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

from scarlet.errors import short
from scarlet.flower.processes import FlowerError

UNREGISTERED = "unregistered"
COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Node:
    """A site, as the SuperLink has it."""

    number: int  # Flower's node id
    key: bytes  # its public key, PEM
    status: str  # registered, online, offline or unregistered


@dataclass(frozen=True, slots=True)
class Run:
    """A run; `result` is completed, failed or stopped once it is finished."""

    number: int
    finished: bool
    result: str
    details: str


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except httpx.HTTPError as error:
        raise FlowerError(f"the SuperLink does not answer ({short(error)}); see superlink.log in --home") from None


class Control:
    """A connection to the Control API; Flower's own commands print neither public keys nor a run's result."""

    def __init__(self, address: str, ca: Path | None) -> None:
        self._client = ControlHttpClient.from_server_address(
            address,
            insecure=ca is None,
            root_certificates=None if ca is None else ca.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def nodes(self) -> list[Node]:
        """All nodes that were ever registered."""
        found = _asked(lambda: self._client.ListNodes(ListNodesRequest())).nodes_info
        return [Node(node.node_id, node.public_key, node.status) for node in found]

    def runs(self) -> list[Run]:
        """All runs that were ever started."""
        found = _asked(lambda: self._client.ListRuns(ListRunsRequest())).run_dict.values()
        return [
            Run(run.run_id, run.status.status == "finished", run.status.sub_status, run.status.details) for run in found
        ]

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
