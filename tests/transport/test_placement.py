from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scarlet.transport.placement import Placement


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[int], list[set[int]], list[set[int]]]:
    workers = draw(st.integers(1, 5))
    costs = draw(st.lists(st.one_of(st.just(10), st.integers(1, 50)), min_size=1, max_size=30))
    rounds = draw(st.integers(1, 4))
    asked = [draw(st.sets(st.integers(0, len(costs) - 1))) for _ in range(rounds)]
    free = [draw(st.sets(st.integers(0, workers - 1))) for _ in range(rounds)]
    return workers, costs, asked, free


@given(cases())
def test_whoever_is_asked_runs_once_and_no_move_would_help(
    case: tuple[int, list[int], list[set[int]], list[set[int]]],
) -> None:
    workers, costs, rounds, frees = case
    placement = Placement(workers, costs.__getitem__)
    for asked, free in zip(rounds, frees, strict=True):
        before = {client: placement.home(client) for client in range(len(costs))}
        shares = placement.at_home(asked)
        came_from = placement.balance(shares, free)
        assert sorted(client for share in shares for client in share) == sorted(asked)
        for worker, share in enumerate(shares):
            assert all(placement.home(client) == worker for client in share)
        moved = {client for client in before if placement.home(client) != before[client]}
        assert came_from == {client: before[client] for client in moved}
        assert all({before[client], placement.home(client)} <= free for client in moved)
        loads = {worker: sum(costs[client] for client in shares[worker]) for worker in free}
        for one in free:
            for other in free:
                gap = loads[one] - loads[other]
                assert all(costs[client] >= gap for client in shares[one])


@given(st.integers(1, 6), st.sets(st.integers(0, 99)))
def test_clients_that_cost_the_same_are_shared_out_evenly(workers: int, asked: set[int]) -> None:
    placement = Placement(workers, lambda client: 7)
    shares = placement.at_home(asked)
    placement.balance(shares, range(workers))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_nobody_moves_where_all_have_as_much_to_do() -> None:
    placement = Placement(2, lambda client: 1)
    shares = placement.at_home(range(11))
    assert placement.balance(shares, (0, 1)) == {} and shares == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9]]


def test_who_has_moved_stays_there() -> None:
    placement = Placement(2, lambda client: 1)
    assert placement.balance(placement.at_home([0, 2]), (0, 1)) == {0: 0}
    assert placement.at_home([0, 2]) == [[2], [0]]
    assert placement.balance(placement.at_home([0, 2]), (0, 1)) == {}
