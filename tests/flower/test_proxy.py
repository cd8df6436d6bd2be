"""At the outside port sites find the Fleet API, and nobody finds Control, which starts code on every site."""

from __future__ import annotations

import signal
import ssl
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
from flwr.proto.control_pb2 import ListNodesRequest
from flwr.supercore.control import ControlHttpClient

from scarlet.flower.addresses import free_port
from scarlet.flower.keys import make_server_keys, make_site_key
from tests.flower.commands import APP, Command, processes_of, run, wait_until, write_data

pytestmark = pytest.mark.xdist_group("deployment")


@dataclass(frozen=True)
class Server:
    """A SuperLink with TLS and node authentication behind nginx, and two sites, of which one is registered."""

    folder: Path
    port: int
    command: Command

    def join(self, site: str) -> list[object]:
        data, _ = write_data(self.folder)
        where = ["--superlink", f"127.0.0.1:{self.port}", "--ca", self.folder / "keys" / "ca.pem"]
        own = ["--client", 0, "--data", data, "--state", self.folder / f"state of {site}", "--key", self.folder / site]
        return ["join", *where, *own]

    def status(self, method: str, path: str) -> int:
        context = ssl.create_default_context(cafile=self.folder / "keys" / "ca.pem")
        connection = HTTPSConnection("127.0.0.1", self.port, context=context, timeout=10)
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        status = connection.getresponse().status
        connection.close()
        return status

    def inside(self) -> ControlHttpClient:
        """The Control API, where it is served: on loopback, by the SuperLink itself."""
        there = tomllib.loads((self.folder / "home" / "flower" / "config.toml").read_text())["superlink"]["scarlet"]
        ca = Path(there["root-certificates"]).read_bytes()
        return ControlHttpClient.from_server_address(there["address"], False, ca, [])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("proxy")
    make_server_keys(folder / "keys", ["127.0.0.1"], days=1)
    (folder / "sites").mkdir()
    make_site_key(folder / "registered").rename(folder / "sites" / "registered.pub")
    make_site_key(folder / "stranger")
    port = free_port()
    command = Command(folder / "serve.log", *serving(folder, port))
    try:
        command.wait_for("to do: wait")
        yield Server(folder, port, command)
    finally:
        command.clear()


def serving(folder: Path, port: int) -> list[object]:
    where = ["--address", f"127.0.0.1:{port}", "--home", folder / "home", "--run-config", "what='wait'"]
    return ["serve", APP, *where, "--keys", folder / "keys", "--sites", folder / "sites"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node", "/v1/control/stream-logs"),
        *("/v1/runtime/get-nodes", "/v1/runtime/acquire-task", "/health", "/docs", "/openapi.json", "/"),
        *("/v1/fleet", "/v1/fleet/", "/v1/fleet/unheard-of", "/v1/fleet/pull-messages/"),
        *("/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs", "/v1/fleet/..%2fcontrol/list-runs"),
        *("//v1/control/list-runs", "/v1/control/list-runs?/v1/fleet/pull-messages", "/V1/FLEET/pull-messages"),
    ],
)
def test_everything_but_a_fleet_route_is_refused_at_the_outside_port(server: Server, path: str) -> None:
    assert [server.status(method, path) for method in ("GET", "POST")] == [403, 403]


def test_a_fleet_route_is_passed_on_and_the_superlink_asks_for_a_signature(server: Server) -> None:
    assert server.status("GET", "/v1/fleet/pull-messages") == 405
    assert server.status("POST", "/v1/fleet/pull-messages") in (400, 401, 415, 422)


def test_control_is_there_on_loopback(server: Server) -> None:
    with server.inside() as control:
        assert [node.name for node in control.ListNodes(ListNodesRequest()).nodes_info] == ["registered"]


def test_a_registered_node_is_online_through_the_proxy_and_sends_heartbeats(server: Server) -> None:
    node = Command(server.folder / "join.log", *server.join("registered"))
    try:
        with server.inside() as control:

            def is_online_by_a_heartbeat() -> bool:
                (it,) = control.ListNodes(ListNodesRequest()).nodes_info
                if it.status != "online":
                    return False
                activated = datetime.fromisoformat(it.last_activated_at).timestamp()
                return bool(it.online_until - HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL > activated + 1e-3)

            wait_until(is_online_by_a_heartbeat, "a node that is online by its heartbeat")
    finally:
        node.clear()


def test_an_unregistered_node_is_refused_in_one_line(server: Server) -> None:
    code, output = run(server.folder / "stranger.log", *server.join("stranger"))
    assert code == 2
    assert output.splitlines()[-1].startswith(f"scarlet: --superlink 127.0.0.1:{server.port} refuses this site")
    with server.inside() as control:
        assert [node.name for node in control.ListNodes(ListNodesRequest()).nodes_info] == ["registered"]


def test_a_second_server_does_not_disturb_the_first_and_ctrl_c_ends_all_of_it(server: Server) -> None:
    code, output = run(server.folder / "second.log", *serving(server.folder, free_port()))
    assert code == 2
    assert "is in use by another command" in output
    assert len(processes_of(server.folder / "home")) > 2
    assert server.command.end(signal.SIGINT) == 130
    assert processes_of(server.folder / "home") == []
