from __future__ import annotations

import dataclasses

from scarlet.records import RoundRecord
from scarlet.report.counts import COUNTS, counted
from tests.report.runs import run


def test_more_bytes_can_be_counted_as_traffic() -> None:
    record = run("scarlet", 0, [0.1, 0.2])
    payload, framed, carried = (counted(record, count).records[-1] for count in COUNTS)
    assert payload == record.records[-1]
    assert (framed.uplink_bytes, framed.downlink_bytes, framed.cumulative_bytes) == (350_000, 210_000, 1_120_000)
    assert (carried.uplink_bytes, carried.downlink_bytes) == (380_000, 230_000)
    assert carried.cumulative_bytes == 2 * 610_000
    assert carried.server_accuracy == 0.2


def test_a_run_that_did_not_count_them_has_its_payload_alone() -> None:
    rounds = [RoundRecord(1, uplink_bytes=3, cumulative_bytes=3)]
    old = dataclasses.replace(run("scarlet", 0, []), records=rounds)
    assert [counted(old, count).records for count in COUNTS] == [rounds] * 3
