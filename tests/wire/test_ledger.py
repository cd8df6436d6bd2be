from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.wire.ledger import COLUMNS, Bytes, Column, Ledger

Entry = tuple[Column, int, int, int]  # column, client, payload, frame
entry = st.tuples(st.sampled_from(COLUMNS), st.integers(0, 3), st.integers(0, 10**12), st.integers(0, 100))
plays = st.lists(st.lists(entry, max_size=12), min_size=1, max_size=5)


def written(rounds: list[list[Entry]]) -> Ledger:
    ledger = Ledger()
    for entries in rounds:
        ledger.open_round()
        for column, client, payload, frame in entries:
            ledger.add(column, client, size=payload + frame, payload=payload)
    return ledger


def literal_sum(entries: list[Entry], column: Column, client: int | None = None) -> Bytes:
    chosen = [entry for entry in entries if entry[0] == column and client in (None, entry[1])]
    return Bytes(sum(payload for _, _, payload, _ in chosen), sum(frame for _, _, _, frame in chosen))


@settings(deadline=None)
@given(plays)
def test_the_totals_are_the_sums_over_all_rounds(rounds: list[list[Entry]]) -> None:
    ledger, everything = written(rounds), [entry for entries in rounds for entry in entries]
    for column in COLUMNS:
        assert ledger.total[column] == literal_sum(everything, column)


@settings(deadline=None)
@given(plays)
def test_a_round_counts_only_what_was_added_since_it_was_opened(rounds: list[list[Entry]]) -> None:
    ledger, last = written(rounds), rounds[-1]
    assert set(ledger.by_client()) == {client for _, client, _, _ in last}
    for column in COLUMNS:
        assert ledger.round_total(column) == literal_sum(last, column)
        for client, columns in ledger.by_client().items():
            assert columns[column] == literal_sum(last, column, client)


def test_the_papers_cost_is_what_the_method_sends_without_frames_reports_and_what_was_rejected() -> None:
    rounds: list[list[Entry]] = [
        [("uplink", 0, 100, 7), ("report", 0, 10_000, 7), ("rejected", 0, 50_000, 7)],
        [("downlink", 1, 20, 7), ("uplink", 1, 3, 7), ("catch_up", 1, 4_000, 7)],
    ]
    assert written(rounds).cumulative_payload == 4_123


def test_a_new_ledger_is_empty() -> None:
    ledger = Ledger()
    assert ledger.by_client() == {}
    assert ledger.cumulative_payload == 0
    assert ledger.round_total("uplink") == Bytes(0, 0)
