"""Sharpening: ERA against Enhanced ERA, and which beta is the best for which clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from scarlet.paper.drawing import by_round, colour_of, heat_map, panels
from scarlet.paper.exhibit import Context, Exhibit, Row, Shown
from scarlet.paper.runs import Wanted, clients, server
from scarlet.paper.scale import Scale
from scarlet.paper.verdict import POINT, Interval, Parts, is_more, mean, paired
from scarlet.paper.wanted import AUTO, other, scarlet


def _sharpened(scale: Scale, alpha: float) -> tuple[list[Wanted], list[Wanted]]:
    """DS-FL with each temperature, and the same without a cache but with Enhanced ERA."""
    old = [other("dsfl", alpha, scale.fewer_seeds, temperature=each) for each in scale.temperatures]
    return old, [scarlet(scale, alpha, scale.fewer_seeds, beta=each, cache_duration=0) for each in scale.betas]


def _era_vs_enhanced(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    rows: list[Row] = []
    parts: dict[str, bool | None] = {}
    said: list[str] = []
    figure, axes = panels(2)
    for axis, alpha in zip(axes, (scale.strong, scale.moderate), strict=True):
        best = []
        for name, group in zip(("temperature", "beta"), _sharpened(scale, alpha), strict=True):
            scores = {each.options[name]: (each, runs.score(each, server)) for each in group}
            rows += [
                {"alpha": alpha, name: value, "server_accuracy": mean(score), "seeds": len(score)}
                for value, (_, score) in scores.items()
            ]
            best.append(max(scores.items(), key=lambda item: mean(item[1][1]) if item[1][1] else -1))
        (t, (old, its)), (beta, (new, own)) = best
        edge = [
            f"{name} = {value:g}"
            for name, value, tried in (("T", t, scale.temperatures), ("beta", beta, scale.betas))
            if value in (tried[0], tried[-1])
        ]
        limit = f", where {' and '.join(edge)} {'are' if edge[1:] else 'is'} at the edge of those tried" if edge else ""
        ahead = paired(own, its)
        parts[f"alpha = {alpha:g}"] = is_more(ahead)
        said.append(
            f"at alpha = {alpha:g} the server with beta = {beta:g} is {ahead.beside(f'that with T = {t:g}')}{limit}"
        )
        by_round(axis, list(runs.of(old).values()), "server_accuracy", f"ERA, T = {t:g}", colour_of("dsfl"))
        by_round(
            axis, list(runs.of(new).values()), "server_accuracy", f"Enhanced, beta = {beta:g}", colour_of("scarlet")
        )
        axis.set(xlabel="round", ylabel="server accuracy", title=f"alpha = {alpha:g}, no cache")
        axis.legend(fontsize=7)
    return Shown(rows, figure, parts, "the best of each: " + "; ".join(said))


def _betas(scale: Scale, alpha: float) -> dict[float | str, Wanted]:
    betas: list[float | str] = [*scale.betas, AUTO]
    return {beta: scarlet(scale, alpha, scale.fewer_seeds, beta=beta) for beta in betas}


def _beta(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    figure, axes = panels(2, 2)
    rows: list[Row] = []
    for at, alpha in enumerate((scale.strong, scale.moderate)):
        for beta, each in _betas(scale, alpha).items():
            found = list(runs.of(each).values())
            dash = ":" if beta == AUTO else "-"
            by_round(axes[2 * at], found, "server_accuracy", f"beta = {beta}", dash=dash)
            by_round(axes[2 * at + 1], found, "client_accuracy", f"beta = {beta}", dash=dash)
            own = {
                "server_accuracy": mean(runs.score(each, server)),
                "client_accuracy": mean(runs.score(each, clients)),
            }
            rows.append({"alpha": alpha, "beta": beta, **own, "seeds": len(found)})
        for axis, who in zip(axes[2 * at :], ("Server", "Clients"), strict=False):
            axis.set(xlabel="round", ylabel="test accuracy", title=f"{who}, alpha = {alpha:g}")
    axes[0].legend(fontsize=7)
    sharp, flat = _betas(scale, scale.strong), _betas(scale, scale.moderate)
    gain = paired(runs.score(sharp[1.5], server), runs.score(sharp[1.0], server))
    second = max((beta for beta in scale.betas if beta != 1), key=lambda beta: mean(runs.score(flat[beta], server)))
    ahead = paired(runs.score(flat[1.0], server), runs.score(flat[second], server))
    return Shown(
        rows,
        figure,
        {f"alpha = {scale.strong:g}": is_more(gain), f"alpha = {scale.moderate:g}": is_more(ahead)},
        f"at alpha = {scale.strong:g} the server with beta = 1.5 is {gain.beside('that with beta = 1')}; at alpha = "
        f"{scale.moderate:g} the server with beta = 1 is {ahead.beside(f'the best of the others, beta = {second:g}')}",
    )


def _heat_maps(context: Context, alphas: Sequence[float]) -> tuple[Figure, list[Row], dict[float, float]]:
    """Accuracy over alpha and beta; and for each alpha the fixed beta of the best server."""
    scale, runs = context.scale, context.runs
    figure, axes = panels(2, height=0.9 + 0.45 * len(alphas))
    rows: list[Row] = []
    for axis, score, who in zip(axes, (server, clients), ("server", "clients"), strict=True):
        values = {
            (str(beta), f"{alpha:g}"): 100 * mean(found)
            for alpha in alphas
            for beta, each in _betas(scale, alpha).items()
            if (found := runs.score(each, score))
        }
        heat_map(axis, values, across="beta", down="alpha", title=f"{who.capitalize()}, test accuracy in %")
        rows += [{"who": who, "alpha": a, "beta": b, "accuracy": value / 100} for (b, a), value in values.items()]
    return figure, rows, {alpha: _best(context, alpha) for alpha in alphas}


def _best(context: Context, alpha: float, *, but: float | None = None) -> float:
    """The fixed beta of the best server, one of them left out."""
    wanted = _betas(context.scale, alpha)
    tried = [beta for beta in context.scale.betas if beta != but]
    return max(tried, key=lambda beta: mean(context.runs.score(wanted[beta], server)))


def _apart(context: Context, alpha: float, beta: float | str, other: float) -> Interval:
    """How far the server with one beta is above that with another."""
    wanted, score = _betas(context.scale, alpha), context.runs.score
    return paired(score(wanted[beta], server), score(wanted[other], server))


def _gains(context: Context, alpha: float) -> bool | None:
    """Whether some beta above 1 has a better server than beta = 1."""
    wanted, score = _betas(context.scale, alpha), context.runs.score
    sharper = [score(wanted[beta], server) for beta in context.scale.betas if beta > 1]
    return is_more(paired(max(sharper, key=mean), score(wanted[1.0], server)))


def _needs_none(context: Context, alpha: float) -> bool | None:
    """Whether the server with beta = 1 is the best or within a point of it."""
    return is_more(_apart(context, alpha, 1.0, _best(context, alpha, but=1.0)), than=-POINT)


def _alpha_beta(context: Context) -> Shown:
    alphas = context.scale.alphas
    figure, rows, best = _heat_maps(context, alphas)
    first, last = alphas[0], alphas[-1]
    parts: Parts = {
        f"beta above 1 at alpha = {first:g}": _gains(context, first),
        f"beta = 1 at alpha = {last:g}": _needs_none(context, last),
    }
    said = "; ".join(
        f"at alpha = {alpha:g} it is {best[alpha]:g}, and auto is "
        + _apart(context, alpha, AUTO, best[alpha]).beside("it")
        for alpha in alphas
    )
    return Shown(rows, figure, parts, f"the fixed beta with the best server: {said}")


def _near_iid(context: Context) -> Shown:
    figure, rows, best = _heat_maps(context, context.scale.near_iid)
    second = {alpha: _best(context, alpha, but=1.0) for alpha in best}
    parts = {f"alpha = {alpha:g}": _needs_none(context, alpha) for alpha in best if alpha >= 1}
    said = [
        f"at alpha = {alpha:g} beta = 1 is "
        + _apart(context, alpha, 1.0, other).beside(f"the best of the others, beta = {other:g}")
        for alpha, other in second.items()
    ]
    return Shown(rows, figure, parts, "for the server, " + "; ".join(said))


EXHIBITS: Mapping[str, Exhibit] = {
    each.name: each
    for each in (
        Exhibit(
            name="era-vs-enhanced",
            title="ERA against Enhanced ERA (Fig. 5)",
            claim="With the best parameter of each, Enhanced ERA is above ERA (in the paper by 3 to 4 points).",
            show=_era_vs_enhanced,
            wants=lambda scale: [
                each for alpha in (scale.strong, scale.moderate) for group in _sharpened(scale, alpha) for each in group
            ],
        ),
        Exhibit(
            name="beta",
            title="Sharpening beta (Fig. 13)",
            claim="Sharpening (beta = 1.5) helps the server of strongly non-IID clients; else beta = 1 is the best.",
            show=_beta,
            wants=lambda scale: [
                each for alpha in (scale.strong, scale.moderate) for each in _betas(scale, alpha).values()
            ],
        ),
        Exhibit(
            name="alpha-beta",
            title="Accuracy over alpha and beta (Fig. 14)",
            claim="The best beta of the server falls toward 1 as the clients become more alike.",
            show=_alpha_beta,
            wants=lambda scale: [each for alpha in scale.alphas for each in _betas(scale, alpha).values()],
        ),
        Exhibit(
            name="near-iid",
            title="Near-IID clients (Fig. 15)",
            claim="From alpha = 1 on, beta = 1 is the best or within a point of it.",
            show=_near_iid,
            wants=lambda scale: [each for alpha in scale.near_iid for each in _betas(scale, alpha).values()],
        ),
    )
}
