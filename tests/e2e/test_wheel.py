"""What users install: the wheel has every file of the package, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 120  # seconds


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel, built by what is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.iterdir()
    return ZipFile(path)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: ZipFile) -> None:
    source = ROOT / "src"
    expected = {str(path.relative_to(source)) for path in (source / "scarlet").rglob("*") if path.is_file()}
    expected = {name for name in expected if "__pycache__" not in name}
    assert {"scarlet/py.typed", "scarlet/report/page.js"} <= expected
    about = {name for name in wheel.namelist() if name.partition("/")[0].endswith(".dist-info")}
    assert set(wheel.namelist()) - about == expected
    assert {name.partition("/")[2] for name in about} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    }


def test_a_file_is_in_the_wheel_as_it_is_in_the_tree(wheel: ZipFile) -> None:
    for name in ("scarlet/report/page.css", "scarlet/cli/main.py"):
        assert wheel.read(name) == (ROOT / "src" / name).read_bytes()


def test_the_metadata_names_the_licence_the_command_and_the_python(wheel: ZipFile) -> None:
    (folder,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = message_from_string(wheel.read(f"{folder}/METADATA").decode())
    assert metadata["Name"] == "scarlet-fl" and metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "scarlet = scarlet.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
