"""Which worker runs which client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class Placement:
    """Client k lives on worker k modulo `workers`, until it goes to where there is less to do."""

    def __init__(self, workers: int, cost: Callable[[int], int]) -> None:
        self._workers = workers
        self._cost = cost  # of a client's part of a round; above zero
        self._moved: dict[int, int] = {}  # where those live that have moved

    def home(self, client: int) -> int:
        """The worker that a client lives on."""
        return self._moved.get(client, client % self._workers)

    def at_home(self, clients: Iterable[int]) -> list[list[int]]:
        """For each worker, who of some clients lives there."""
        shares: list[list[int]] = [[] for _ in range(self._workers)]
        for client in clients:
            shares[self.home(client)].append(client)
        return shares

    def balance(self, shares: list[list[int]], free: Iterable[int]) -> dict[int, int]:
        """Let clients move between some workers until no further move would help; where those who move come from."""
        came_from: dict[int, int] = {}
        loads = {worker: sum(map(self._cost, shares[worker])) for worker in free}
        while move := self._best_move(shares, loads):
            client, giver, taker = move
            shares[giver].remove(client)
            shares[taker].append(client)
            loads[giver] -= self._cost(client)
            loads[taker] += self._cost(client)
            came_from.setdefault(client, giver)
            self._moved[client] = taker
        return {client: worker for client, worker in came_from.items() if worker != self.home(client)}

    def _best_move(self, shares: list[list[int]], loads: Mapping[int, int]) -> tuple[int, int, int] | None:
        """A client, and the workers that it leaves and goes to: the latter has the least to do.

        Their loads come nearer to each other by it, so that moves come to an end.
        """
        by_load = sorted(loads, key=loads.__getitem__)
        for giver in reversed(by_load):
            gap = loads[giver] - loads[by_load[0]]
            if movable := [client for client in shares[giver] if self._cost(client) < gap]:
                return min(movable, key=lambda client: abs(gap / 2 - self._cost(client))), giver, by_load[0]
        return None
