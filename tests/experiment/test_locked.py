"""Two commands cannot write to one directory at the same time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import scarlet
from scarlet.cli.main import main
from scarlet.errors import ConfigError
from scarlet.experiment.locked import locked
from tests.experiment.tiny import METHOD, TINY
from tests.experiment.watchers import CtrlC

HOLDER = """
import sys
from pathlib import Path
from scarlet.experiment.locked import locked

with locked(Path(sys.argv[1]), "out"):
    print("held", flush=True)
    sys.stdin.read()
"""


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_run_that_goes_on_is_not_resumed_by_a_second_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    scarlet.run(METHOD, TINY, out=out, watchers=[CtrlC(3)])
    before = contents(out)
    with locked(out, "out"):
        assert main(["resume", str(out)]) == 2
    line = capsys.readouterr().err
    assert f"out {out} is in use by another command; wait for its end, or choose another directory" in line
    assert contents(out) == before
    assert main(["resume", str(out), "--json"]) == 0


def test_a_sweep_that_goes_on_is_not_started_again(tmp_path: Path) -> None:
    grid = {"method": "scarlet", "seed": [0, 1], "rounds": 1, "clients": 2, "samples_per_client": 20, "public_size": 50}
    tmp_path.joinpath("sweep").mkdir()
    with locked(tmp_path / "sweep", "out"), pytest.raises(ConfigError, match="is in use by another command"):
        scarlet.sweep(grid, out=tmp_path / "sweep")
    assert not list(tmp_path.glob("sweep/scarlet*"))


def test_a_directory_is_free_again_after_the_end_of_a_command_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="in use"), locked(tmp_path, "out"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with locked(tmp_path, "out"):
        pass


def test_a_finished_run_is_not_begun_again(tmp_path: Path) -> None:
    scarlet.run(METHOD, TINY, out=tmp_path / "run")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"^the run in .* is finished already; read it, or choose another out"):
        scarlet.run(METHOD, TINY, out=tmp_path / "run", resume=True)
    assert contents(tmp_path) == before
