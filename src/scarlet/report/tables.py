"""The result in words, the summary table and the table of options."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from scarlet.records import accuracy_by_model
from scarlet.report.strokes import Stroke
from scarlet.report.summary import Estimate, Row, Summary
from scarlet.report.variants import Variant, differing, text

DASH = "–"
NAMED = 6  # clauses of a sentence


def sentence(summary: Summary) -> str:
    """What came out, best server accuracy first."""
    order = sorted(summary.rows, key=lambda row: -row.server_accuracy.mean if row.server_accuracy else 1.0)
    leads = order[0].server_accuracy is not None
    clauses = [_clause(row, first=leads and row is order[0]) for row in order]
    if len(clauses) > NAMED:
        clauses[NAMED - 1 :] = [f"{len(clauses) - NAMED + 1} more are in the table"]
    return escape("; ".join(clauses) + ".")


def summary_table(summary: Summary, strokes: Sequence[Stroke]) -> str:
    """One line for each method; a dash where it has no such number."""
    to_target = "MB to target" if summary.target is None else f"MB to reach {summary.target:.2f}"
    heads = (
        *("method", "seeds", "server accuracy", "client accuracy", "MB up", "MB down", "MB total"),
        *(to_target, "hit ratio", "seconds"),
    )
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "\n".join(_line(at, row, strokes[at]) for at, row in enumerate(summary.rows))
    return f'<table class="summary">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def models_table(variants: Sequence[Variant]) -> str | None:
    """The accuracy of the clients of each model, a line for each method; None where all clients have the same."""
    found = {variant.name: [accuracy_by_model(run.records) for run in variant.runs] for variant in variants}
    models = dict.fromkeys(model for runs in found.values() for run in runs for model in run)
    if not models:
        return None
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in ("method", *models))
    lines = []
    for name, runs in found.items():
        means = [[run[model] for run in runs if model in run] for model in models]
        cells = "".join(f"<td>{decimal(fmean(mean) if mean else None, 3)}</td>" for mean in means)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return f'<table class="models">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def options_table(variants: Sequence[Variant]) -> str:
    """Every option of every variant; those that differ come first."""
    configs = [run.config for variant in variants for run in variant.runs]
    apart = differing(configs)
    common = sorted({option for config in configs for option in config} - set(apart))
    head = "".join(f'<th scope="col">{escape(variant.name)}</th>' for variant in variants)
    return (
        f'<table class="options">\n<thead><tr><th scope="col">option</th>{head}</tr></thead>\n'
        f'<tbody class="differs">\n{_options(apart, variants)}\n</tbody>\n'
        f"<tbody>\n{_options(common, variants)}\n</tbody>\n</table>"
    )


def _clause(row: Row, *, first: bool) -> str:
    if row.server_accuracy is not None:
        reach = f"{row.name} reaches {row.server_accuracy.mean:.2f} server accuracy" if first else ""
        reach = reach or f"{row.name} {row.server_accuracy.mean:.2f}"
    elif row.client_accuracy is not None:
        reach = f"{row.name}, without a server model, {row.client_accuracy.mean:.2f} client accuracy"
    else:
        return f"{row.name} has not been evaluated yet"
    return f"{reach} with {megabytes(row.megabytes)} MB"


def _line(at: int, row: Row, stroke: Stroke) -> str:
    cells = (
        str(row.seeds),
        decimal(row.server_accuracy, 3),
        decimal(row.client_accuracy, 3),
        megabytes(row.megabytes_up),
        megabytes(row.megabytes_down),
        megabytes(row.megabytes),
        megabytes(row.megabytes_to_target),
        decimal(row.hit_ratio, 2),
        decimal(row.seconds, 1),
    )
    name = f"{stroke.sample}{escape(row.name)}"
    return f'<tr data-variant="{at}"><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _options(options: Sequence[str], variants: Sequence[Variant]) -> str:
    return "\n".join(
        f'<tr><th scope="row">{escape(option)}</th>'
        + "".join(f"<td>{escape(_values(variant, option))}</td>" for variant in variants)
        + "</tr>"
        for option in options
    )


def _values(variant: Variant, option: str) -> str:
    """The value, or all values where the runs of a variant are free to differ."""
    found = dict.fromkeys(text(run.config[option]) for run in variant.runs if option in run.config)
    return ", ".join(found) or DASH


def megabytes(value: float | None) -> str:
    """About three digits, whatever the size."""
    if value is None:
        return DASH
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def decimal(value: float | Estimate | None, digits: int) -> str:
    """The number, or a dash where there is none."""
    return DASH if value is None else f"{value:,.{digits}f}"
