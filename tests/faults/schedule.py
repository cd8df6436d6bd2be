"""One federation under one schedule of faults, and what must be true of it after every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from scarlet.errors import MessageError
from scarlet.protocol.cache import recall
from scarlet.protocol.check import SUM_TOLERANCE
from scarlet.protocol.federation import Federation
from scarlet.protocol.persist import client_arrays, server_arrays
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.server_state import Lessons
from scarlet.protocol.types import Job, Labels, Report, Resync, Signal, Values
from scarlet.rng import stream
from scarlet.wire import frame
from scarlet.wire.codec import KINDS
from tests.faults.disk import Crash, SimulatedDisk
from tests.faults.judge import Violation, check_aggregate, near
from tests.faults.methods import METHODS
from tests.faults.nodes import ClientNode, ServerNode, World

_QUIET_ROUNDS = 2  # without faults, at the end: all must be well again


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, for each message, client or round."""

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    tamper: float = 0.0  # truncate, enlarge or flip a bit
    client_crash: float = 0.0
    server_crash: float = 0.0
    wipe: float = 0.0  # a client's disk is lost, or an old backup restored
    full: float = 0.0  # a disk is full
    set_back: float = 0.0  # an old backup of the server is restored: rounds that clients heard of never happened

    @property
    def only_crashes(self) -> bool:
        """Whether nothing is lost but processes: then the outcome must be that of a run without faults."""
        return not (self.drop or self.delay or self.duplicate or self.tamper or self.wipe or self.full or self.set_back)


def play_schedule(seed: int, codec_name: str = "reference", method: str | None = None) -> Counter[str]:
    """Play one schedule; Violation if an invariant breaks. Returns how often each fault and event occurred.

    `method` is one of METHODS; None draws one.
    """
    rng = stream(seed, "chaos", purpose="schedule")
    world = _world(seed, codec_name, rng, method)
    rounds = int(rng.integers(3, 9))
    if rng.random() < 0.25:
        faults = Faults(client_crash=0.3, server_crash=0.3)
    else:
        likely = rng.random(8) * (rng.random(8) < 0.6) * np.array([0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.15, 0.1])
        unlikely = stream(seed, "chaos", purpose="set back")
        faults = replace(Faults(*likely.tolist()), set_back=0.3 if unlikely.random() < 0.2 else 0.0)
    played = _Play(world, faults, stream(seed, "chaos", purpose="faults"))
    played.rounds(rounds)
    if faults.only_crashes:
        calm = _Play(world, Faults(), stream(seed, "chaos", purpose="calm"))
        calm.rounds(rounds)
        if played.fingerprint() != calm.fingerprint():
            raise Violation("a federation whose processes crashed differs from the one that was never interrupted")
    played.calm_down()
    played.rounds(rounds + _QUIET_ROUNDS)
    return played.events


def _world(seed: int, codec_name: str, rng: np.random.Generator, method: str | None) -> World:
    clients, public_size = int(rng.integers(1, 6)), int(rng.integers(4, 25))
    federation = Federation(
        clients=clients,
        public_size=public_size,
        public_per_round=int(rng.integers(1, public_size + 1)),
        classes=int(rng.integers(2, 5)),
        seed=seed,
        participation=float(rng.choice([1.0, 1.0, 0.5])),
        public=rng.bytes(8),
    )
    features = rng.normal(size=(public_size, 4)).astype(np.float32)
    # SCARLET is drawn as often as all others together.
    name = method or (list(METHODS)[rng.integers(len(METHODS))] if rng.random() < 0.5 else "scarlet")
    built = METHODS[name](rng, federation)
    if built.uplink_bits is None:
        up, down = (bits if bits else None for bits in rng.choice([0, 4, 8, 16, 32], 2).tolist())
        built = replace(built, uplink_bits=up, downlink_bits=down)
    return World(built, federation, codec_name, features)


@dataclass(frozen=True, slots=True)
class Taught:
    """What the server has to say at the beginning of a round."""

    labels: Labels | None
    lessons: Lessons | None
    parameters: Values


class _Play:
    """The network, the clock and the judge."""

    def __init__(self, world: World, faults: Faults, rng: np.random.Generator) -> None:
        self.world = world
        self.faults = faults
        self.rng = rng
        self.wire = world.wire()
        self.events: Counter[str] = Counter()
        self.server = ServerNode(world, SimulatedDisk(rng))
        self.nodes = [ClientNode(world, number, SimulatedDisk(rng)) for number in range(world.federation.clients)]
        self.backups = [node.disk.copy() for node in self.nodes]
        self.server_backup = self.server.disk.copy()
        self.late: list[tuple[int, bytes, bool]] = []  # (client, message, towards the server)
        self.expected: dict[bytes, Taught] = {}  # broadcast -> what goes with it
        self.rebooted = True  # a server that comes up has counted nothing yet
        self.troubled: set[int] = set()  # clients whose cache may rightly differ from what the server believes

    def rounds(self, last: int) -> None:
        """Go on until a round is closed."""
        for _ in range(40 * last):
            if self.server.server.state.round >= last:
                return
            try:
                self._round()
            except Crash:
                self.events["server crash"] += 1
                self._reboot_server()
        raise Violation(f"round {self.server.server.state.round + 1} never came to an end")

    def calm_down(self) -> None:
        """No more faults from here on."""
        self.faults = Faults()
        self.late = []
        for node in self.nodes:
            node.disk.crash_in = node.disk.fail_in = None

    def fingerprint(self) -> bytes:
        """All state of all nodes."""
        parts = [*server_arrays(self.server.server.state).values(), self.server.weights]
        for node in self.nodes:
            parts += [*client_arrays(node.client.state).values(), node.weights]
        return b"".join(array.tobytes() for array in parts)

    # The network

    def _round(self) -> None:
        """One attempt at a round, closed if it got that far."""
        self._misfortunes()
        server = self.server.server
        state = server.state
        labels = None if state.sync is None else recall(state.cache, state.sync)
        taught = Taught(labels, state.lessons, self.server.weights.ravel())
        self.accepted: dict[int, Labels | Values] = {}  # what must have gone into the aggregate
        self.reset: set[int] = set()
        self.reported: set[int] = set()
        self.requested: set[int] = set()  # samples
        if server.state.attempt == 0 or self.rebooted:  # otherwise they go on from the attempt before
            self.doomed = 0  # messages that must have been rejected
            self.sent = self.taken = 0  # bytes
            self.rebooted = False
        downlinks = server.open_round()
        asked = set(downlinks)
        steps_to_crash = int(self.rng.integers(1, 12)) if self._happens("server_crash") else None
        while downlinks:
            for data in downlinks.values():
                self.sent += len(data)
                self.expected[_broadcast(data)] = taught
            queue = [(client, data, False) for client, data in downlinks.items()] + self.late
            self.late = []
            while queue:
                client, data, up = queue.pop(int(self.rng.integers(len(queue))))
                for message in self._carried(client, data, up):
                    if up:
                        self._take(client, message, genuine=message == data)
                    else:
                        replies = self._deliver(client, message, genuine=message == data)
                        queue += [(client, reply, True) for reply in replies]
                if not up and self.faults.only_crashes and not any(which == client for which, _, _ in queue):
                    queue += [(client, data, False)]  # it crashed, and the transport tries again
                if steps_to_crash is not None:
                    steps_to_crash -= 1
                    if steps_to_crash == 0:
                        raise Crash
            downlinks = server.resets()
        self._close(asked)

    def _carried(self, client: int, data: bytes, up: bool) -> list[bytes]:
        """What the network makes of a message: nothing, the message, two of it, or something else."""
        if self._happens("drop"):
            return []
        if self._happens("delay"):
            self.late.append((client, data, up))
            return []
        if self._happens("duplicate"):
            return [data, data]
        return [self._tampered(data)] if self._happens("tamper") else [data]

    def _tampered(self, data: bytes) -> bytes:
        kind, at = int(self.rng.integers(3)), int(self.rng.integers(len(data)))
        if kind == 0:
            return data[:at]
        if kind == 1:
            return data + self.rng.bytes(1 + int(self.rng.integers(2 * len(data))))
        return data[:at] + bytes([data[at] ^ (1 << int(self.rng.integers(8)))]) + data[at + 1 :]

    # The nodes

    def _deliver(self, client: int, downlink: bytes, *, genuine: bool) -> list[bytes]:
        node = self.nodes[client]
        if self._happens("client_crash"):
            node.disk.crash_in = int(self.rng.integers(12))
        if self._happens("full"):
            node.disk.fail_in = int(self.rng.integers(2))
        try:
            task = node.client.receive(downlink)
            if isinstance(task, Job):
                if (task.round, task.attempt) == self._now():
                    self.requested = set(task.request.tolist())
                self._check_teacher(client, downlink, task)
                return node.work(task)
        except MessageError as error:  # a downlink that was damaged on its way
            if genuine:
                raise Violation(f"client {client} refuses what the server sent: {error}") from None
            return []
        except (Crash, OSError) as error:
            self.events["client crash" if isinstance(error, Crash) else "client disk full"] += 1
            node.disk.crash()
            node.boot()
            return []
        if frame.unwrap(task[0]).kind == KINDS[Resync]:
            self.events["resync"] += 1
            if genuine and client not in self.troubled:  # a downlink may have been cut before what the client lacks
                raise Violation(f"client {client} is out of step, though nothing happened to it")
        return task

    def _take(self, client: int, message: bytes, *, genuine: bool) -> None:
        server = self.server.server
        self.taken += len(message)
        if not genuine:
            self.doomed += 1
        else:
            outer = frame.unwrap(message)
            report, resync = (outer.kind == KINDS[kind] for kind in (Report, Resync))
            second = client in self.reported if report else client in self.accepted
            if (outer.round, outer.attempt) != self._now() or second or (resync and client in self.reset):
                self.doomed += 1
            elif report:
                self.reported.add(client)
            elif resync:
                self.reset.add(client)
            else:
                self.accepted[client] = self.nodes[client].said[message]
                self.events["labels not sent again"] += self.nodes[client].unsent.get(message, 0)
        server.take(client, message)

    def _now(self) -> tuple[int, int]:
        """The round and attempt under way."""
        state = self.server.server.state
        return state.round + 1, state.attempt

    def _misfortunes(self) -> None:
        """What happens to disks between rounds."""
        for number, node in enumerate(self.nodes):
            if self._happens("wipe"):
                backup = self.rng.random() < 0.5
                node.disk = self.backups[number].copy() if backup else SimulatedDisk(self.rng)
                node.boot()
                self.troubled.add(number)
            elif self.rng.random() < 0.3:
                self.backups[number] = node.disk.copy()
        if self.faults.set_back:
            self._set_back()
        if self.faults.delay or self.faults.duplicate:
            # A downlink of long ago sets a client back, and it is healed like one that restored a backup.
            self.troubled |= set(range(len(self.nodes)))

    def _set_back(self) -> None:
        """Restore the server's backup, or make a new one, or neither."""
        if self._happens("set_back"):
            self.server.disk = self.server_backup.copy()
            self.server.boot()
            self.server.saved = self.server.saves
            self.rebooted = True
            self.troubled |= set(range(len(self.nodes)))
            self.late = []  # nobody could tell answers to a round that never happened from answers to its namesake
        elif self.rng.random() < 0.3:
            self.server_backup = self.server.disk.copy()

    def _reboot_server(self) -> None:
        saved = self.server.saved
        self.server.disk.crash()
        self.server.boot()
        self.rebooted = True
        if self.server.saves < saved:
            raise Violation(
                f"checkpoint {saved} was reported as written and is gone: the newest is {self.server.saves}"
            )

    # The judge

    def _close(self, asked: set[int]) -> None:
        server = self.server.server
        ledger = server.ledger
        down = ledger.round_total("downlink").size + ledger.round_total("catch_up").size
        up = sum(ledger.round_total(column).size for column in ("uplink", "report", "rejected"))
        if (down, up) != (self.sent, self.taken):
            raise Violation(
                f"the ledger has {down} bytes down and {up} up; {self.sent} and {self.taken} were handed over"
            )
        closed = server.close_round()
        if closed is not None:
            self._check_closed(closed, asked)
        if self._happens("server_crash"):
            self.server.disk.crash_in = int(self.rng.integers(12))
        if self._happens("full"):
            self.server.disk.fail_in = int(self.rng.integers(2))
        try:
            self.server.save()
        except OSError:  # the run ends with one line, and is resumed when there is room
            self.events["server disk full"] += 1
            raise Crash from None
        finally:
            self.server.disk.crash_in = self.server.disk.fail_in = None
        # Only now does the server know for good that it has sent these clients all that they need.
        self.troubled -= self.reset & set(self.accepted)

    def _check_teacher(self, client: int, downlink: bytes, job: Job) -> None:
        taught = self.expected[_broadcast(downlink)]
        expected = taught.labels if taught.lessons is None else taught.lessons.of(client)
        if expected is None:
            if len(job.teacher.index):
                raise Violation(f"client {client} is taught in round {job.round}, though the server taught nothing yet")
        elif not (
            np.array_equal(job.teacher.index, expected.index) and np.array_equal(job.teacher.value, expected.value)
        ):
            raise Violation(f"client {client} is taught other labels in round {job.round} than the server taught")
        if job.parameters is not None and not np.array_equal(job.parameters, taught.parameters):
            raise Violation(f"client {client} is sent another model in round {job.round} than the server's")

    def _check_closed(self, closed: ClosedRound, asked: set[int]) -> None:
        state = self.server.server.state
        for value in (closed.taught.value, state.cache.value[state.cache.stamp >= 0]):
            if not (np.isfinite(value).all() and (value >= 0).all() and near(value.sum(axis=-1), 1, SUM_TOLERANCE)):
                raise Violation(f"a label of round {closed.round} is not a distribution")
        if closed.answers != len(self.accepted):
            raise Violation(f"{closed.answers} answers were counted where {len(self.accepted)} were given")
        if sum(closed.rejections.values()) != self.doomed:
            raise Violation(f"{self.doomed} messages had to be rejected; counted are {dict(closed.rejections)}")
        self.events.update({f"rejected: {reason}": count for reason, count in closed.rejections.items()})
        self._note(closed)
        if self.accepted:
            check_aggregate(self.server, closed, self.accepted)
        if self.faults == Faults() and closed.answers != len(asked):
            raise Violation(f"only {closed.answers} of {len(asked)} clients answered a round without faults")

    def _note(self, closed: ClosedRound) -> None:
        """Count what is rare, and must have been played."""
        said = [labels.index for labels in self.accepted.values() if isinstance(labels, Labels)]
        self.events["samples that nobody answered"] += len(self.requested.difference(*map(np.ndarray.tolist, said)))
        self.events["rounds of hits only"] += closed.hit_ratio == 1
        sync = self.server.server.state.sync
        if sync is not None and sync.signal is not None:
            self.events["labels announced as unchanged"] += int(np.count_nonzero(sync.signal == Signal.UNCHANGED))

    def _happens(self, fault: str) -> bool:
        happens = bool(self.rng.random() < getattr(self.faults, fault))
        self.events[fault] += happens
        return happens


def _broadcast(downlink: bytes) -> bytes:
    return frame.split(downlink)[0]
