"""Which bytes a page counts as traffic; the reader chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scarlet.records import RunResult


@dataclass(frozen=True, slots=True)
class Count:
    """The payload, and which other bytes in each direction."""

    id: str
    name: str
    caption: str
    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


PAYLOAD = Count("payload", "payload", "bytes of payload, the method's own content")
COUNTS = (
    PAYLOAD,
    Count("framed", "with frames", "bytes of payload and frames", ("uplink_frame_bytes",), ("downlink_frame_bytes",)),
    Count(
        "carried",
        "total",
        "bytes of everything that was sent: payload, frames, reports, rejected messages and transport overhead",
        up=("uplink_frame_bytes", "report_bytes", "rejected_bytes", "uplink_transport_bytes"),
        down=("downlink_frame_bytes", "downlink_transport_bytes"),
    ),
)


def counted(run: RunResult, count: Count) -> RunResult:
    """The run, with these bytes counted as its traffic."""
    rounds, extra = [], 0
    for record in run.records:
        up = record.uplink_bytes + sum(getattr(record, column) for column in count.up)
        down = record.downlink_bytes + sum(getattr(record, column) for column in count.down)
        extra += up + down - record.uplink_bytes - record.downlink_bytes
        cumulative = record.cumulative_bytes + extra
        rounds.append(replace(record, uplink_bytes=up, downlink_bytes=down, cumulative_bytes=cumulative))
    return replace(run, records=rounds)
