"""Every command and every code block of README.md and docs/ does what it says; long runs are shortened."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import scarlet
from scarlet.cli.main import COMMANDS
from scarlet.experiment.grid import grid
from scarlet.records import RoundRecord
from tests.cli.test_commands import call
from tests.data.make_layouts import write_cifar10, write_cifar100

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHORT = [
    *("--rounds", "1", "--clients", "3", "--samples-per-client", "20", "--test-per-client", "10", "--workers", "1"),
    *("--public-size", "40", "--public-per-round", "20", "--local-epochs", "1", "--distil-epochs", "1"),
]
# Not started here: they install, download, need other machines, or take minutes.
PARSED = ("make", "pip", "scarlet data get", "scarlet flower", "scarlet paper all", "mkdir", "for", "source")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            if found[1] in languages:
                yield Block(page, text[: found.start()].count("\n") + 1, found[1], found[2])


def names(block: Block) -> str:
    return str(block)


def test_every_block_has_a_language_that_is_tested_or_is_text() -> None:
    known = {"bash", "python", "toml", "text", "bibtex", "diff"}
    assert [str(block) for block in blocks("", *set(re.findall(r"```(\w+)", _all())) - known)] == []


def _all() -> str:
    return "\n".join(page.read_text() for page in PAGES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for method, name in (("scarlet", "a"), ("dsfl", "b")):
        options = [*SHORT, "--clients", "4", "--save-clients", "--out", str(out / name)]
        assert call("run", method, *options).code == 0
    shutil.copytree(out / "a", out / "first")
    return out


@pytest.fixture
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    rng = np.random.default_rng(0)
    for folder in ("images", *(f"hospitals/{site}/{kind}" for site in "abc" for kind in ("0", "1"))):
        Path(folder).mkdir(parents=True)
        for number in range(40 if folder == "images" else 12):
            Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(f"{folder}/{number}.png")
    shutil.copytree(runs, "runs")
    for name in ("image.png", "scan.png"):
        Image.fromarray(rng.integers(0, 255, (28, 28), np.uint8)).save(name)
    np.savez("rows.npz", x=rng.integers(0, 255, (5, 1, 28, 28), np.uint8))
    x = rng.normal(size=(120, 8)).astype(np.float32)
    np.savez("mine.npz", train_x=x, train_y=np.arange(120) % 3, test_x=x, test_y=np.arange(120) % 3)
    np.savez("table.npz", x=x)
    write_cifar10(tmp_path / "data", per_batch=60)
    write_cifar100(tmp_path / "data")
    Path("grid.toml").write_text('method = ["scarlet", "dsfl"]\nrounds = 1\nclients = 3\nsamples_per_client = 20\n')
    return tmp_path


@pytest.mark.parametrize("block", [block for block in blocks("bash") if block.page.name != "new-method.md"], ids=names)
def test_commands_run(block: Block, place: Path) -> None:
    for command in block.commands():
        if command.startswith(PARSED):
            parse(command)
        else:
            play(command)


def parse(command: str) -> None:
    """Commands of ours that are not started name only options that there are; make has the target."""
    words = shlex.split(command.partition("&&")[0])
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    elif words[0] == "scarlet":
        help_of = words[1:3] if words[1] in ("flower", "data") else words[1:2]
        shown = call(*help_of, "--help").out
        assert words[1] in COMMANDS
        assert [word for word in words if word.startswith("--") and word not in shown] == []


def play(command: str) -> None:
    words = [word.replace("~", str(Path.cwd())) for word in shlex.split(command)]
    if words[:2] == ["python", "-c"]:
        exec(words[2].replace("scarlet.Config()", "scarlet.Config(rounds=1)"), {})
        return
    assert words[0] == "scarlet", command
    arguments = words[1:]
    if arguments[0] in ("run", "compare") and "--help" not in arguments:
        own = {"--clients", "--samples-per-client"} if "folder:hospitals" in arguments else set()
        pairs = zip(SHORT[::2], SHORT[1::2], strict=True)
        arguments += [word for name, value in pairs if name not in own for word in (name, value)]
    if arguments[0] == "costs":
        arguments += ["--rounds", "5"]
    code = call(*arguments).code
    assert code == 0, command


@pytest.mark.parametrize("block", list(blocks("toml")), ids=names)
def test_toml_is_read(block: Block) -> None:
    table = tomllib.loads(block.text)
    if "method" in table:
        assert len(grid(table, "the page")) > 1


class Hospital(SimpleNamespace):
    @classmethod
    def named(cls, name: str, rng: np.random.Generator) -> Hospital:
        x, y = rng.normal(size=(30, 8)).astype(np.float32), np.arange(30) % 3
        return cls(name=name, x=x, y=y, test_x=x, test_y=y)


def context() -> dict[str, Any]:
    """What the code blocks of the pages take for granted."""
    rng = np.random.default_rng(0)
    first, *others = [Hospital.named(name, rng) for name in ("St. Mary", "Charite", "Mayo", "Guy's")]
    return {
        "scarlet": scarlet,
        "hospitals": [first, *others],
        "unlabelled": rng.normal(size=(60, 8)).astype(np.float32),
        "held_out": (first.x, first.y),
        "make_small": lambda: torch.nn.Linear(8, 3),
        "make_large": lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)),
    }


@pytest.mark.parametrize(
    "block", [block for block in blocks("python") if block.page.name not in ("new-method.md", "flower.md")], ids=names
)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if block.text.startswith("def scarlet("):  # all of SCARLET, as it is in its file
        assert _body(block.text) == _body((ROOT / "src/scarlet/methods/scarlet.py").read_text())
        return
    code = re.sub(r"rounds=\d+", "rounds=1", block.text)
    exec(compile(code, str(block), "exec"), context())


def _body(source: str) -> str:
    """The function `scarlet`, without its docstring."""
    (function,) = [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "scarlet"
    ]
    if ast.get_docstring(function) is not None:
        del function.body[0]
    return ast.dump(function)


def test_what_pages_take_from_the_package_is_as_the_package_has_it() -> None:
    for path, text in runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]().items():
        assert path.read_text() == text, f"{path.name} is stale; run python docs/generate.py"


def test_every_field_of_a_round_is_described() -> None:
    table = (ROOT / "docs" / "files.md").read_text().partition("## A line of metrics.jsonl")[2]
    named = {name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == {each.name for each in fields(RoundRecord)}
