"""What else SCARLET depends on: cache duration, participation, and convergence without a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scarlet.experiment.stopping import has_converged
from scarlet.paper.drawing import against_megabytes, by_round, colour_of, panels
from scarlet.paper.exhibit import Context, Exhibit, Row, Shown
from scarlet.paper.runs import Wanted, clients, megabytes, server
from scarlet.paper.scale import Scale
from scarlet.paper.verdict import POINT, is_more, mean, paired, ratio
from scarlet.paper.wanted import REFERENCE, scarlet
from scarlet.records import LAST_ROUNDS, RoundRecord


def _durations(scale: Scale) -> dict[tuple[str, int], Wanted]:
    """By the rule of expiry and D; without a cache there is no rule. Does refreshing mend what a very long D costs?"""
    shared = {**REFERENCE, "rounds": scale.duration_rounds}
    return {
        (mode, each): scarlet(
            scale,
            scale.duration_alpha,
            scale.duration_seeds,
            cache_duration=each,
            on_expiry=mode if each else "delete",
            **shared,
        )
        for mode in ("delete", "refresh")
        for each in scale.durations
        if mode == "delete" or each in (0, scale.durations[-1])
    }


def _duration(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    wanted = _durations(scale)
    figure, axes = panels(2, 2)
    rows: list[Row] = []
    for (mode, duration), each in wanted.items():
        found, at = list(runs.of(each).values()), 0 if mode == "delete" else 1
        for axis, quantity in ((axes[at], "server_accuracy"), (axes[2 + at], "client_accuracy")):
            against_megabytes(axis, found, quantity, f"D = {duration}")
        rows.append(
            {
                "on_expiry": mode,
                "duration": duration,
                "server_accuracy": mean(runs.score(each, server)),
                "client_accuracy": mean(runs.score(each, clients)),
                "megabytes": mean(runs.score(each, megabytes)),
            }
        )
    for at, mode in enumerate(("delete (the paper)", "refresh")):
        axes[at].set(ylabel="server accuracy", title=f"Expired labels: {mode}")
        axes[2 + at].set(xlabel="cumulative MB", ylabel="client accuracy")
        axes[at].legend(fontsize=7)
    longest, middle = scale.durations[-1], scale.moderate_duration
    without = runs.score(wanted["delete", 0], server)
    loss = {
        key: paired(runs.score(wanted[key], server), without)
        for key in (("delete", middle), ("delete", longest), ("refresh", longest))
    }
    spent = {each: runs.score(wanted["delete", each], megabytes) for each in (0, middle)}
    saved = 1 - ratio(spent[middle], spent[0]).mean
    cliff = paired(without, runs.score(wanted["delete", longest], server))
    parts = {
        f"accuracy at D = {middle}": is_more(loss["delete", middle], than=-POINT),
        f"bytes at D = {middle}": saved > 0.5,
        f"cliff at D = {longest}": is_more(cliff, than=POINT),
    }
    return Shown(
        rows,
        figure,
        parts,
        f"against no cache, and where expired labels are deleted, D = {middle} changes the server's accuracy by "
        f"{loss['delete', middle].points()} and saves {saved:.0%} of the bytes, and D = {longest} changes it by "
        f"{loss['delete', longest].points()}; where they are refreshed, D = {longest} changes it by "
        f"{loss['refresh', longest].points()}",
    )


def _shares(scale: Scale, alpha: float) -> dict[tuple[float, bool], Wanted]:
    """By the share of the clients, and whether there is a cache."""
    found = {}
    for share in scale.participation:
        shared = {**REFERENCE, **({} if share == 1 else {"participation": share})}
        found[share, True] = scarlet(scale, alpha, scale.fewer_seeds, **shared)
        found[share, False] = scarlet(scale, alpha, scale.fewer_seeds, cache_duration=0, **shared)
    return found


def _participation(context: Context) -> Shown:
    scale, runs = context.scale, context.runs
    figure, axes = panels(2)
    rows: list[Row] = []
    parts: dict[str, bool | None] = {}
    said: list[str] = []
    for axis, alpha in zip(axes, (scale.strong, scale.moderate), strict=True):
        wanted = _shares(scale, alpha)
        right = axis.twinx()
        for cached, dash in ((True, "-"), (False, "--")):
            label = "cache" if cached else "no cache"
            found = [wanted[share, cached] for share in scale.participation]
            own = {
                "server": [mean(runs.score(each, server)) for each in found],
                "clients": [mean(runs.score(each, clients)) for each in found],
            }
            spent = [mean(runs.score(each, megabytes)) for each in found]
            axis.plot(
                scale.participation, own["server"], f"{dash}o", color=colour_of("scarlet"), label=f"server, {label}"
            )
            axis.plot(
                scale.participation, own["clients"], f"{dash}s", color=colour_of("cfd"), label=f"clients, {label}"
            )
            right.plot(scale.participation, spent, f"{dash}^", color=colour_of("dsfl"), linewidth=0.8)
            rows += [
                {
                    "alpha": alpha,
                    "participation": p,
                    "cache": cached,
                    "server_accuracy": a,
                    "client_accuracy": b,
                    "megabytes": c,
                }
                for p, a, b, c in zip(scale.participation, own["server"], own["clients"], spent, strict=True)
            ]
        axis.set(xlabel="share of the clients in a round", ylabel="test accuracy", title=f"alpha = {alpha:g}")
        right.set_ylabel("MB in all", color=colour_of("dsfl"))
        right.grid(visible=False)
        least, most = scale.participation[0], scale.participation[-1]
        change = {
            p: paired(runs.score(wanted[p, True], server), runs.score(wanted[p, False], server)) for p in (least, most)
        }
        share = {
            p: ratio(runs.score(wanted[p, True], megabytes), runs.score(wanted[p, False], megabytes)).mean
            for p in (least, most)
        }
        parts |= {
            f"accuracy with all clients at alpha = {alpha:g}": is_more(change[most], than=-POINT),
            f"bytes with all clients at alpha = {alpha:g}": share[most] < 1,
            f"accuracy with few clients at alpha = {alpha:g}": is_more(change[least]),
        }
        said.append(
            f"at alpha = {alpha:g} the cache changes the server by {change[most].points()} for {share[most]:.0%} of "
            f"the bytes when all take part, and by {change[least].points()} for {share[least]:.0%} when {least:.0%} do"
        )
    axes[0].legend(fontsize=6)
    return Shown(rows, figure, parts, "; ".join(said))


def _validated(scale: Scale) -> Wanted:
    held_out = {"private_validation": 0.1, "public_validation": 0.1, "rounds": scale.validation_rounds, "eval_every": 1}
    return scarlet(scale, scale.moderate, scale.fewer_seeds, **held_out)


def plateau(records: Sequence[RoundRecord], quantity: str) -> int | None:
    """The first round from which the mean of ten evaluations stays within one point of the end."""
    known = [(record.round, value) for record in records if (value := getattr(record, quantity)) is not None]
    if len(known) < LAST_ROUNDS:
        return None
    means = np.convolve([value for _, value in known], np.full(LAST_ROUNDS, 1 / LAST_ROUNDS), "valid")
    off = np.flatnonzero(np.abs(means - means[-1]) > POINT)
    return known[LAST_ROUNDS - 1 + (int(off[-1]) + 1 if len(off) else 0)][0]


def stop_of(records: Sequence[RoundRecord]) -> int | None:
    """The round after which `--stop-when converged` ends a run; None: not before its end."""
    return next((each.round for at, each in enumerate(records) if has_converged(records[: at + 1])), None)


def _validation(context: Context) -> Shown:
    found = context.runs.of(_validated(context.scale))
    runs = list(found.values())
    quantities = {
        "server_accuracy": "Server, test accuracy",
        "public_validation_loss": "Server, public validation loss",
        "client_accuracy": "Clients, test accuracy",
        "private_validation_loss": "Clients, private validation loss",
    }
    figure, axes = panels(2, 2)
    for axis, (quantity, title) in zip(axes, quantities.items(), strict=True):
        by_round(axis, runs, quantity, "", colour_of("scarlet"))
        axis.set(xlabel="round", title=title)
    rows: list[Row] = [
        {"seed": seed, "round": record.round, **{name: getattr(record, name) for name in quantities}}
        for seed, run in found.items()
        for record in run.records
    ]
    parts: dict[str, bool | None] = {}
    said: list[str] = []
    for seed, run in found.items():
        both = [plateau(run.records, quantity) for quantity in ("server_accuracy", "client_accuracy")]
        flat, stop = max((each for each in both if each is not None), default=None), stop_of(run.records)
        early, late = _recent([each for each in run.records if each.round <= (stop or 0)]), _recent(run.records)
        parts[f"round, seed {seed}"] = flat is not None and stop is not None and abs(stop - flat) <= 0.15 * flat
        parts[f"accuracy, seed {seed}"] = stop is not None and early > late - POINT
        ended = (
            f"not within {len(run.records)} rounds"
            if stop is None
            else f"after round {stop}, its server at {early:.3f}"
        )
        said.append(f"seed {seed} {ended} (after all rounds {late:.3f}; accuracies are flat from round {flat})")
    return Shown(rows, figure, parts, "by its validation losses a run would end: " + "; ".join(said))


def _recent(records: Sequence[RoundRecord]) -> float:
    """The server's accuracy, a mean over the last ten evaluations."""
    known = [each.server_accuracy for each in records if each.server_accuracy is not None][-LAST_ROUNDS:]
    return float(np.mean(known)) if known else float("nan")


EXHIBITS: Mapping[str, Exhibit] = {
    each.name: each
    for each in (
        Exhibit(
            name="duration",
            title="Cache duration D (Fig. 12)",
            claim=(
                "Up to a moderate D the server stays within a point of no cache, for less than half of the bytes; a "
                "very long D costs more than a point."
            ),
            show=_duration,
            wants=lambda scale: list(_durations(scale).values()),
        ),
        Exhibit(
            name="participation",
            title="Partial participation (Fig. 16)",
            claim=(
                "With all clients in every round the cache saves bytes and costs less than a point; with few of them "
                "it makes the server more accurate."
            ),
            show=_participation,
            wants=lambda scale: [
                each for alpha in (scale.strong, scale.moderate) for each in _shares(scale, alpha).values()
            ],
        ),
        Exhibit(
            name="validation",
            title="Convergence without a test set (Fig. 18)",
            claim="The validation losses become flat when the test accuracies do, so that they can end a run.",
            show=_validation,
            wants=lambda scale: [_validated(scale)],
        ),
    )
}
