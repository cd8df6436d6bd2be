"""Is a beta that the server chooses by itself as good as one that was tuned?

    python -m benchmarks.sharpening embedded --results FILE
    python -m benchmarks.sharpening cifar participation --data-dir DIR --results FILE

Each part is a grid of runs of SCARLET. A run is one line of FILE; runs that FILE has are not repeated, so that two of
these processes, of one thread each, may work at different parts and a stopped one goes on where it was. In the end the
tables are printed: the server's accuracy, a mean over the last ten evaluations, and differences over paired seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from scipy import stats

import scarlet

Beta = float | str
Run = Mapping[str, Any]  # what makes it, and then what it came to

_FOREIGN = {  # private and public images have no class in common
    "private": "cifar10",
    "public": "cifar100",
    "model": "cnn32",
    "samples_per_client": 500,
    "public_size": 2000,
    "public_per_round": 200,
    "local_epochs": 1,
    "distil_epochs": 2,
    "rounds": 300,
    "eval_every": 5,
}


@dataclass(frozen=True)
class Part:
    """A grid: each of `settings` with every beta and seed."""

    settings: Sequence[Mapping[str, Any]]
    betas: Sequence[Beta]
    seeds: Sequence[int]
    shared: Mapping[str, Any] = field(default_factory=dict)


PARTS = {
    "embedded": Part([{"alpha": alpha} for alpha in (0.1, 0.3, 1.0, 100.0)], (1.5, 1, "auto", 2, 1.25, 3), range(5)),
    "duration": Part([{"cache_duration": d} for d in (15, 30, 60, 120)], (1.5, "auto"), range(2), {"rounds": 150}),
    "cifar": Part([{"alpha": alpha} for alpha in (0.3, 0.05, 10.0)], (1, 1.5, 2, "auto"), range(2), _FOREIGN),
    "participation": Part([{"participation": 0.3}], (1, 1.5, 2, "auto"), range(1), _FOREIGN),
}


def runs_of(name: str) -> Iterator[Run]:
    """The runs of a part, one seed after another."""
    part = PARTS[name]
    for seed in part.seeds:
        for setting in part.settings:
            for beta in part.betas:
                yield {"part": name, **setting, "beta": beta, "seed": seed}


def played(run: Run, data_dir: Path | None) -> Run:
    """A run, with what it came to."""
    options = {**PARTS[run["part"]].shared, **run}
    del options["part"]
    own = {name: options.pop(name) for name in ("beta", "cache_duration") if name in options}
    if data_dir is not None:
        options["data_dir"] = data_dir
    result = scarlet.run(scarlet.ScarletConfig(**own), scarlet.Config(**options, workers=1))
    return {**run, **measured(result.records)}


def measured(records: Sequence[Any]) -> Run:
    """Accuracies over the last ten evaluations, bytes, and the betas."""
    last = [record for record in records if record.server_accuracy is not None][-10:]
    return {
        "server": fmean(record.server_accuracy for record in last),
        "clients": fmean(record.client_accuracy for record in last),
        "mb": records[-1].cumulative_bytes / 1e6,
        "betas": [None if record.beta is None else round(record.beta, 3) for record in records],
    }


def same(row: Run, key: Run) -> bool:
    """Whether a line is that of a run."""
    return all(row.get(name) == value for name, value in key.items())


def interval(values: Sequence[float]) -> str:
    """Mean, and the half of its 95 % interval, in points of accuracy."""
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1) if len(values) > 1 else float("nan")
    return f"{100 * fmean(values):+.1f} ± {100 * half:.1f}"


def shown(seeds: Mapping[int, float], wanted: Iterable[int]) -> str:
    """A mean, and its seeds where some are missing."""
    lacks = set(wanted) - set(seeds)
    return f"{fmean(seeds.values()):.3f}" + (f" (seeds {', '.join(map(str, sorted(seeds)))} only)" if lacks else "")


def table(name: str, rows: Sequence[Run], score: str) -> str:
    """A line for each setting: the mean of every beta, and auto against the best of the others and against 1.5."""
    part, lines = PARTS[name], []
    for setting in part.settings:
        found = {
            beta: {row["seed"]: row[score] for row in rows if same(row, {"part": name, **setting, "beta": beta})}
            for beta in part.betas
        }
        own = found.pop("auto")
        whole = {beta: seeds for beta, seeds in found.items() if own and own.keys() <= seeds.keys()}
        cells = {f"beta {beta}": shown(seeds, own) for beta, seeds in sorted(found.items()) if seeds}
        if whole:
            best = max(whole, key=lambda beta: fmean(whole[beta][seed] for seed in own))
            cells["auto"] = shown(own, own)
            for beta in dict.fromkeys(beta for beta in (best, 1.5) if beta in whole):
                cells[f"auto less {beta}"] = interval([own[seed] - whole[beta][seed] for seed in own])
        lines.append(f"{name} {score} {setting}: " + ", ".join(f"{key} {value}" for key, value in cells.items()))
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--results", type=Path, required=True, help="file of the lines")
    parser.add_argument("--data-dir", type=Path, help="directory of CIFAR-10 and CIFAR-100")
    parser.add_argument("--betas", help="only these, such as 1.5,auto")
    parser.add_argument("--only-print", action="store_true", help="print the tables of what there is")
    given = parser.parse_args()
    torch.set_num_threads(1)
    wanted = given.betas and given.betas.split(",")

    def read() -> list[Run]:
        return [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []

    for run in (run for name in given.parts for run in runs_of(name)):
        if given.only_print or str(run["beta"]) not in (wanted or [str(run["beta"])]):
            continue
        if not any(same(row, run) for row in read()):
            row = played(run, given.data_dir)
            with given.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print({key: value for key, value in row.items() if key != "betas"}, flush=True)
    rows = read()
    for name in given.parts:
        for score in ("server", "clients"):
            print(table(name, rows, score))


if __name__ == "__main__":
    main()
