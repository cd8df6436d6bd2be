"""A federation under faults: its nodes, the network between them, and what must be true after every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from scarlet.arrays import Labels, Values
from scarlet.errors import MessageError
from scarlet.job import Job
from scarlet.protocol.downlink.shared import SharedServerState
from scarlet.protocol.messages import Report, Resync, Signal
from scarlet.protocol.server import ClosedRound
from scarlet.wire import frame
from tests.faults.disk import Crash, SimulatedDisk
from tests.faults.judge import Taught, Violation, alike, check_aggregate, check_distributions, check_teacher
from tests.faults.nodes import ClientNode, ServerNode, World


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, for each message, client or round."""

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


class Play:
    """One federation, played round by round."""

    def __init__(self, world: World, faults: Faults, rng: np.random.Generator) -> None:
        self.world = world
        self.faults = faults
        self.rng = rng
        self.events: Counter[str] = Counter()
        self.server = ServerNode(world, SimulatedDisk(rng))
        self.clients = [ClientNode(world, number, SimulatedDisk(rng)) for number in range(world.agreement.clients)]
        self.backups = [client.disk.copy() for client in self.clients]
        self.server_backup = self.server.disk.copy()
        self.late: list[tuple[int, bytes, bool]] = []  # (client, message, whether it goes to the server)
        self.taught: dict[bytes, Taught] = {}  # broadcast -> what goes with it
        self.rebooted = True  # a server that comes up has counted nothing yet
        self.may_differ: set[int] = set()  # clients whose cache may rightly differ from what the server believes
        kinds = {message: layout.kind for message, layout in world.codec.layouts.items()}
        self.report, self.resync = kinds[Report], kinds[Resync]

    def rounds(self, last: int) -> None:
        """Go on until a round is closed."""
        attempts = 200 if self.faults.set_back else 40  # a server that is set back undoes rounds that were closed
        for _ in range(attempts * last):
            if self.server.server.state.round >= last:
                return
            try:
                self._round()
            except Crash:
                self.events["server crash"] += 1
                self._reboot_server()
        raise Violation(f"round {self.server.server.state.round + 1} never came to an end")

    def stop_faults(self) -> None:
        """No more faults from here on."""
        self.faults = Faults()
        self.late = []
        for client in self.clients:
            client.disk.crash_in = client.disk.fail_in = None

    def ended_as(self, other: Play) -> bool:
        """Whether all nodes are in the same state as those of another play."""
        return alike(self._states(), other._states())

    def _states(self) -> list[object]:
        clients = [(client.node.client.state, client.model.arrays()) for client in self.clients]
        return [self.server.server.state, self.server.model.arrays(), *clients]

    # The network

    def _round(self) -> None:
        """One attempt at a round, closed if it got that far."""
        self._disk_faults()
        server = self.server.server
        taught = Taught.by(self.server)
        self.accepted: dict[int, Labels | Values] = {}  # what must have gone into the aggregate
        self.reset: set[int] = set()
        self.reported: set[int] = set()
        self.requested: set[int] = set()  # samples
        if server.state.attempt == 0 or self.rebooted:  # otherwise they go on from the attempt before
            self.must_reject = 0  # messages that must have been rejected
            self.sent = self.taken = 0  # bytes
            self.rebooted = False
        downlinks = server.open_round()
        asked = set(downlinks)
        steps_to_crash = int(self.rng.integers(1, 12)) if self._happens("server_crash") else None
        while downlinks:
            for data in downlinks.values():
                self.sent += len(data)
                self.taught[_broadcast(data)] = taught
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
        change, at = int(self.rng.integers(3)), int(self.rng.integers(len(data)))
        if change == 0:
            return data[:at]
        if change == 1:
            return data + self.rng.bytes(1 + int(self.rng.integers(2 * len(data))))
        return data[:at] + bytes([data[at] ^ (1 << int(self.rng.integers(8)))]) + data[at + 1 :]

    # The nodes

    def _deliver(self, number: int, downlink: bytes, *, genuine: bool) -> list[bytes]:
        client = self.clients[number]
        if self._happens("client_crash"):
            client.disk.crash_in = int(self.rng.integers(12))
        if self._happens("full"):
            client.disk.fail_in = int(self.rng.integers(2))
        try:
            task = client.node.begin(downlink)
            if isinstance(task, Job):
                if (task.round, task.attempt) == self._now():
                    self.requested = set(task.request.tolist())
                check_teacher(self.taught[_broadcast(downlink)], task)
                return client.work(task)
        except MessageError as error:  # a downlink that was damaged on its way
            if genuine:
                raise Violation(f"client {number} refuses what the server sent: {error}") from None
            return []
        except (Crash, OSError) as error:
            self.events["client crash" if isinstance(error, Crash) else "client disk full"] += 1
            client.disk.crash()
            client.boot()
            return []
        if frame.unwrap(task[0]).kind == self.resync:
            self.events["resync"] += 1
            if genuine and number not in self.may_differ:  # a downlink may have been cut before what the client lacks
                raise Violation(f"client {number} is out of step, though nothing happened to it")
        return task

    def _take(self, client: int, message: bytes, *, genuine: bool) -> None:
        self.taken += len(message)
        if not genuine:
            self.must_reject += 1
        else:
            outer = frame.unwrap(message)
            report, resync = outer.kind == self.report, outer.kind == self.resync
            second = client in self.reported if report else client in self.accepted
            if (outer.round, outer.attempt) != self._now() or second or (resync and client in self.reset):
                self.must_reject += 1
            elif report:
                self.reported.add(client)
            elif resync:
                self.reset.add(client)
            else:
                self.accepted[client] = said = self.clients[client].said[message]
                self.clients[client].known = True
                self.events["answers without labels"] += isinstance(said, Labels) and not len(said.index)
                self.events["labels not sent again"] += self.clients[client].unsent.get(message, 0)
        self.server.server.take(client, message)

    def _now(self) -> tuple[int, int]:
        """The round and attempt under way."""
        state = self.server.server.state
        return state.round + 1, state.attempt

    def _disk_faults(self) -> None:
        """What happens to disks between rounds."""
        for number, client in enumerate(self.clients):
            if self._happens("wipe"):
                backup = self.rng.random() < 0.5
                client.disk = self.backups[number].copy() if backup else SimulatedDisk(self.rng)
                client.boot()
                self.may_differ.add(number)
            elif self.rng.random() < 0.3:
                self.backups[number] = client.disk.copy()
        if self.faults.set_back:
            self._set_back()
        if self.faults.delay or self.faults.duplicate:
            # A downlink of long ago sets a client back, and it is healed like one that restored a backup.
            self.may_differ |= set(range(len(self.clients)))

    def _set_back(self) -> None:
        """Restore the server's backup, or make a new one, or neither."""
        if self._happens("set_back"):
            self.server.disk = self.server_backup.copy()
            self.server.boot()
            self.server.saved = self.server.saves
            self.rebooted = True
            self.may_differ |= set(range(len(self.clients)))
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

    # The end of a round

    def _close(self, asked: set[int]) -> None:
        ledger = self.server.server.ledger
        down = ledger.round_total("downlink").size + ledger.round_total("catch_up").size
        up = sum(ledger.round_total(column).size for column in ("uplink", "report", "rejected"))
        if (down, up) != (self.sent, self.taken):
            raise Violation(
                f"the ledger has {down} bytes down and {up} up; {self.sent} and {self.taken} were handed over"
            )
        closed = self.server.server.close_round()
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
        self.may_differ -= self.reset & set(self.accepted)

    def _check_closed(self, closed: ClosedRound, asked: set[int]) -> None:
        check_distributions(self.server, closed)
        if closed.answers != len(self.accepted):
            raise Violation(f"{closed.answers} answers were counted where {len(self.accepted)} were given")
        if sum(closed.rejections.values()) != self.must_reject:
            raise Violation(f"{self.must_reject} messages had to be rejected; counted are {dict(closed.rejections)}")
        self._count(closed)
        if self.accepted:
            check_aggregate(self.server, closed, self.accepted)
        if self.faults == Faults() and closed.answers != len(asked):
            raise Violation(f"only {closed.answers} of {len(asked)} clients answered a round without faults")

    def _count(self, closed: ClosedRound) -> None:
        """Count what is rare, and must have been played."""
        self.events.update({f"rejected: {reason}": count for reason, count in closed.rejections.items()})
        said = [labels.index for labels in self.accepted.values() if isinstance(labels, Labels)]
        self.events["samples that nobody answered"] += len(self.requested.difference(*map(np.ndarray.tolist, said)))
        self.events["rounds of hits only"] += closed.hit_ratio == 1
        state = self.server.server.state.downlink
        if isinstance(state, SharedServerState) and state.sync is not None and state.sync.signal is not None:
            unchanged = np.count_nonzero(state.sync.signal == Signal.UNCHANGED)
            self.events["labels announced as unchanged"] += int(unchanged)

    def _happens(self, fault: str) -> bool:
        happens = bool(self.rng.random() < getattr(self.faults, fault))
        self.events[fault] += happens
        return happens


def _broadcast(downlink: bytes) -> bytes:
    return frame.split(downlink)[0]
