"""The agents of the rollout tests run here, too; and one tiny model folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relaxforge.models import tiny
from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer

sys.path.append(str(Path(__file__).parents[1] / "rollout"))


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(str(tiny.folder(tmp_path_factory.mktemp("models"))), RenderConfig())
