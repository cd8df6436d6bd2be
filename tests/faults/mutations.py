"""What becomes of messages that were changed on their way.

    python -m tests.faults.mutations --count 1000000

Messages of all methods, taken from schedules of faults, have bits flipped, are cut, extended or have parts of them
swapped; half of them get a frame that fits again. Each must be refused with a MessageError or be valid: whatever else
happens ends this with a traceback.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.job import Job
from scarlet.protocol.client import Client
from scarlet.protocol.codecs import CODECS
from scarlet.protocol.downlink.personal import Personal
from scarlet.protocol.messages import Resync
from scarlet.protocol.server import Server
from scarlet.wire import frame
from scarlet.wire.quantise import RAW_BITS
from tests.faults.judge import Violation
from tests.faults.methods import METHODS
from tests.faults.play import Play
from tests.faults.schedule import play_schedule

_KEPT = 0.2  # share of the messages that become cases
_HEADER = struct.Struct("<5xBHI")  # kind, attempt and round, after magic and version


@dataclass(frozen=True, slots=True)
class Case:
    """A message, and its receiver as it was before."""

    data: bytes
    receiver: Client | Server
    sender: int  # where a server is the receiver


def cases(codec: str, schedules: int = 4, methods: Collection[str] = tuple(METHODS)) -> list[Case]:
    """Genuine messages of every kind, from schedules of each method."""
    found: list[Case] = []
    rng = np.random.default_rng(0)
    deliver, take = Play._deliver, Play._take

    def add(data: bytes, receiver: Client | Server, sender: int) -> None:
        if rng.random() < _KEPT:
            found.append(Case(data, _copied(receiver), sender))

    def delivered(self: Play, number: int, downlink: bytes, *, genuine: bool) -> list[bytes]:
        if genuine:
            add(downlink, self.clients[number].node.client, number)
        return deliver(self, number, downlink, genuine=genuine)

    def taken(self: Play, client: int, message: bytes, *, genuine: bool) -> None:
        if genuine:
            add(message, self.server.server, client)
        take(self, client, message, genuine=genuine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Play, "_deliver", delivered)
        patch.setattr(Play, "_take", taken)
        for method in methods:
            for seed in range(schedules):
                play_schedule(seed, codec, method)
    return found


def _copied(side: Client | Server) -> Client | Server:
    """A copy that shares what never changes."""
    return deepcopy(side, {id(part): part for part in (side.method, side.codec)})


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A message, or several in a row, of which one is changed; in half of the cases its frame fits again."""
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
        kind, attempt, round = _HEADER.unpack_from(part)
        part = bytearray(frame.wrap(kind, round, attempt, bytes(part[frame.SIZE :])))
    parts[chosen] = bytes(part)
    if rng.random() < 0.02:
        parts = [parts[at] for at in rng.permutation(len(parts)).tolist()]
    return b"".join(parts)


def outcome(case: Case, data: bytes) -> str:
    """What becomes of changed bytes; whatever is not a MessageError is raised."""
    receiver = _copied(case.receiver)
    if isinstance(receiver, Server):
        before = Counter(receiver.rejections)
        receiver.take(case.sender, data)
        return f"server: {next(iter(Counter(receiver.rejections) - before), 'read')}"
    try:
        task = receiver.receive(data)
    except MessageError:
        return "client: refused"
    if isinstance(task, Job):
        _check_job(task, receiver)
        return "client: read"
    if task is receiver.state.reply:
        return "client: answered before"
    (resync,) = task
    assert isinstance(receiver.codec.decode(resync), Resync)
    return "client: out of step"


def _check_job(job: Job, client: Client) -> None:
    for index in (job.request, job.teacher.index):
        if len(index) and not (index[0] >= 0 and (np.diff(index) > 0).all() and index[-1] < client.codec.public_size):
            raise Violation(f"client {client.number} is given samples that there are not: {index}")
    value = job.teacher.value
    if value.shape != (len(job.teacher.index), *client.codec.label):
        raise Violation(f"client {client.number} is taught labels of shape {value.shape}")
    if isinstance(client.method.downlink, Personal) and client.codec.downlink_bits >= RAW_BITS:
        return  # a lesson has no digest, and float32 can be anything
    if (value < 0).any() or not np.allclose(value.sum(axis=-1), 1, atol=1e-3):
        raise Violation(f"client {client.number} is taught what is not a distribution")


def outcomes(every: list[Case], count: int, rng: np.random.Generator) -> Iterator[str]:
    """What becomes of so many changes to cases drawn at random."""
    for at in rng.integers(len(every), size=count).tolist():
        yield outcome(every[at], mutated(every[at].data, rng))


def main() -> None:
    """Change messages of one codec, and count what becomes of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.mutations",
        description="Change messages, and count what becomes of them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="changed messages")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    parser.add_argument("--codec", choices=CODECS, default="compact", help="how messages become bytes")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    every = cases(options.codec)
    start = time.process_time()
    found = Counter(outcomes(every, options.count, rng))
    seconds = time.process_time() - start
    for name, count in found.most_common():
        print(f"{count:9,}  {name}")
    print(f"{found.total():9,}  changes of {len(every):,} messages, {1e6 * seconds / found.total():.0f} us each")


if __name__ == "__main__":
    main()
