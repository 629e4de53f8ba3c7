"""ATIF documents are valid for Harbor's own validator, which needs a newer Python than 3.11 (see Makefile)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from export_parts import stored
from test_export_atif import odd_line, shop_line, side_line

from relaxforge.export.atif import atif_line

HARBOR = Path(__file__).parents[2] / ".clients" / "harbor" / "bin" / "python"


def validated(path):
    return subprocess.run(
        [str(HARBOR), "-m", "harbor.utils.trajectory_validator", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not HARBOR.exists(), reason="`make test` installs Harbor where there is a Python from 3.12 on")
def test_harbors_validator_takes_every_document_and_notices_a_wrong_one(tmp_path):
    path = tmp_path / "trajectory.json"
    for tokens in (False, True):
        for line in (shop_line(), side_line(), odd_line()):
            path.write_bytes(atif_line(stored(line), tokens=tokens))
            said = validated(path)
            assert said.returncode == 0, said.stdout + said.stderr
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "reward": 1}))
    assert validated(path).returncode == 1
