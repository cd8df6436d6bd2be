"""Accuracy against bytes: all methods, the centralized reference, caches for other methods, and equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scarlet.paper.drawing import against_megabytes, colour_of, panels, title_of
from scarlet.paper.exhibit import Context, Exhibit, Row, Shown
from scarlet.paper.runs import Wanted, clients, megabytes, server
from scarlet.paper.scale import Scale
from scarlet.paper.verdict import all_hold, is_more, mean, paired
from scarlet.paper.wanted import CACHES, REFERENCE, everyone, other, scarlet
from scarlet.records import RunResult
from scarlet.report.curves import curve


def megabytes_to(runs: Sequence[RunResult], accuracy: float) -> float | None:
    """Traffic up to the first round in which the mean server accuracy of the runs is that high."""
    drawn = curve(runs, "server_accuracy")
    reached = np.flatnonzero(drawn.mean >= accuracy)
    return float(drawn.megabytes[reached[0]]) if len(reached) else None


def accuracy_within(run: RunResult, budget: float) -> float | None:
    """The mean server accuracy of the last ten evaluations before a run has spent so many megabytes."""
    within = [record for record in run.records if record.cumulative_bytes <= 1e6 * budget]
    known = [record.server_accuracy for record in within if record.server_accuracy is not None]
    return float(np.mean(known[-10:])) if known else None


def _centralized(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    pooled, federated = _centralized_wants(scale)
    own, others = runs.score(pooled, clients), runs.score(federated, server)
    ahead = paired(own, others)
    figure, (axes,) = panels(1)
    axes.bar(
        ["Centralized", "SCARLET"],
        [mean(own), mean(others)],
        color=[colour_of("centralized"), colour_of("scarlet")],
    )
    axes.set(ylabel="test accuracy", title=f"Pooled and federated data, alpha = {scale.moderate:g}")
    rows = [
        {"method": each.method, "seed": seed, "test_accuracy": value}
        for each, score in ((pooled, own), (federated, others))
        for seed, value in score.items()
    ]
    return Shown(
        rows,
        figure,
        is_more(ahead),
        f"a model trained on everybody's pooled data has {mean(own):.3f}, which is {ahead.points()} from SCARLET's "
        f"server at alpha = {scale.moderate:g}",
    )


def _centralized_wants(scale: Scale) -> list[Wanted]:
    return [other("centralized", scale.moderate, scale.seeds), scarlet(scale, scale.moderate, scale.seeds)]


def _settings(scale: Scale) -> dict[str, list[Wanted]]:
    """All methods in each setting of the comparison, by its title."""
    found = {f"alpha = {alpha:g}": everyone(scale, alpha, **REFERENCE) for alpha in scale.compared}
    for name, alpha in scale.datasets.items():
        found[f"{name}"] = everyone(scale, alpha, preset=name, **REFERENCE)
    return found


def _performance(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    rows: list[Row] = []
    parts: list[bool | None] = []
    said: list[str] = []
    settings = _settings(scale)
    figure, axes = panels(2, len(settings))
    for at, (setting, wanted) in enumerate(settings.items()):
        scores = {each.method: runs.score(each, server) for each in wanted}
        target = mean(scores["dsfl"])
        for each in wanted:
            found = list(runs.of(each).values())
            for axis, quantity in zip(axes[2 * at :], ("server_accuracy", "client_accuracy"), strict=False):
                against_megabytes(axis, found, quantity, title_of(each.method), colour_of(each.method))
            rows.append(
                {
                    "setting": setting,
                    "method": each.method,
                    "seeds": len(found),
                    "server_accuracy": mean(scores[each.method]),
                    "client_accuracy": mean(runs.score(each, clients)),
                    "megabytes": mean(runs.score(each, megabytes)),
                    "megabytes_to_the_accuracy_of_dsfl": megabytes_to(found, target) if found else None,
                }
            )
        for axis, who in zip(axes[2 * at :], ("Server", "Clients"), strict=False):
            axis.set(xlabel="cumulative MB, all clients", ylabel="test accuracy", title=f"{who}, {setting}")
        others = {name: score for name, score in scores.items() if name != "scarlet" and score}
        best = max(others, key=lambda name: mean(others[name]))
        ahead = paired(scores["scarlet"], others[best])
        spent, whole = megabytes_to(list(runs.of(wanted[0]).values()), target), mean(runs.score(wanted[1], megabytes))
        parts += [is_more(ahead), spent is not None and spent < whole / 2]
        share = "never reaches that" if spent is None else f"reaches that with {spent / whole:.0%} of the bytes"
        said.append(
            f"{setting}: SCARLET's server is {ahead.points()} from the best other one, {title_of(best)}'s; "
            f"DS-FL ends at {target:.3f} with {whole:.1f} MB, and SCARLET {share}"
        )
    axes[0].legend(fontsize=7)
    return Shown(rows, figure, all_hold(parts), ". ".join(said))


def _performance_wants(scale: Scale) -> list[Wanted]:
    return [each for wanted in _settings(scale).values() for each in wanted]


def _equal_bytes(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    wanted = [each for each in everyone(scale, scale.moderate) if each.method != "individual"]
    spent = {each.method: mean(runs.score(each, megabytes)) for each in wanted if runs.of(each)}
    budget = min(spent.values())
    scores = {each.method: runs.score(each, lambda run: accuracy_within(run, budget)) for each in wanted}
    figure, (axes,) = panels(1, width=4.5)
    for each in wanted:
        found = list(runs.of(each).values())
        against_megabytes(axes, found, "server_accuracy", title_of(each.method), colour_of(each.method))
    axes.axvline(budget, color="0.5", linewidth=0.8, linestyle=":")
    axes.set(xlabel="cumulative MB, compact codec", ylabel="test accuracy", title=f"Server, alpha = {scale.moderate:g}")
    axes.set_xscale("log")
    axes.legend(fontsize=7)
    rows = [
        {"method": name, "budget_mb": budget, "server_accuracy": mean(score), "seeds": len(score)}
        for name, score in scores.items()
        if score
    ]
    others = {name: score for name, score in scores.items() if name != "scarlet" and score}
    best = max(others, key=lambda name: mean(others[name]))
    ahead = paired(scores["scarlet"], others[best])
    shown = ", ".join(f"{title_of(str(row['method']))} {row['server_accuracy']:.3f}" for row in rows)
    found_text = f"when each has spent {budget:.2f} MB under entropy coding, the servers have {shown}; SCARLET is "
    return Shown(rows, figure, is_more(ahead), f"{found_text}{ahead.points()} from the best other, {title_of(best)}")


def _cache_others(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    rows: list[Row] = []
    parts: list[bool | None] = []
    said: list[str] = []
    figure, axes = panels(len(CACHES))
    for axis, method in zip(axes, CACHES, strict=True):
        plain, cached = _with_and_without(scale, method)
        saved = 1 - mean(runs.score(cached, megabytes)) / mean(runs.score(plain, megabytes))
        change = paired(runs.score(cached, server), runs.score(plain, server))
        for each, label, dash in ((plain, "no cache", "--"), (cached, f"D = {scale.others_duration}", "-")):
            found = list(runs.of(each).values())
            against_megabytes(axis, found, "server_accuracy", label, colour_of(method), dash)
        axis.set(xlabel="cumulative MB", ylabel="server accuracy", title=title_of(method))
        axis.legend(fontsize=7)
        own = change.mean if change.count else None
        rows.append({"method": method, "saved": saved, "server_change": own, "seeds": change.count})
        parts += [saved > 0.35, is_more(change, than=-0.01)]
        said.append(f"{title_of(method)} saves {saved:.0%} of its bytes, and its server changes by {change.points()}")
    return Shown(rows, figure, all_hold(parts), "with a cache " + "; ".join(said))


def _with_and_without(scale: Scale, method: str) -> tuple[Wanted, Wanted]:
    own = {**REFERENCE, **({"assign": "client"} if method == "comet" else {})}
    cached = {"cache_duration": scale.others_duration, "on_expiry": "delete"}
    plain = other(method, scale.strong, scale.seeds, **own)
    return plain, other(method, scale.strong, scale.seeds, **own, **cached)


EXHIBITS: Mapping[str, Exhibit] = {
    each.name: each
    for each in (
        Exhibit(
            name="centralized",
            title="Centralized learning (Table IV)",
            claim="Training on everybody's pooled data is far above federated learning; CIFAR-10 reaches 85.4 %.",
            show=_centralized,
            wants=_centralized_wants,
        ),
        Exhibit(
            name="performance",
            title="Test accuracy against communication (Figs. 7 and 9)",
            claim=(
                "SCARLET's server is the most accurate, by some 2 points with strongly non-IID clients, and reaches "
                "DS-FL's accuracy for less than half of the bytes."
            ),
            show=_performance,
            wants=_performance_wants,
        ),
        Exhibit(
            name="equal-bytes",
            title="All methods at equal bytes, entropy coded",
            claim="SCARLET has the most accurate server for the same bytes. (Not in the paper, which codes nothing.)",
            show=_equal_bytes,
            wants=lambda scale: [each for each in everyone(scale, scale.moderate) if each.method != "individual"],
        ),
        Exhibit(
            name="cache-others",
            title="The cache in other methods (Fig. 10)",
            claim="A cache of D = 25 saves CFD, COMET and Selective-FD half of their bytes at the same accuracy.",
            show=_cache_others,
            wants=lambda scale: [each for method in CACHES for each in _with_and_without(scale, method)],
        ),
    )
}
