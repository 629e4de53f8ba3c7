"""A small environment on disk, to be spoiled in one way by each test."""

from pathlib import Path

MANIFEST = """\
name = "box"
[agent]
command = "python3 agent.py"
[evaluator]
command = "python3 evaluator/check.py"
[tasks]
path = "tasks.jsonl"
"""


def write_bundle(folder: Path, manifest: str = MANIFEST, **files: str) -> Path:
    """``files`` are by path, with ``__`` for ``/``."""
    content = {"agent.py": "pass\n", "evaluator/check.py": "pass\n", "tasks.jsonl": '{"input": "hi"}\n'}
    content |= {name.replace("__", "/"): text for name, text in files.items()}
    for name, text in {"environment.toml": manifest, **content}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
