"""What follows from counts, draws and formulas, without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.optimize import brentq

from scarlet.config import Config, build
from scarlet.distributions import entropy
from scarlet.experiment.cache_simulation import SimulateConfig, simulate_cache
from scarlet.experiment.costs import MB, CostsConfig, costs, method_of, play
from scarlet.experiment.federation import prepare
from scarlet.methods.parts.sharpening import Power, Rows, era
from scarlet.methods.registry import entry
from scarlet.paper.drawing import colour_of, panels, title_of
from scarlet.paper.exhibit import Context, Exhibit, Row, Shown
from scarlet.presets import apply, preset
from scarlet.protocol.agreement import Agreement

# Megabytes a round, up and down, in the paper's Table V.
PAPER_COSTS = {
    "scarlet": (1.37, 2.97),
    "dsfl": (4.80, 5.60),
    "comet": (4.80, 5.60),
    "cfd": (1.60, 5.60),
    "selective-fd": (3.88, 5.52),
}
# The paper's Table VI: preset -> method -> options.
PAPER_OPTIONS: dict[str, dict[str, dict[str, float]]] = {
    "cifar10-a0.05": {
        "dsfl": {"temperature": 0.1},
        "cfd": {"uplink_bits": 1, "downlink_bits": 32},
        "comet": {"clusters": 2, "distil_weight": 1.0},
        "selective-fd": {"tau_client": 0.0625, "tau_server": 2.0},
        "scarlet": {"beta": 1.5, "cache_duration": 50},
    },
    "cifar10-a0.3": {"scarlet": {"beta": 1.0, "cache_duration": 50}},
    "cifar100-a0.05": {
        "dsfl": {"temperature": 0.01},
        "cfd": {"uplink_bits": 1, "downlink_bits": 32},
        "comet": {"clusters": 2, "distil_weight": 1.0},
        "selective-fd": {"tau_client": 0.0625, "tau_server": 2.0},
        "scarlet": {"beta": 1.25, "cache_duration": 50},
    },
    "tiny-imagenet-a0.05": {
        "dsfl": {"temperature": 0.05},
        "cfd": {"uplink_bits": 1, "downlink_bits": 32},
        "comet": {"clusters": 3, "distil_weight": 1.0},
        "selective-fd": {"tau_client": 0.03125, "tau_server": 2.0},
        "scarlet": {"beta": 1.25, "cache_duration": 50},
    },
}
# A label of little and one of much confidence, ten classes each, like the paper's.
UNSURE = np.array([[0.18, 0.15, 0.13, 0.11, 0.1, 0.09, 0.08, 0.07, 0.05, 0.04]])
SURE = np.array([[0.82, 0.06, 0.04, 0.02, 0.02, 0.01, 0.01, 0.01, 0.005, 0.005]])


def _entropy(label: Rows) -> float:
    return float(entropy(label.astype(np.float32))[0])


def _rounds(context: Context) -> int:
    return 300 if context.scale.name == "demo" else 3_000


def _costs(context: Context) -> Shown:
    rounds = _rounds(context)
    found = {each.method: each for each in costs(CostsConfig(rounds=rounds)) if each.method in PAPER_COSTS}
    rows: list[dict[str, Any]] = [
        {
            "method": name,
            "uplink_mb": cost.uplink_mb.mean,
            "uplink_max_mb": cost.uplink_mb.max,
            "downlink_mb": cost.downlink_mb.mean,
            "downlink_max_mb": cost.downlink_mb.max,
            "paper_uplink_mb": PAPER_COSTS[name][0],
            "paper_downlink_mb": PAPER_COSTS[name][1],
        }
        for name, cost in found.items()
    ]
    figure, axes = panels(2)
    for axis, key, title in zip(axes, ("uplink_mb", "downlink_mb"), ("Uplink", "Downlink"), strict=True):
        place = np.arange(len(rows))
        colours = [colour_of(str(row["method"])) for row in rows]
        axis.bar(place - 0.2, [row[key] for row in rows], 0.4, color=colours, label="here")
        axis.bar(place + 0.2, [row[f"paper_{key}"] for row in rows], 0.4, color=colours, alpha=0.4, label="paper")
        axis.set_xticks(place, [title_of(str(row["method"])) for row in rows], rotation=25, ha="right")
        axis.set(ylabel="MB a round", title=title)
    axes[0].legend(fontsize=7)
    own, other = found["scarlet"], found["dsfl"]
    total, whole = (each.uplink_mb.mean + each.downlink_mb.mean for each in (own, other))
    saved = 1 - own.uplink_mb.mean / other.uplink_mb.mean
    return Shown(
        rows,
        figure,
        {"uplink": saved > 0.65, "both directions": total < whole / 2},
        f"in {rounds} rounds of 100 clients SCARLET sends {own.uplink_mb.mean:.2f} MB up (the paper: 1.37) and "
        f"{own.downlink_mb.mean:.2f} down (2.97) a round; its uplink is {saved:.0%} below DS-FL's (71%), and both "
        f"directions together are {1 - total / whole:.0%} below",
    )


def _cost_dynamics(context: Context) -> Shown:
    config = CostsConfig(rounds=_rounds(context))
    agreement: Agreement = build(Agreement, asdict(config))
    traffic = play(method_of(entry("scarlet"), config), agreement, config.rounds, config.codec)
    up, down = traffic.uplink / MB, traffic.downlink / MB
    figure, (axes,) = panels(1, width=5.5)
    axes.plot(np.arange(1, len(up) + 1), up, label="uplink", linewidth=0.8)
    axes.plot(np.arange(2, len(up) + 1), down[1:], label="downlink", linewidth=0.8)
    axes.set(xlabel="round", ylabel="MB a round, 100 clients", title="SCARLET, D = 50")
    axes.legend(fontsize=7)
    third = len(up) // 3
    first, last = float(up[1:third].std()), float(up[-third:].std())
    rows = [{"round": at + 1, "uplink_mb": a, "downlink_mb": b} for at, (a, b) in enumerate(zip(up, down, strict=True))]
    return Shown(
        rows,
        figure,
        {"settles": last < first / 2, "uplink is lower": bool((up[1:] < down[1:]).all())},
        f"the uplink swings by {first:.2f} MB (one standard deviation) in the first third of {len(up)} rounds and by "
        f"{last:.2f} in the last; on average it is {up[1:].mean():.2f} MB, and the downlink {down[1:].mean():.2f}",
    )


def _cache_simulation(context: Context) -> Shown:
    config = SimulateConfig(rounds=3_000)
    found = simulate_cache(config)
    figure, (axes,) = panels(1, width=5.5)
    for each in found:
        axes.plot(np.arange(1, config.rounds + 1), each.hit_ratio, label=f"D = {each.duration}", linewidth=0.8)
    axes.set(xlabel="round", ylabel="share of cached samples", title="10 % of the public samples a round")
    axes.legend(fontsize=7, ncols=2)
    rows = [
        {"duration": each.duration, "mean_hit_ratio": float(each.hit_ratio.mean()), "idle_rounds": len(each.idle)}
        for each in found
    ]
    short = [each for each in found if each.duration < 100]
    long = [each for each in found if each.duration >= 200]
    parts = {
        "D < 100": all(each.hit_ratio.mean() > 0.6 and not len(each.idle) for each in short),
        "D >= 200": all(len(each.idle) for each in long),
    }
    idle = ", ".join(f"{len(each.idle)} at D = {each.duration}" for each in long)
    return Shown(
        rows,
        figure,
        parts,
        f"D = {short[-1].duration} leaves {short[-1].hit_ratio.mean():.0%} of a round's samples cached and no round "
        f"without a fresh label; rounds in which every sample is cached: {idle}, of {config.rounds}",
    )


def _era_entropy(context: Context) -> Shown:
    betas, temperatures = np.linspace(0.5, 3, 26), np.linspace(0.02, 0.5, 49)
    labels = {"little confidence": UNSURE, "much confidence": SURE}
    figure, axes = panels(2)
    rows: list[Row] = []
    for name, label in labels.items():
        own = _entropy(label)
        for axis, values, sharpen, kind in ((axes[0], temperatures, era, "T"), (axes[1], betas, Power, "beta")):
            found = [_entropy(sharpen(float(value))(label)) for value in values]
            (line,) = axis.plot(values, found, label=name)
            axis.axhline(own, color=line.get_color(), linewidth=0.8, linestyle=":")
            rows += [
                {"label": name, "parameter": kind, "value": float(value), "entropy": each, "entropy_before": own}
                for value, each in zip(values, found, strict=True)
            ]
    axes[0].set(xlabel="temperature T", ylabel="entropy, nats", title="ERA")
    axes[1].set(xlabel="beta", ylabel="entropy, nats", title="Enhanced ERA")
    axes[0].legend(fontsize=7)
    kept = max(abs(_entropy(Power(1.0)(label)) - _entropy(label)) for label in labels.values())
    keeping = _solve(lambda t: _entropy(era(t)(UNSURE)) - _entropy(UNSURE))
    sharper = _solve(lambda t: _entropy(era(t)(UNSURE)) - 0.9 * _entropy(UNSURE))
    power = _solve(lambda beta: 0.9 * _entropy(UNSURE) - _entropy(Power(beta)(UNSURE)))
    left = {name: _entropy(each(SURE)) / _entropy(SURE) for name, each in (("T", era(sharper)), ("beta", Power(power)))}
    share = _entropy(era(keeping)(SURE)) / _entropy(SURE)
    return Shown(
        rows,
        figure,
        {"Enhanced ERA": kept < 1e-6, "ERA": share < 0.1 and left["T"] < left["beta"]},
        f"beta = 1 leaves the entropy of both labels unchanged; T = {keeping:.3f}, which keeps the entropy of the "
        f"unsure label, leaves the sure label {share:.1%} of its entropy; where the unsure label loses a tenth of its "
        f"entropy, the sure one is left with {left['T']:.2%} under ERA (T = {sharper:.3f}) and {left['beta']:.1%} "
        f"under Enhanced ERA (beta = {power:.2f})",
    )


def _solve(function: Callable[[float], float]) -> float:
    """Where an increasing function of T or beta is zero."""
    return float(brentq(function, 0.01, 10.0))


def _partitions(context: Context) -> dict[str, Config]:
    """The federations whose data is shown, by title, from few classes for each client to all."""
    scale, found = context.scale, {}
    more = {"workers": 1, **({} if context.data_dir is None else {"data_dir": context.data_dir})}
    for alpha in (scale.strong, scale.moderate, scale.near_iid[-1]):
        config, _ = apply(scale.preset(alpha), {**scale.base, **more, "alpha": alpha}, [])
        found[f"alpha = {alpha:g}"] = config
    for name in scale.datasets:
        found[name] = apply(name, {**scale.base, **more}, [])[0]
    return found


def _partition(context: Context) -> Shown:
    federations = _partitions(context)
    figure, axes = panels(len(federations))
    rows: list[Row] = []
    spread: dict[str, float] = {}
    apart: list[float] = []
    for axis, (title, config) in zip(axes, federations.items(), strict=True):
        federation = prepare(config)
        counts = federation.counts
        tested = [part for part in federation.data.test if part is not None]  # all of them: the data is shared out
        tests = np.array([np.bincount(part.labels, minlength=counts.shape[1]) for part in tested])
        share, of_tests = (each / each.sum(axis=1, keepdims=True) for each in (counts, tests))
        apart.append(float(np.abs(share - of_tests).sum(axis=1).max() / 2))
        spread[title] = float(np.exp(entropy(share.astype(np.float32))).mean())
        client, label = np.nonzero(counts)
        axis.scatter(
            client, label, s=60 * counts[client, label] / counts.max(), color="#b3202c", alpha=0.8, linewidths=0
        )
        axis.set(xlabel="client", ylabel="class", title=title)
        rows += [
            {"setting": title, "client": a, "class": b, "train": int(counts[a, b]), "test": int(tests[a, b])}
            for a, b in np.argwhere(counts + tests).tolist()
        ]
    classes = list(spread.values())[: len(federations) - len(context.scale.datasets)]
    said = ", ".join(f"{each:.1f} at {title}" for title, each in spread.items())
    return Shown(
        rows,
        figure,
        {"classes": classes == sorted(classes) and classes[0] < 0.6 * classes[-1], "tests": max(apart) < 0.1},
        f"the classes that a client effectively has (the exponential of the entropy of its class shares) are {said}; "
        f"the shares of its test samples differ from those of its training samples by {max(apart):.1%} at most",
    )


def _hyperparameters(context: Context) -> Shown:
    rows: list[Row] = []
    for name, methods in PAPER_OPTIONS.items():
        _, own = preset(name)
        for method, options in methods.items():
            rows += [
                {
                    "preset": name,
                    "method": method,
                    "option": option,
                    "paper": value,
                    "here": getattr(own[method], option),
                }
                for option, value in options.items()
            ]
    figure, (axes,) = panels(1, width=6.5, height=0.19 * len(rows))
    axes.axis("off")
    cells = [[str(value) for value in row.values()] for row in rows]
    drawn = axes.table(cells, colLabels=list(rows[0]), loc="center", cellLoc="left")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(7)
    equal = sum(row["paper"] == row["here"] for row in rows)
    found = f"{equal} of the paper's {len(rows)} values are those of the presets"
    return Shown(rows, figure, {"values": equal == len(rows)}, found)


EXHIBITS: Mapping[str, Exhibit] = {
    each.name: each
    for each in (
        Exhibit(
            name="costs",
            title="Megabytes per round (Table V)",
            claim="SCARLET's uplink costs 71 % less than DS-FL's, and both directions together less than half.",
            show=_costs,
            seconds=60,
        ),
        Exhibit(
            name="cost-dynamics",
            title="Cost of each round (Fig. 9)",
            claim="SCARLET's costs swing in the first rounds and settle; the uplink stays the lower one.",
            show=_cost_dynamics,
            seconds=15,
        ),
        Exhibit(
            name="cache-simulation",
            title="Share of cached samples (Fig. 3)",
            claim="Already D < 100 caches most samples; from D = 200 on there are rounds without any fresh label.",
            show=_cache_simulation,
            seconds=15,
        ),
        Exhibit(
            name="era-entropy",
            title="Entropy under ERA and Enhanced ERA (Fig. 4)",
            claim="beta = 1 keeps the entropy of every label; a T that suits an unsure one makes a sure one one-hot.",
            show=_era_entropy,
        ),
        Exhibit(
            name="partition",
            title="Data of the clients (Figs. 6 and 7)",
            claim="The smaller alpha, the fewer classes a client has, in its test samples as in its training samples.",
            show=_partition,
        ),
        Exhibit(
            name="hyperparameters",
            title="Hyperparameters of each method (Table VI)",
            claim="These are the values of the paper's experiments.",
            show=_hyperparameters,
        ),
    )
}
