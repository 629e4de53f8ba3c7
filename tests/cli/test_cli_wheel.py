import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which the built wheel is installed, and nothing else."""
    built, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    python = (sys.executable, "-m")
    subprocess.run(
        [*python, "build", "--wheel", "--no-isolation", "--outdir", built, ROOT], check=True, capture_output=True
    )
    [wheel] = built.glob("*.whl")
    subprocess.run(
        [*python, "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel],
        check=True,
        capture_output=True,
    )
    return target


def relaxforge(installed, cwd, *words):
    return subprocess.run(
        [sys.executable, installed / "bin" / "relaxforge", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_starts_a_project(installed, tmp_path):
    where = subprocess.run(
        [sys.executable, "-c", "import relaxforge; print(relaxforge.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))
    assert relaxforge(installed, tmp_path, "--version").stdout.startswith("relaxforge ")
    started = relaxforge(installed, tmp_path, "init", "project")
    assert (started.returncode, started.stderr) == (0, "")
    checked = relaxforge(installed, tmp_path, "doctor", "project/run.toml", "--model", "tiny", "--engine", "scripted")
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "ready to run")


def test_the_wheel_carries_types_and_licence(installed):
    assert (installed / "relaxforge" / "py.typed").exists()
    [info] = installed.glob("relaxforge-*.dist-info")
    assert (info / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
