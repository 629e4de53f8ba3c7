"""One tiny model folder for the room: its tokenizer and chat template are real, its weights are not needed."""

from __future__ import annotations

import pytest

from relaxforge.models import tiny
from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    folder = tiny.folder(tmp_path_factory.mktemp("models"))
    return Renderer.load(str(folder), RenderConfig(agentic_tool_call_parser="qwen", agentic_reasoning_parser="think"))
