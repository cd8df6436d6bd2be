"""What was rejected or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from scarlet.records import RunResult
from scarlet.report.variants import Variant


def problems_table(variants: Sequence[Variant]) -> str | None:
    """How often what went wrong, a line for each variant with any; None where nothing did."""
    found = {at: sum((_problems(run) for run in variant.runs), Counter()) for at, variant in enumerate(variants)}
    kinds = sorted({kind for counts in found.values() for kind in counts})
    if not kinds:
        return None
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in ("method", *kinds))
    body = "\n".join(
        f'<tr data-variant="{at}"><th scope="row">{escape(variants[at].name)}</th>'
        + "".join(f"<td>{counts[kind]:,}</td>" for kind in kinds)
        + "</tr>"
        for at, counts in found.items()
        if counts
    )
    return f'<table class="problems">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def _problems(run: RunResult) -> Counter[str]:
    found: Counter[str] = Counter()
    for record in run.records:
        found.update({f"rejected: {reason}": count for reason, count in record.rejections.items()})
        found.update({f"failed: {reason}": count for reason, count in record.failures.items()})
        found["rounds with fewer answers than asked"] += record.answers < record.asked
        found["repeated rounds"] += record.attempt
        found["abstentions"] += record.abstained
        found["caches sent again"] += record.resets
    return +found
