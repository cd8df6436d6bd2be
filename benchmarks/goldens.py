"""Record the exact results of a source tree, and compare two recordings: a refactoring changes none of them.

    python benchmarks/goldens.py record --python .venv/bin/python --tree . --out after.json
    python benchmarks/goldens.py compare before.json after.json

A recording has three kinds of goldens:

- `frames`: a hash of all messages of a simulated federation under faults, in the order in which its server sees them;
- `events`: how often each fault and event occurs over 1,000 simulated federations;
- `real`: the metrics, the ledger and the digest of all weights of small runs through the command line.

Weights are compared bit by bit, so both recordings must come from one machine and one version of PyTorch and NumPy.
`--data-dir` adds runs on CIFAR-100 with Tiny ImageNet and on Tiny ImageNet with Caltech-256.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

Golden = dict[str, Any]

KINDS = "frames", "events", "real"
CODECS = "reference", "compact"
SIMULATED = "scarlet", "dsfl", "cfd", "comet", "selective-fd", "fedavg", "individual"  # methods of the fault simulator
SEEDS = 300  # of the frames, with a method that the simulator draws
SEEDS_A_METHOD = 20
SEEDS_OF_EVENTS = 1000
ROUNDS_BEFORE_KILL = 2
TIMEOUT = 600  # seconds of one run

SETTING = (
    "--rounds 8 --clients 5 --samples-per-client 40 --test-per-client 20 --public-size 200 --public-per-round 60 "
    "--batch-size 20 --local-epochs 1 --distil-epochs 1 --workers 1 --engine contiguous"
)

# Long enough that cached labels expire.
SHORT_CACHE = "--cache-duration 5 --rounds 10"
LONG_CACHE = "--cache-duration 25 --rounds 30"
PART = "--participation 0.3 --clients 10 --rounds 12"
LOSSES = "--dropout 0.3 --rounds 12"

BOTH_CODECS = [
    *(
        f"scarlet {cache} --on-expiry {expiry}"
        for cache, expiry in product(("--cache-duration 0", SHORT_CACHE, LONG_CACHE), ("delete", "refresh"))
    ),
    "scarlet --average median",
    "scarlet --average trimmed",
    "scarlet --uplink-bits 4 --downlink-bits 8",
    "dsfl",
    "cfd",
    "cfd --delta --uplink-bits 1 --downlink-bits 3",
    "cfd --delta --uplink-bits 4 --downlink-bits 4",
    "cfd --restart",
    "cfd --subset fixed",
    "cfd --delta --subset fixed",
    *(
        f"cfd {delta}{cache} --on-expiry {expiry}"
        for delta, cache, expiry in product(("", "--delta "), (SHORT_CACHE, LONG_CACHE), ("delete", "refresh"))
    ),
    "comet",
    "comet --assign server",
    f"comet {SHORT_CACHE}",
    "selective-fd",
    f"selective-fd {SHORT_CACHE}",
    "selective-fd --tau-server 1",  # turns every label down, and 1.5 some of them
    "selective-fd --tau-server 1.5",
    f"selective-fd --tau-server 1.5 {SHORT_CACHE}",
    "selective-fd --selector original",
    "fedavg",
    "individual",
    "centralized --central-lr 0.05",
    *(
        f"{method} {faults}"
        for method, faults in product(
            ("scarlet", "cfd --delta", "comet", "fedavg", "selective-fd"), (PART, LOSSES, f"--dropout 0.3 {PART}")
        )
    ),
    # Clients that miss rounds while labels expire: catch-ups.
    *(
        f"{method} --cache-duration 5 --dropout 0.3 {PART}"
        for method in ("scarlet --on-expiry delete", "cfd --delta", "comet", "selective-fd")
    ),
    f"comet --assign server --dropout 0.3 {PART}",
    "scarlet --hostile 0.3 --average median",
]
ONE_CODEC = [
    *(
        f"{method} --engine {engine}"
        for engine, method in product(
            ("channels-last --model cnn32", "batched"), ("scarlet", "comet", "fedavg", "cfd --restart")
        )
    ),
    "scarlet --workers 2",
    "scarlet --clients-in-memory 2",
    f"scarlet --clients-in-memory 2 {PART}",
    "scarlet --eval-every 3",
    "scarlet --checkpoint-every 2",
]
KILLED = [
    f"scarlet {SHORT_CACHE}",
    "scarlet --checkpoint-every 2 --rounds 12",
    "cfd --delta --rounds 12",
    "comet --assign server --rounds 12",
]
ON_FILES = [
    "scarlet --private cifar100 --model cnn32 --engine channels-last --rounds 4",
    "fedavg --private cifar100 --model resnet20 --engine channels-last --rounds 2",
    "selective-fd --private cifar100 --model cnn --rounds 4",
    "cfd --delta --private tiny-imagenet --model cnn --rounds 4",
]


@dataclass(frozen=True, slots=True)
class Play:
    """Schedules of the fault simulator that make one golden."""

    name: str
    seeds: tuple[int, int]  # the first, and the one after the last
    codec: str
    method: str | None  # None: the simulator draws one


@dataclass(frozen=True, slots=True)
class Run:
    """A run through the command line."""

    name: str
    method: str
    options: list[str]
    killed: bool = False


def plays(kind: str) -> Iterator[Play]:
    """All goldens of the fault simulator, of one kind."""
    for codec in CODECS:
        if kind == "events":
            yield Play(f"events/{codec}", (0, SEEDS_OF_EVENTS), codec, None)
        elif kind == "frames":
            for method, seeds in ((None, SEEDS), *((method, SEEDS_A_METHOD) for method in SIMULATED)):
                for seed in range(seeds):
                    yield Play(f"frames/{codec}/{method or 'drawn'}/{seed}", (seed, seed + 1), codec, method)


def runs(data_dir: Path | None) -> Iterator[Run]:
    """All goldens of the command line."""
    for codec in CODECS:
        for line in BOTH_CODECS:
            yield _run(codec, line)
    for line in ONE_CODEC:
        yield _run("compact", line)
    for line in KILLED:
        yield _run("compact", line, killed=True)
    if data_dir is not None:
        for line in ON_FILES:
            yield _run("compact", line, more=["--data-dir", str(data_dir.absolute())])


def _run(codec: str, line: str, *, killed: bool = False, more: Iterable[str] = ()) -> Run:
    method, *own = line.split()
    words = iter(SETTING.split())
    shared = [word for pair in zip(words, words, strict=True) if pair[0] not in own for word in pair]
    name = f"real/{codec}/{'killed and resumed: ' if killed else ''}{line}"
    return Run(name, method, [*shared, *own, "--codec", codec, *more], killed)


# The fault simulator, in a process of the tree's own interpreter


@dataclass(slots=True)
class Frames:
    """All that a server sends and receives, hashed in its order."""

    frames: int = 0
    size: int = 0
    rounds: list[str] = field(default_factory=list)  # the hash as it is at the end of each attempt at a round
    hash: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, what: str, client: int, data: bytes) -> None:
        """Hash one message with its direction, client and length."""
        self.frames += 1
        self.size += len(data)
        self.hash.update(f"{what} {client} {len(data)} ".encode())
        self.hash.update(data)

    def end_round(self) -> None:
        """Keep the hash of all messages so far, which tells where two recordings part."""
        self.rounds.append(self.hash.hexdigest()[:8])

    def golden(self) -> Golden:
        """What is recorded."""
        return {"frames": self.frames, "bytes": self.size, "hash": self.hash.hexdigest(), "rounds": self.rounds}


def imported(*names: str) -> Any:
    """The first of the modules that the tree has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module that is there and lacks another one is an error of the tree.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
    raise ModuleNotFoundError(f"the tree has none of {', '.join(names)}")


def listen(server: Any) -> Callable[[], Frames]:
    """Have all servers report their messages; returns what begins a new recording of them."""
    heard = Frames()
    open_round, resets, take = server.open_round, server.resets, server.take

    def begin() -> Frames:
        nonlocal heard
        heard = Frames()
        return heard

    def opened(self: Any) -> Any:
        if heard.frames:
            heard.end_round()
        messages = open_round(self)
        for client, data in messages.items():
            heard.add("open", client, data)
        return messages

    def reset(self: Any) -> Any:
        messages = resets(self)
        for client, data in messages.items():
            heard.add("reset", client, data)
        return messages

    def taken(self: Any, sender: int, data: bytes) -> Any:
        heard.add("take", sender, data)
        return take(self, sender, data)

    server.open_round, server.resets, server.take = opened, reset, taken
    return begin


def play_all() -> None:
    """Play what standard input asks for, one JSON object a line, and answer in the same way."""
    sys.path[0] = str(Path.cwd())  # instead of this script's folder: the simulator may be among the tree's tests
    schedule = imported("scarlet.chaos.schedule", "tests.faults.schedule")
    begin = listen(imported("scarlet.core.server", "scarlet.protocol.server").Server)
    for line in sys.stdin:
        play = Play(**json.loads(line))
        print(json.dumps({"name": play.name, "golden": _played(play, schedule.play_schedule, begin)}), flush=True)


def _played(play: Play, play_schedule: Callable[..., Counter[str]], begin: Callable[[], Frames]) -> Golden:
    frames, events = begin(), Counter[str]()
    for seed in range(*play.seeds):
        try:
            events.update(play_schedule(seed, play.codec, play.method))
        except Exception as error:  # whatever goes wrong in one schedule, the others are played
            return {"error": f"seed {seed}: {type(error).__name__}: {error}"}
    frames.end_round()
    if play.name.startswith("events/"):
        return {event: count for event, count in sorted(events.items()) if count}
    return frames.golden()


# Recording


@dataclass(frozen=True, slots=True)
class Tree:
    """A source tree with the interpreter that it is installed in."""

    python: Path
    folder: Path

    def check(self) -> None:
        """Make sure that the interpreter imports this tree and not another one."""
        find = "import importlib.util as u; print(getattr(u.find_spec('scarlet'), 'origin', ''))"
        found = self.call(["-c", find]).stdout.strip()
        if not Path(found).resolve().is_relative_to(self.folder.resolve()):
            raise SystemExit(f"{self.python} imports scarlet from {found or 'nowhere'}, not from {self.folder}")

    def call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run the interpreter in the tree, to the end."""
        return subprocess.run(
            self._command(words), cwd=self.folder, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT
        )

    def start(self, words: list[str], **how: Any) -> subprocess.Popen[str]:
        """Start the interpreter in the tree."""
        return subprocess.Popen(self._command(words), cwd=self.folder, env=_environment(), text=True, **how)

    def _command(self, words: list[str]) -> list[str]:
        return [str(self.python), *words]


def _environment() -> dict[str, str]:
    """One thread, and nothing that could lead to other code or other data."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SCARLET_DATA")}
    return kept | {"OMP_NUM_THREADS": "1"}


def simulated(tree: Tree, wanted: list[Play]) -> Iterator[tuple[str, Golden]]:
    """Play schedules in one process of the tree."""
    if not wanted:
        return
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as trouble:
        asked.writelines(json.dumps(asdict(play)) + "\n" for play in wanted)
        asked.seek(0)
        how = {"stdin": asked, "stdout": subprocess.PIPE, "stderr": trouble}
        with tree.start([str(Path(__file__).resolve()), "play"], **how) as process:
            assert process.stdout is not None
            left = {play.name for play in wanted}
            for line in process.stdout:
                answer = json.loads(line)
                left.discard(answer["name"])
                yield answer["name"], answer["golden"]
        trouble.seek(0)
        reason = _last_line(trouble.read())
        for play in wanted:
            if play.name in left:
                yield play.name, {"error": reason}


def executed(tree: Tree, run: Run) -> Golden:
    """Do a run, and read what it leaves on disk."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["-m", "scarlet", "run", run.method, *run.options, "--json", "--out", str(out)]
        if run.killed:
            reason = _killed(tree, words, out)
            if reason is not None:
                return {"error": reason.replace(folder, "")}
            words = ["-m", "scarlet", "resume", str(out), "--json"]
        try:
            done = tree.call(words)
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {TIMEOUT} s"}
        if done.returncode:
            return {"error": _last_line(done.stderr).replace(folder, "")}
        return _outcome(out)


def _killed(tree: Tree, words: list[str], out: Path) -> str | None:
    """Start a run and kill it after some rounds; returns the reason if that was not possible."""
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + TIMEOUT
    with tempfile.TemporaryFile("w+") as trouble:
        process = tree.start(words, stdout=subprocess.DEVNULL, stderr=trouble, start_new_session=True)
        try:
            while not metrics.exists() or metrics.read_bytes().count(b"\n") < ROUNDS_BEFORE_KILL:
                if process.poll() is not None or time.monotonic() > deadline:
                    trouble.seek(0)
                    return _last_line(trouble.read()) or "it ended before it could be killed"
                time.sleep(0.002)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if process.returncode == -signal.SIGKILL else "it ended before it could be killed"


def _outcome(out: Path) -> Golden:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    summary = json.loads((out / "summary.json").read_text())
    ledger = (out / "ledger.csv").read_text()
    by_round: dict[str, list[str]] = {}
    for row in ledger.splitlines():
        by_round.setdefault(row.partition(",")[0], []).append(row)
    return {
        "metrics": [_lasting(json.loads(line)) for line in lines],
        "ledger": {key: _hash("\n".join(rows))[:8] for key, rows in by_round.items()} | {"whole": _hash(ledger)},
        "summary": _lasting(summary),
    }


def _lasting(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what depends on the machine or on the number of workers."""
    local = "seconds", "versions"
    return {key: value for key, value in record.items() if key not in local and not key.endswith("_transport_bytes")}


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def record(tree: Tree, out: Path, only: str | None, match: list[str], data_dir: Path | None) -> int:
    """Record a tree; a part of the goldens is merged into what the file holds."""
    tree.check()

    def wanted(name: str) -> bool:
        return (only is None or name.startswith(f"{only}/")) and _matches(name, match)

    goldens: dict[str, Golden] = json.loads(out.read_text()) if (only or match) and out.exists() else {}
    schedules = [play for kind in ("frames", "events") for play in plays(kind) if wanted(play.name)]
    on_the_line = [run for run in runs(data_dir) if wanted(run.name)]
    total = len(schedules) + len(on_the_line)
    began, recorded = time.monotonic(), []

    def note(name: str, golden: Golden, *, show: bool) -> None:
        goldens[name] = golden
        recorded.append(name)
        if show or "error" in golden:
            _write(out, goldens)
            seconds = time.monotonic() - began
            print(f"{seconds:6.0f} s  {len(recorded)}/{total}  {name}  {_brief(golden)}", flush=True)

    for name, golden in simulated(tree, schedules):
        note(name, golden, show=name.startswith("events/") or len(recorded) % 100 == 99)
    for run in on_the_line:
        note(run.name, executed(tree, run), show=True)
    _write(out, goldens)
    failed = [name for name in recorded if "error" in goldens[name]]
    for name in failed:
        print(f"error: {name}: {goldens[name]['error']}")
    print(f"{total} goldens recorded in {time.monotonic() - began:.0f} s, {len(failed)} of them errors")
    return 0


def _matches(name: str, parts: list[str]) -> bool:
    return not parts or any(part in name for part in parts)


def _write(path: Path, goldens: Mapping[str, Golden]) -> None:
    """Replace the file as a whole, one golden a line."""
    part = path.with_name(path.name + ".part")
    lines = (f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items())
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    part.replace(path)


def _brief(golden: Golden) -> str:
    if "error" in golden:
        return f"error: {golden['error']}"
    if "summary" in golden:
        summary = golden["summary"]
        return f"weights {summary['weights_digest'][:8]}, client accuracy {summary['client_accuracy']}"
    return ""


# Comparing


def compare(first: Path, second: Path, match: list[str]) -> int:
    """Print what differs, and say in the exit code whether anything does."""
    before, after = (json.loads(path.read_text()) for path in (first, second))
    names = [name for name in {**before, **after} if _matches(name, match)]
    differ = 0
    for name in names:
        if name not in before or name not in after:
            found = [f"only in {first if name in before else second}"]
        else:
            found = list(differences(name, before[name], after[name]))
        if found:
            differ += 1
            print(f"{name}: {'; '.join(found)}")
    print(f"{len(names)} goldens, {differ} differ")
    return 1 if differ else 0


def differences(name: str, a: Golden, b: Golden) -> Iterator[str]:
    """Where two recordings of a golden part; metrics and summaries may have keys that the first one has not."""
    if "error" in a or "error" in b:
        if a.get("error") != b.get("error"):
            yield f"error {a.get('error', 'none')!r} -> {b.get('error', 'none')!r}"
    elif name.startswith("real/"):
        yield from _first_in_metrics(a["metrics"], b["metrics"])
        if len(a["metrics"]) != len(b["metrics"]):
            yield f"{len(a['metrics'])} -> {len(b['metrics'])} rounds"
        if a["ledger"] != b["ledger"]:
            keys = [key for key in {**a["ledger"], **b["ledger"]} if a["ledger"].get(key) != b["ledger"].get(key)]
            yield f"ledger: {'header' if keys[0] == 'round' else f'from round {keys[0]} on'}"
        if changed := _changed(a["summary"], b["summary"]):
            yield f"summary: {', '.join(changed)}"
    elif name.startswith("frames/"):
        if a != b:
            pairs = zip(a["rounds"], b["rounds"], strict=False)
            at = next((i for i, (x, y) in enumerate(pairs, 1) if x != y), min(len(a["rounds"]), len(b["rounds"])) + 1)
            counts = _changed({key: a[key] for key in ("frames", "bytes")}, b)
            yield ", ".join([f"from attempt {at} of {len(a['rounds'])} on", *counts])
    else:
        yield from _changed({key: a.get(key, 0) for key in {**a, **b}}, b)


def _first_in_metrics(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Iterator[str]:
    for x, y in zip(a, b, strict=False):
        if changed := _changed(x, y):
            yield f"metrics from round {x['round']} on: {', '.join(changed)}"
            return


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    # As text, because a NaN equals itself there.
    texts = ((key, json.dumps(a[key], sort_keys=True), json.dumps(b.get(key), sort_keys=True)) for key in a)
    return [f"{key} {x} -> {y if key in b else 'none'}" for key, x, y in texts if x != y or key not in b]


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Record the exact results of a source tree, or compare recordings.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record a tree")
    recording.add_argument("--python", type=Path, required=True, help="interpreter that the tree is installed in")
    recording.add_argument("--tree", type=Path, required=True, help="the source tree")
    recording.add_argument("--out", type=Path, required=True, help="JSON file; --only and --match merge into it")
    recording.add_argument("--only", choices=KINDS, help="record one kind of goldens")
    recording.add_argument("--match", action="append", default=[], help="record names with this in them; repeatable")
    recording.add_argument("--data-dir", type=Path, help="folder of CIFAR-100, Tiny ImageNet and Caltech-256")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    comparing.add_argument("--match", action="append", default=[], help="compare names with this in them; repeatable")
    commands.add_parser("play", help="used by record: play schedules of the fault simulator from standard input")
    given = parser.parse_args()
    match given.command:
        case "record":
            # absolute(), not resolve(): an interpreter is of its environment only under its own name.
            tree = Tree(given.python.absolute(), given.tree.absolute())
            print(f"{shlex.quote(str(tree.python))} in {tree.folder}", flush=True)
            return record(tree, given.out, given.only, given.match, given.data_dir)
        case "compare":
            return compare(given.first, given.second, given.match)
        case _:
            play_all()
            return 0


if __name__ == "__main__":
    sys.exit(main())
