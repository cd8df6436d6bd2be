"""Makes tables and figures: first the runs that they need, side by side, then each of them, and a page about all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scarlet.errors import ConfigError, unknown
from scarlet.experiment.planned import Planned
from scarlet.experiment.run_directory import make as make_directory
from scarlet.experiment.side_by_side import Watch
from scarlet.experiment.sweep import process_count, run_side_by_side
from scarlet.paper import ablations, calculated, performance, sharpening
from scarlet.paper.exhibit import Context, Exhibit, Shown, write
from scarlet.paper.gallery import gallery, scale_in
from scarlet.paper.runs import Runs
from scarlet.paper.scale import Scale
from scarlet.whole_file import write_whole

ORDER = (
    *("centralized", "costs", "cost-dynamics", "performance", "equal-bytes", "cache-simulation", "era-entropy"),
    *("era-vs-enhanced", "partition", "cache-others", "duration", "beta", "alpha-beta", "near-iid"),
    *("participation", "validation", "hyperparameters"),
)
_ALL = {**performance.EXHIBITS, **calculated.EXHIBITS, **ablations.EXHIBITS, **sharpening.EXHIBITS}
EXHIBITS: Mapping[str, Exhibit] = {name: _ALL[name] for name in ORDER}
GALLERY = "results.md"


@dataclass(frozen=True, slots=True)
class Made:
    """A table or figure, and where it is."""

    exhibit: Exhibit
    shown: Shown
    directory: Path


def find(names: Sequence[str]) -> list[Exhibit]:
    """The tables and figures of these names; `all` is every one."""
    if list(names) == ["all"]:
        return list(EXHIBITS.values())
    for name in names:
        if name in ("all", "list"):
            raise ConfigError(f"{name} must stand alone, got {' '.join(names)}; leave out the others, or {name}")
        if name not in EXHIBITS:
            raise unknown("figure", name, [*EXHIBITS, "all"])
    return [EXHIBITS[name] for name in names]


def runs_of(exhibits: Sequence[Exhibit], scale: Scale, data_dir: Path | None) -> list[Planned]:
    """The runs that some figures need, each once, one seed after another."""
    found = {
        each.directory: each
        for exhibit in exhibits
        for wanted in exhibit.wants(scale)
        for each in wanted.planned(scale, data_dir)
    }
    return sorted(found.values(), key=lambda each: each.config.seed)


def seconds(exhibits: Sequence[Exhibit], scale: Scale, processes: int) -> float:
    """How long it takes to make some figures, roughly: their runs are counted, not tried."""
    rounds = sum(each.config.rounds * each.config.participation for each in runs_of(exhibits, scale, None))
    return scale.round_seconds * rounds / processes + sum(each.seconds for each in exhibits)


def make(
    exhibits: Sequence[Exhibit],
    scale: Scale,
    out: Path,
    *,
    data_dir: Path | None = None,
    processes: int | None = None,
    watch: Watch | None = None,
) -> list[Made]:
    """Make some figures below a directory; runs that are there already, for other figures too, are not repeated.

    A figure whose runs failed or were interrupted is left out.
    """
    for name in EXHIBITS:
        there = scale_in(out / name)
        if there not in (None, scale.name) and name in [each.name for each in exhibits]:
            raise ConfigError(
                f"out holds {name} at scale {there}: {out / name}; choose another directory for {scale.name}"
            )
    if out.is_file():
        raise ConfigError(f"out must be a directory, and {out} is a file; choose another name")
    planned = runs_of(exhibits, scale, data_dir)
    results = []
    if planned:
        results = run_side_by_side(planned, out / f"runs-{scale.name}", process_count(processes, planned), watch)
    context = Context(scale, Runs(scale, (result for result in results if not result.interrupted)), data_dir)
    made = []
    for exhibit in exhibits:
        if not context.runs.lacks(exhibit.wants(scale)):
            shown = exhibit.show(context)
            write(exhibit, scale, shown, out / exhibit.name)
            made.append(Made(exhibit, shown, out / exhibit.name))
    write_gallery(make_directory(out))
    return made


def write_gallery(out: Path) -> None:
    """A page with the picture and the sentence of every figure that is in the directory."""
    page = gallery(EXHIBITS, [out], lambda made, found: f"{made.name}/figure.svg")
    write_whole(out / GALLERY, f"# What the paper claims, and what these runs show\n\n{page}")
