"""Rooms import downwards, and importing one does nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "relaxforge"
HEAVY = {"torch", "transformers", "tokenizers", "jinja2", "PIL", "ray", "psycopg", "wandb", "tensorboard", "matplotlib",
         "pyarrow", "accelerate", "gguf", "starlette", "fastapi", "uvicorn", "tyro"}  # fmt: skip
MAY_IMPORT = {
    "gateway": {"uvicorn", "httptools"},
    "store": {"psycopg"},
    "web": {"starlette", "fastapi", "uvicorn", "jinja2", "psycopg"},
    "render": {"transformers", "tokenizers", "jinja2", "PIL"},
    "rollout": {"transformers", "tokenizers", "jinja2", "PIL"},
    "runs": HEAVY - {"torch", "accelerate", "wandb", "tensorboard", "matplotlib", "tyro"},
    "cli": HEAVY - {"torch", "accelerate", "wandb", "tensorboard", "matplotlib"},
}
"""Heavy libraries that a room may load when it is imported; torch is in nobody's list, for main never imports it."""
CHILD_PROCESSES = {"train", "engine", "models"}
"""Rooms with modules that run in a process of their own, where torch is at home."""

ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())

PROGRAM = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def modules(room):
    files = sorted((PACKAGE / room).rglob("*.py"))
    return [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files if path.stem != "__main__"
    ]


def imported(names, cwd):
    """Top-level modules in memory after importing ``names`` in a fresh interpreter."""
    import json

    ran = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, cwd=cwd, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.count("\n") == 1, f"an import printed something: {ran.stdout}"
    return set(json.loads(ran.stdout))


def test_rooms_import_downwards():
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in CHILD_PROCESSES])
def test_importing_a_room_loads_no_heavy_library_and_leaves_no_trace(room, tmp_path):
    loaded = imported(modules(room), tmp_path)
    assert loaded & HEAVY <= MAY_IMPORT.get(room, set())
    assert list(tmp_path.iterdir()) == []


def test_core_needs_the_standard_library_alone(tmp_path):
    loaded = imported(modules("core"), tmp_path)
    assert {name for name in loaded if not name.startswith("_")} <= set(sys.stdlib_module_names) | {
        "relaxforge",
        "__main__",
        "sitecustomize",
        "usercustomize",
    }
