"""Clients on other machines, or in Flower's simulation: moves bytes through a Grid of Flower."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import Any

import httpx
import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from scarlet.data.federated import FederatedData
from scarlet.errors import MessageError, ScarletError
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.envelope import HELLO, REFUSED, ROUND, Ask, Hello, Reply, Values
from scarlet.transport.transport import Failure, Overhead, States
from scarlet.wire import frame

RECORD = "scarlet"  # the one record of a message
_POLL = 0.2  # seconds between two looks for replies
_LONGEST = 12 * 3600.0  # seconds that a message without a deadline is valid
_LATE, _UNAVAILABLE = "late", "node unavailable"
_FAULTS = {
    ErrorCode.NODE_UNAVAILABLE: _UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE: _LATE,  # its time has run out
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: _LATE,
}
_GREET_AGAIN = 30.0  # seconds after which a node that could not be reached is sent another hello


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a node, for whoever keeps a record."""

    round: int  # the round under way; 0: before the first
    node: str
    client: int | None  # None: the node has not said which
    what: str


@dataclass(slots=True)
class _Binding:
    """A client's number, which belongs to one node from its first hello on."""

    key: bytes  # the node's public key; empty in a simulation
    registered: bool  # the operator registered the key, so the node has proved that it holds it
    node: int | None = None  # its id, if it has said hello in this run
    answered: bool = False


class FlowerTransport:
    """Moves bytes between the server and the nodes of a Grid. Use it as a context manager.

    A node says with its first hello which client it is, and from then on that number is bound to its public key. Only
    where keys are not registered, as in a trial without authentication, another node may take the place of one that
    is gone, because such a node has a new key each time it is started.

    The first round waits for the `expected` nodes, and later ones for `least`, both for at most `patience` seconds.
    """

    def __init__(
        self,
        setup: ClientSetup,
        data: FederatedData,
        workers: int,
        *,
        saved: States | None = None,
        grid: Grid,
        expected: int,
        least: int,
        patience: float,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._agreement, self._grid, self._tell = setup.agreement, grid, tell
        clients = setup.agreement.clients
        self._wanted, self._least, self._patience = min(expected, clients), min(least, clients), patience
        restored = {number: _restored(arrays) for number, arrays in (saved or {}).items()}
        self._bound = {number: bound for number, bound in restored.items() if bound.answered}
        self._names: dict[int, str] = {}  # node id -> its name
        self._started: dict[int, str] = {}  # node id -> when it was last started, as Flower has it
        self._greeted: dict[int, float] = {}  # id of a node that is online -> until when its hello is not repeated
        self._hellos: dict[str, Any] = {}  # message id -> the node that has not answered the hello yet
        self._up = self._down = self._round = 0

    def available(self) -> Collection[int]:
        until = time.monotonic() + self._patience
        while True:
            online = self._look_around()
            if len(online) >= self._wanted or (online and time.monotonic() > until):
                self._wanted = self._least  # a run waits once for all nodes, and later for as many as it needs
                return online
            if time.monotonic() > until:
                raise ScarletError(
                    f"no node has joined within {self._patience:.0f} s; start the sites with 'scarlet flower join', or "
                    "give them more time with wait-seconds"
                )
            time.sleep(_POLL)

    def exchange(self, downlinks: Mapping[int, bytes], until: float) -> Iterator[tuple[int, bytes | Failure]]:
        left = until - time.monotonic()
        self._round = max((frame.round_of(data)[0] for data in downlinks.values()), default=self._round)
        asked = {}
        for number, data in downlinks.items():
            bound = self._bound[number]
            assert bound.node is not None, "only clients that are available are asked"
            content = Ask(self._agreement, number, bound.answered, data).values()
            asked[number] = self._message(bound.node, f"train.{ROUND}", content, min(left, _LONGEST))
            self._down += _size(asked[number]) - len(data)
        waiting: dict[str, int] = {}
        for number, sent in zip(asked, self._pushed(list(asked.values())), strict=True):
            if sent is None:
                self._report(number, _UNAVAILABLE)
                yield number, Failure(_UNAVAILABLE)
            else:
                waiting[sent] = number
        while waiting:
            over = time.monotonic() >= until  # looked up first, so that what came in time is always taken
            for message, reply in self._pulled(list(waiting)):
                number = waiting.pop(message)
                for answer in self._answers(number, reply):
                    yield number, answer
            if over:
                break
            if waiting:
                time.sleep(_POLL)
        for number in waiting.values():
            self._report(number, _LATE)
            yield number, Failure(_LATE)

    def overhead(self) -> Overhead:
        up, down, self._up, self._down = self._up, self._down, 0, 0
        return Overhead(up, down)

    def states(self, clients: Sequence[int]) -> States:
        """Who is who: the key of each client that ever said hello."""
        return {number: _saved(bound) for number, bound in self._bound.items()}

    @property
    def local(self) -> None:
        return None

    def _look_around(self) -> list[int]:
        """Greet the nodes that are new, hear those that answer, and name the clients that are online."""
        nodes = {node.node_id: node for node in self._grid.get_nodes()}
        now = time.monotonic()
        for number, node in nodes.items():
            # A node may have been restarted, with anything lost or changed, while a round was under way.
            if self._started.get(number) != node.last_activated_at:
                self._started[number] = node.last_activated_at
                self._greeted.pop(number, None)
        if new := [node for number, node in nodes.items() if self._greeted.get(number, 0) <= now]:
            hello = Hello(self._agreement, version("scarlet-fl")).values()
            messages = [self._message(node.node_id, f"query.{HELLO}", hello, _LONGEST) for node in new]
            for node, sent in zip(new, self._pushed(messages), strict=True):
                self._greeted[node.node_id] = now + _GREET_AGAIN if sent is None else math.inf
                if sent is not None:
                    self._hellos[sent] = node
            self._names |= {node.node_id: _name(node) for node in new}
        for message, reply in self._pulled(list(self._hellos)):
            self._hear(self._hellos.pop(message), reply, nodes)
        # A node is greeted again when it is back.
        self._greeted = {number: until for number, until in self._greeted.items() if number in nodes}
        for number, bound in self._bound.items():
            if bound.node is not None and bound.node not in self._greeted:
                self._report(number, "offline")
                bound.node = None
        return sorted(number for number, bound in self._bound.items() if bound.node is not None)

    def _hear(self, node: Any, reply: Message | None, online: Collection[int]) -> None:
        """Bind a node to the client that it says it is, unless that is another's."""
        name = _name(node)
        try:
            said = _read(reply)
        except _FlowerFault as fault:
            self._tell(Event(self._round, name, None, f"did not answer the hello: {fault}"))
            self._greeted[node.node_id] = time.monotonic() + _GREET_AGAIN
            return
        except MessageError:
            said = Reply(code="message cannot be read")
        if said.code is not None:
            self._tell(Event(self._round, name, None, f"cannot take part: {said.code}"))
            for bound in self._bound.values():
                if bound.node == node.node_id:  # it took part before it was restarted
                    bound.node = None
            return
        why = self._objection(said.client, node, online)
        if why is not None:
            self._tell(Event(self._round, name, said.client, f"refused: {why}"))
            refusal = self._message(node.node_id, f"query.{REFUSED}", {"reason": why}, _LONGEST)
            self._grid.push_messages([refusal])
            held = self._bound.get(said.client)
            if not node.name or (held is not None and not held.answered):  # who holds the number may give it up
                self._greeted[node.node_id] = time.monotonic() + _GREET_AGAIN
            return
        for other in [number for number, bound in self._bound.items() if number != said.client and _same(bound, node)]:
            del self._bound[other]  # a number that it gave by mistake, and never answered under
        answered = said.client in self._bound and self._bound[said.client].answered
        self._bound[said.client] = _Binding(node.public_key, bool(node.name), node.node_id, answered)
        self._tell(Event(self._round, name, said.client, "joined"))

    def _objection(self, number: int, node: Any, online: Collection[int]) -> str | None:
        """Why a node cannot be a client; None if it can."""
        if not 0 <= number < self._agreement.clients:
            return f"client must be from 0 to {self._agreement.clients - 1}, got {number}"
        for other, bound in self._bound.items():
            if other != number and bound.answered and _same(bound, node):
                return f"this node is client {other} already"
        bound_to = self._bound.get(number)
        if bound_to is None or (bound_to.key == node.public_key and bound_to.key):
            return None
        if bound_to.registered:
            return f"client {number} belongs to a node with another key"
        if bound_to.node is not None and bound_to.node in online and bound_to.node != node.node_id:
            return f"client {number} is another node, which is online"
        return None

    def _pushed(self, messages: Sequence[Message]) -> list[str | None]:
        """Send messages; the id of each, or None for one that Flower does not take, as of a node that is gone."""
        found = [each or None for each in self._grid.push_messages(messages)]
        return found + [None] * (len(messages) - len(found))

    def _pulled(self, ids: Sequence[str]) -> Iterator[tuple[str, Message | None]]:
        """The replies that are there, each with the id of what it answers; None for one that cannot be read.

        They are asked for one by one: Flower reads all replies of a request before it returns any, and a site may put
        anything into its own.
        """
        for each in ids:
            try:
                found = list(self._grid.pull_messages([each]))
            except httpx.HTTPError:
                raise
            except Exception:  # whatever Flower raises for an object that is none
                yield each, None
                continue
            for reply in found[:1]:
                yield each, reply

    def _answers(self, number: int, reply: Message | None) -> Iterable[bytes | Failure]:
        """The messages in a client's reply, or why there are none."""
        try:
            said = _read(reply)
        except _FlowerFault as fault:
            self._report(number, str(fault))
            return [Failure(str(fault))]
        except MessageError:
            said = Reply(code="message cannot be read")
        if reply is not None:
            self._up += _size(reply) - sum(map(len, said.messages))
        if said.code is not None:
            self._report(number, said.code)
            return [Failure(said.code)]
        if said.messages:
            self._bound[number].answered = True
        return said.messages

    def _report(self, number: int, what: str) -> None:
        node = self._bound[number].node
        self._tell(Event(self._round, self._names.get(node or 0, str(node)), number, what))

    def _message(self, node: int, kind: str, content: Values, seconds: float) -> Message:
        record = ConfigRecord(dict(content))
        ttl = _LONGEST if math.isinf(seconds) else max(1.0, seconds)
        return Message(RecordDict({RECORD: record}), dst_node_id=node, message_type=kind, ttl=ttl)

    def __enter__(self) -> FlowerTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _FlowerFault(Exception):
    """Flower itself reports that there is no reply."""


def _read(reply: Message | None) -> Reply:
    if reply is None:
        raise MessageError("a site's message is none of Flower's")
    if reply.has_error():
        # Flower's own text may be of the site, and would make a reason of its own of every message.
        raise _FlowerFault(_FAULTS.get(reply.error.code, "no reply"))
    record = reply.content.config_records.get(RECORD)
    if record is None:
        raise MessageError("a site's message has no record of scarlet")
    return Reply.read(dict(record))


def _same(bound: _Binding, node: Any) -> bool:
    """Whether a number is bound to a node."""
    return bound.node == node.node_id or (bound.registered and bound.key == node.public_key)


def _name(node: Any) -> str:
    """How the record calls a node: the name under which its key was registered, or its id."""
    return str(node.name or node.node_id)


def _size(message: Message) -> int:
    """Bytes of a message as Flower stores and sends it, without HTTP and TLS around it."""
    return sum(len(each.deflate()) for each in get_all_nested_objects(message).values())


def _saved(bound: _Binding) -> dict[str, Any]:
    flags = np.array([bound.registered, bound.answered], np.uint8)
    return {"key": np.frombuffer(bound.key, np.uint8), "flags": flags}


def _restored(arrays: Mapping[str, Any]) -> _Binding:
    registered, answered = arrays["flags"].tolist()
    return _Binding(arrays["key"].tobytes(), bool(registered), None, bool(answered))
