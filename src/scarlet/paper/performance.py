"""Accuracy against bytes: all methods, the centralized reference, caches for other methods, and equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scarlet.paper.drawing import against_megabytes, colour_of, panels, title_of
from scarlet.paper.exhibit import Context, Exhibit, Row, Shown
from scarlet.paper.runs import Runs, Wanted, clients, megabytes, server
from scarlet.paper.scale import Scale
from scarlet.paper.verdict import POINT, Interval, is_more, mean, paired, ratio
from scarlet.paper.wanted import CACHES, REFERENCE, compact, everyone, other, scarlet
from scarlet.records import LAST_ROUNDS, RunResult

SIDES = (server, clients)
LEAST_LEARNED = 0.15  # of a server with ten classes: one below is hardly better than chance, and nothing can harm it


def megabytes_to(run: RunResult, accuracy: float) -> float | None:
    """Traffic until the mean of ten evaluations of the server is that high; None: it never is."""
    known = [each for each in run.records if each.server_accuracy is not None]
    window = min(LAST_ROUNDS, len(known))
    values = [each.server_accuracy for each in known]
    means = np.convolve(np.array(values, np.float64), np.full(window, 1 / window), "valid") if window else np.empty(0)
    reached = np.flatnonzero(means >= accuracy - 1e-9)
    return known[window - 1 + int(reached[0])].cumulative_bytes / 1e6 if len(reached) else None


def _needs(runs: Runs, wanted: Wanted, accuracies: Mapping[int, float]) -> dict[int, float]:
    """Traffic until a run reaches the accuracy of its seed, by seed; seeds under which it never does are left out."""
    found = {seed: megabytes_to(run, accuracies[seed]) for seed, run in runs.of(wanted).items() if seed in accuracies}
    return {seed: needed for seed, needed in found.items() if needed is not None}


def _cost_of_dsfl(servers: Mapping[str, Mapping[int, float]], needs: Mapping[str, Mapping[int, float]]) -> str:
    """What DS-FL's final accuracy costs DS-FL and SCARLET, and how far SCARLET's own is from it."""
    ours, theirs = needs["scarlet"], needs["dsfl"]
    reached = {seed: theirs[seed] for seed in ours}
    cost = "is out of the reach of SCARLET"
    if ours:
        cost = f"costs DS-FL {_mb(mean(reached))} and SCARLET {_mb(mean(ours))}, seed by seed "
        cost += f"{ratio(ours, theirs).percent()} of that"
    if ours and reached != theirs:
        cost += f", under {len(ours)} of {len(theirs)} seeds; SCARLET does not reach it under the others"
    above = paired(servers["scarlet"], servers["dsfl"]).beside("it")
    return f"DS-FL's final accuracy ({mean(servers['dsfl']):.3f} on average) {cost}; SCARLET's own is {above}"


def _mb(megabytes: float) -> str:
    return f"{megabytes:.3g} MB" if megabytes < 100 else f"{megabytes:,.0f} MB"


def _below_half(ours: Mapping[int, float], theirs: Mapping[int, float], ahead: Interval) -> bool | None:
    """Whether an accuracy costs less than half; where it is not reached under every seed, `ahead` is by how much."""
    if ours.keys() < theirs.keys():
        return False if is_more(ahead) is False else None
    more = is_more(ratio(ours, theirs), than=0.5)
    return None if more is None else not more


def accuracy_within(run: RunResult, budget: float) -> float | None:
    """Server accuracy when a run has spent so many megabytes: the evaluations in the last tenth of the budget."""
    known = [(each.cumulative_bytes / 1e6, each.server_accuracy) for each in run.records]
    spent = [(megabytes, value) for megabytes, value in known if value is not None and megabytes <= budget]
    if not spent:
        return None
    recent = [value for megabytes, value in spent if megabytes > 0.9 * budget] or [spent[-1][1]]
    return float(np.mean(recent))


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
        {"accuracy": is_more(ahead)},
        f"a model trained on everybody's pooled data has {mean(own):.3f}, which is "
        f"{ahead.beside(f'the server of SCARLET at alpha = {scale.moderate:g}')}",
    )


def _centralized_wants(scale: Scale) -> list[Wanted]:
    return [other("centralized", scale.moderate, scale.seeds), scarlet(scale, scale.moderate, scale.seeds)]


@dataclass(frozen=True, slots=True)
class Setting:
    """All methods on the same data."""

    title: str
    wanted: Mapping[str, Wanted]  # by method
    best: bool  # whether the paper's SCARLET is the best there, not only as good as the best


def _settings(scale: Scale) -> list[Setting]:
    """The settings of the comparison."""
    found = [
        Setting(f"alpha = {alpha:g}", _by_method(everyone(scale, alpha, **REFERENCE)), alpha == scale.strong)
        for alpha in scale.compared
    ]
    for name, alpha in scale.datasets.items():
        found.append(Setting(name, _by_method(everyone(scale, alpha, preset=name, **REFERENCE)), best=False))
    return found


def _by_method(wanted: Sequence[Wanted]) -> dict[str, Wanted]:
    return {each.method: each for each in wanted}


def _performance(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    rows: list[Row] = []
    parts: dict[str, bool | None] = {}
    said: list[str] = []
    settings = _settings(scale)
    figure, axes = panels(2, len(settings))
    for at, setting in enumerate(settings):
        found = {method: list(runs.of(each).values()) for method, each in setting.wanted.items()}
        servers, own = ({name: runs.score(each, score) for name, each in setting.wanted.items()} for score in SIDES)
        needs = {method: _needs(runs, each, servers["dsfl"]) for method, each in setting.wanted.items()}
        for method, each in setting.wanted.items():
            for axis, quantity in zip(axes[2 * at :], ("server_accuracy", "client_accuracy"), strict=False):
                against_megabytes(axis, found[method], quantity, title_of(method), colour_of(method))
            rows.append(
                {
                    "setting": setting.title,
                    "method": method,
                    "seeds": len(found[method]),
                    "server_accuracy": mean(servers[method]),
                    "client_accuracy": mean(own[method]),
                    "megabytes": mean(runs.score(each, megabytes)),
                    "megabytes_to_the_accuracy_of_dsfl": mean(needs[method]),
                    "seeds_that_reach_it": len(needs[method]),
                }
            )
        for axis, who in zip(axes[2 * at :], ("Server", "Clients"), strict=False):
            axis.set(xlabel="cumulative MB, all clients", ylabel="test accuracy", title=f"{who}, {setting.title}")
        best, best_clients = (_best_other(each) for each in (servers, own))
        ahead = paired(servers["scarlet"], servers[best])
        beside = paired(own["scarlet"], own[best_clients])
        parts[f"server at {setting.title}"] = is_more(ahead, than=0.0 if setting.best else -POINT)
        if setting.best:
            parts[f"clients at {setting.title}"] = is_more(beside, than=-POINT)
        ours, theirs = needs["scarlet"], needs["dsfl"]
        above = paired(servers["scarlet"], servers["dsfl"])
        parts[f"bytes at {setting.title}"] = _below_half(ours, theirs, above)
        said.append(
            f"{setting.title}: the server of SCARLET is {ahead.beside(f'the best other, that of {title_of(best)}')}, "
            f"and its clients are {beside.beside(f'those of {title_of(best_clients)}')}; "
            + _cost_of_dsfl(servers, needs)
        )
    axes[1].legend(fontsize=7)
    return Shown(rows, figure, parts, ". ".join(said))


def _best_other(scores: Mapping[str, Mapping[int, float]]) -> str:
    """The method beside SCARLET with the highest mean."""
    return max((name for name in scores if name != "scarlet" and scores[name]), key=lambda name: mean(scores[name]))


def _performance_wants(scale: Scale) -> list[Wanted]:
    return [each for setting in _settings(scale) for each in setting.wanted.values()]


def _equal_bytes(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    wanted = _by_method(_equal_bytes_wants(scale))
    budget = min(mean(runs.score(each, megabytes)) for each in wanted.values())
    scores = {name: runs.score(each, lambda run: accuracy_within(run, budget)) for name, each in wanted.items()}
    figure, (axes,) = panels(1, width=4.5)
    for method, each in wanted.items():
        found = list(runs.of(each).values())
        against_megabytes(axes, found, "server_accuracy", title_of(method), colour_of(method))
    axes.axvline(budget, color="0.5", linewidth=0.8, linestyle=":")
    axes.set(xlabel="cumulative MB, compact codec", ylabel="test accuracy", title=f"Server, alpha = {scale.moderate:g}")
    axes.set_xscale("log")
    axes.legend(fontsize=7)
    rows = [
        {"method": name, "budget_mb": budget, "server_accuracy": mean(score), "seeds": len(score)}
        for name, score in scores.items()
    ]
    servers = {name: runs.score(each, server) for name, each in wanted.items()}
    needs = {name: _needs(runs, wanted[name], servers["dsfl"]) for name in ("scarlet", "dsfl")}
    best = _best_other(scores)
    ahead = paired(scores["scarlet"], scores[best])
    shown = ", ".join(f"{title_of(name)} {mean(score):.3f}" for name, score in scores.items() if score)
    found_text = f"when each has spent {budget:.2f} MB under entropy coding, the servers have {shown}; SCARLET is "
    found_text += f"{ahead.beside(title_of(best))}; {_cost_of_dsfl(servers, needs)}"
    return Shown(rows, figure, {"accuracy": is_more(ahead)}, found_text)


def _equal_bytes_wants(scale: Scale) -> list[Wanted]:
    return [each for each in everyone(scale, scale.moderate, **compact(scale)) if each.method != "individual"]


def _cache_others(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    rows: list[Row] = []
    parts: dict[str, bool | None] = {}
    said: list[str] = []
    figure, axes = panels(len(CACHES), 2)
    for at, method in enumerate(CACHES):
        plain, cached = _with_and_without(scale, method)
        share = ratio(runs.score(cached, megabytes), runs.score(plain, megabytes))
        change, beside = (paired(runs.score(cached, side), runs.score(plain, side)) for side in SIDES)
        for each, label, dash in ((plain, "no cache", "--"), (cached, f"D = {scale.others_duration}", "-")):
            found = list(runs.of(each).values())
            for axis, quantity in ((axes[at], "server_accuracy"), (axes[len(CACHES) + at], "client_accuracy")):
                against_megabytes(axis, found, quantity, label, colour_of(method), dash)
        axes[at].set(ylabel="server accuracy", title=title_of(method))
        axes[len(CACHES) + at].set(xlabel="cumulative MB", ylabel="client accuracy")
        axes[at].legend(fontsize=7)
        changes = {"server_change": change.mean, "client_change": beside.mean}
        rows.append({"method": method, "saved": 1 - share.mean, **changes, "seeds": change.count})
        title = title_of(method)
        before = mean(runs.score(plain, server))
        harmless = is_more(change, than=-POINT) if before > LEAST_LEARNED else None
        parts |= {f"bytes of {title}": share.mean <= 2 / 3, f"accuracy of {title}": harmless}
        said.append(
            f"{title} saves {1 - share.mean:.0%} of its bytes, and its server ({before:.3f} without it) "
            + (f"changes by {change.points()}" if before > LEAST_LEARNED else "is hardly better than chance before")
        )
    shared = " (COMET is client-assigned with and without it: what is cached is the same for all)"
    return Shown(rows, figure, parts, f"with a cache of D = {scale.others_duration} " + "; ".join(said) + shared)


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
            claim="A model trained on all data, pooled, is above SCARLET's server (in the paper 85.4 % on CIFAR-10).",
            show=_centralized,
            wants=_centralized_wants,
        ),
        Exhibit(
            name="performance",
            title="Test accuracy against communication (Figs. 8 and 10)",
            claim=(
                "With strongly non-IID clients SCARLET has the most accurate server (in the paper by 2 points) and "
                "clients within a point of the best; otherwise its server is within a point of the best. It reaches "
                "DS-FL's accuracy for less than half of the bytes."
            ),
            show=_performance,
            wants=_performance_wants,
        ),
        Exhibit(
            name="equal-bytes",
            title="All methods at equal bytes, entropy coded",
            claim="SCARLET has the most accurate server for the same bytes. (The paper has no entropy coding.)",
            show=_equal_bytes,
            wants=_equal_bytes_wants,
        ),
        Exhibit(
            name="cache-others",
            title="The cache in other methods (Fig. 11)",
            claim=(
                "A cache saves CFD, COMET and Selective-FD a third of their bytes or more (in the paper about half), "
                "and costs the server less than a point."
            ),
            show=_cache_others,
            wants=lambda scale: [each for method in CACHES for each in _with_and_without(scale, method)],
        ),
    )
}
