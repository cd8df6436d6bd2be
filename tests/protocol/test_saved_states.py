"""A server and clients that are restored go on byte for byte, whatever the method and the codec."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from scarlet.protocol.client import ClientState
from scarlet.protocol.downlink.personal import Lessons, PersonalServerState
from scarlet.protocol.downlink.shared import SharedClientState, SharedServerState
from scarlet.protocol.messages import Exceptional, Sync
from scarlet.protocol.server import ServerState
from scarlet.protocol.slots import NoState
from scarlet.protocol.stamps import StampHistory, StampReplay
from scarlet.protocol.state import pack, restore
from scarlet.protocol.uplink.delta import AcceptedState, Memory, SentState
from tests.protocol.disturbed import METHODS, Disturbed, Events, disturbances
from tests.protocol.federation import contents, memory, saved

PAST, FUTURE = 7, 5  # rounds before and after
each_codec = pytest.mark.parametrize("coding", ["reference", "compact"])


def past(name: str, coding: str) -> tuple[Disturbed, Iterator[Events]]:
    """A federation to which everything happened for some rounds, and what will happen next."""
    federation, events = Disturbed(name, coding, 0.8), disturbances(len(name))
    for _ in range(PAST):
        federation.endure(events)
    return federation, events


def twin_of(federation: Disturbed, name: str, coding: str) -> Disturbed:
    """A new federation with the state of another."""
    twin = Disturbed(name, coding, 0.8)
    restore(twin.server.state, saved(federation.server.state))
    for client in federation.clients:
        twin.restore_client(client.number, saved(client.state))
    twin.ledger.total.update(federation.ledger.total)
    twin.server.learner, twin.taught, twin.copies = deepcopy(
        (federation.server.learner, federation.taught, federation.copies)
    )
    return twin


@each_codec
@pytest.mark.parametrize("name", METHODS)
def test_a_federation_that_is_restored_goes_on_byte_for_byte(name: str, coding: str) -> None:
    federation, events = past(name, coding)
    twin = twin_of(federation, name, coding)
    assert contents(twin.server.state) == contents(federation.server.state)
    later = [next(events) for _ in range(8 * FUTURE)]
    ours, theirs = iter(later), iter(later)
    for _ in range(FUTURE):
        federation.endure(ours)
        twin.endure(theirs)
        assert twin.messages == federation.messages
        assert memory(twin.server) == memory(federation.server)
        for one, other in zip(twin.clients, federation.clients, strict=True):
            assert contents(one.state) == contents(other.state)


@each_codec
@pytest.mark.parametrize("name", METHODS)
def test_what_the_server_keeps_of_clients_is_saved_by_client_only_under_delta_coding(name: str, coding: str) -> None:
    federation, _ = past(name, coding)
    packed = pack(federation.server.state)
    if "delta" not in name:
        assert packed.by_client == {}
        return
    accepted = federation.server.state.uplink.accepted
    assert set(packed.by_client) == set(accepted) and len(accepted) > 1
    for client, its in packed.by_client.items():
        at = f"uplink.accepted.{client}"
        assert set(its) == {f"{at}.(text)", f"{at}.value", f"{at}.known", f"{at}.name"}
        assert its[f"{at}.value"] is accepted[client].value
    assert all(pack(client.state).by_client == {} for client in federation.clients)


def dataclasses_in(value: object) -> Iterator[Any]:
    """All dataclasses of a state."""
    if is_dataclass(value):
        yield value
        for each in fields(value):
            yield from dataclasses_in(getattr(value, each.name))
    elif isinstance(value, dict):
        for part in value.values():
            yield from dataclasses_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from dataclasses_in(part)


def test_a_field_that_is_not_declared_cannot_be_set_anywhere_in_a_state() -> None:
    seen = set()
    for name in METHODS:
        for coding in ("reference", "compact"):
            federation, _ = past(name, coding)
            for state in (federation.server.state, *(client.state for client in federation.clients)):
                for part in dataclasses_in(state):
                    seen.add(type(part))
                    assert not hasattr(part, "__dict__"), type(part)
                    with pytest.raises((AttributeError, TypeError)):
                        part.not_declared = 1
    assert seen >= {
        ServerState,
        ClientState,
        NoState,
        SharedServerState,
        SharedClientState,
        PersonalServerState,
        Lessons,
        Sync,
        StampHistory,
        StampReplay,
        Exceptional,
        AcceptedState,
        SentState,
        Memory,
    }


def test_a_state_is_restored_in_place_and_cannot_be_replaced() -> None:
    federation, _ = past("cfd, delta", "compact")
    for side in (federation.server, federation.clients[0]):
        with pytest.raises(AttributeError):
            side.state = deepcopy(side.state)  # type: ignore[misc]


def test_a_model_that_was_answered_is_saved_in_as_many_bytes_as_it_has() -> None:
    federation, _ = past("fedavg", "reference")
    client = federation.clients[0]
    client.state.reply = [bytes(1_000_000), b"report"]
    arrays = saved(client.state)
    assert sum(array.nbytes for array in arrays.values()) < sum(map(len, client.state.reply)) + 5_000
    assert arrays["reply.0"].dtype == np.uint8
