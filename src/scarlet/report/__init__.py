"""One self-contained HTML page about finished or interrupted runs."""

from scarlet.report.page import write_report
from scarlet.report.record import RunRecord, read_run

__all__ = ["RunRecord", "read_run", "write_report"]
