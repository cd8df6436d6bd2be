"""Whatever is done to a message of the compact codec, it is refused or valid, and takes no memory to speak of."""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.job import Job
from scarlet.protocol.client import Client
from scarlet.protocol.messages import Resync
from scarlet.protocol.server import Server
from scarlet.wire import frame
from tests.protocol.disturbed import METHODS, Disturbed, copied, disturbances
from tests.protocol.federation import AGREEMENT

pytestmark = pytest.mark.xdist_group("mutations")  # the messages are made once, in one process

HEADER = struct.Struct("<4sBBHIII")


@dataclass(frozen=True)
class Case:
    """A message, and whom it is for as that side was before: a client, or the server with its sender."""

    data: bytes
    client: Client | None
    server: Server | None
    sender: int


def cases(names: Collection[str] = tuple(METHODS)) -> list[Case]:
    """Messages of every kind, from rounds in which everything goes wrong."""
    return [case for name in names for case in _cases_of(name)]


@cache
def _cases_of(name: str) -> list[Case]:
    federation = Disturbed(name, "compact", 0.5)
    events, found = disturbances(len(name)), []
    for round in range(12):
        federation.endure(events)
        if round in (0, 1, 5, 11):
            found += [Case(downlink, client, None, client.number) for client, downlink in federation.received]
    # The answers of a round that is still open.
    downlinks = federation.server.open_round()
    server = deepcopy(federation.server)
    for number, downlink in downlinks.items():
        client = federation.clients[number]
        task = client.receive(downlink)
        replies = client.reply(task, federation.result(task)) if isinstance(task, Job) else task
        found += [Case(data, None, server, number) for data in replies]
    return found


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A message, or a row of them, of which one is changed; in half of the cases its frame is made to fit again."""
    parts = frame.split(data)
    chosen = int(rng.integers(len(parts)))
    part = bytearray(parts[chosen])
    repaired = rng.random() < 0.5
    start = frame.SIZE if repaired and rng.random() < 0.8 else 0  # mostly the body: a frame has few ways to be wrong
    start = min(start, len(part) - 1)
    match int(rng.integers(5)):
        case 0:
            for bit in rng.integers(8 * start, 8 * len(part), size=rng.integers(1, 4)).tolist():
                part[bit // 8] ^= 1 << bit % 8
        case 1:
            part[int(rng.integers(start, len(part)))] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
        case 2:
            del part[int(rng.integers(start, len(part))) :]
        case 3:
            part += rng.bytes(int(rng.integers(1, 20)))
        case _:
            a, b, c = np.sort(rng.integers(start, len(part) + 1, size=3)).tolist()
            part[a:c] = part[b:c] + part[a:b]
    if repaired and len(part) >= frame.SIZE:
        _, _, kind, attempt, round, _, _ = HEADER.unpack_from(part)
        part = bytearray(frame.wrap(kind, round, attempt, bytes(part[frame.SIZE :])))
    parts[chosen] = bytes(part)
    if rng.random() < 0.02:
        parts = [parts[at] for at in rng.permutation(len(parts)).tolist()]
    return b"".join(parts)


def outcome(case: Case, data: bytes) -> str:
    """What becomes of changed bytes; whatever is not a MessageError is raised."""
    if case.client is not None:
        client = copied(case.client)
        try:
            task = client.receive(data)
        except MessageError:
            return "client: refused"
        if task is client.state.reply:
            return "client: answered before"
        if isinstance(task, list):
            (resync,) = task
            assert isinstance(client.codec.decode(resync), Resync)
            return "client: out of step"
        check_job(task, client)
        return "client: read"
    assert case.server is not None
    server = copied(case.server)
    server.take(case.sender, data)
    return f"server: {next(iter(server.rejections), 'read')}"


def check_job(job: Job, client: Client) -> None:
    for index in (job.request, job.teacher.index):
        assert (np.diff(index) > 0).all()
        assert not len(index) or 0 <= index[0] <= index[-1] < AGREEMENT.public_size
    assert job.teacher.value.shape == (len(job.teacher.index), *client.codec.label)
    assert (job.teacher.value >= 0).all()
    assert np.allclose(job.teacher.value.sum(axis=-1), 1, atol=1e-3)


def chosen(every: list[Case], count: int, rng: np.random.Generator) -> Iterator[Case]:
    return (every[at] for at in rng.integers(len(every), size=count).tolist())


def test_whatever_is_done_to_a_message_it_is_refused_or_valid() -> None:
    rng = np.random.default_rng(0)
    every = cases()
    found = Counter(outcome(case, mutated(case.data, rng)) for case in chosen(every, 20_000, rng))
    assert sum(found.values()) == 20_000
    for name in ("client: refused", "client: out of step", "client: read", "server: unreadable", "server: read"):
        assert found[name] > 100, found


def test_a_message_that_nobody_changed_is_read() -> None:
    found = Counter(outcome(case, case.data) for case in cases())
    assert set(found) <= {"client: read", "client: out of step", "server: read"}
    assert found["client: read"] > 10 * found["client: out of step"] > 0


def peak(case: Case, data: bytes) -> int:
    """The most memory that it took to read something."""
    client = None if case.client is None else copied(case.client)
    server = None if case.server is None else copied(case.server)
    tracemalloc.start()
    try:
        if client is not None:
            client.receive(data)
        if server is not None:
            server.take(case.sender, data)
    except MessageError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def test_no_message_takes_much_more_memory_than_the_one_that_it_was() -> None:
    rng = np.random.default_rng(1)
    every = cases(["scarlet, refresh, D 2", "cfd, delta, cache", "comet, server", "fedavg"])
    legitimate = {id(case): peak(case, case.data) for case in every}
    for case in chosen(every, 1_000, rng):
        assert peak(case, mutated(case.data, rng)) <= 2 * legitimate[id(case)] + 2**20
