"""The engine of a job: what its configuration may ask for here, and the last one kept warm for the next job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from relaxforge.core.errors import ConfigError
from relaxforge.core.ports import Engine
from relaxforge.engine.choice import ModelChoice, Upstream
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.create import create_engine
from relaxforge.engine.hosted import HostedEngine
from relaxforge.models.resolve import resolve
from relaxforge.observe.log import get_logger
from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer
from relaxforge.runs.assignment import Assignment
from relaxforge.runs.worker_config import WorkerConfig

log = get_logger()


@dataclass(frozen=True, slots=True)
class Model:
    """A started engine with its renderer, or a ``hosted`` model, which has none."""

    name: str
    engine: Engine
    renderer: Renderer | None
    hosted: HostedEngine | None = None


class EngineShelf:
    """Starts the engine that a job asks for. A local one stays until a job asks for another."""

    def __init__(self, worker: WorkerConfig, engine: EngineConfig, render: RenderConfig, log_path: Path) -> None:
        self._worker = worker
        self._engine = engine
        self._render = render
        self._log_path = log_path
        self._warm: Model | None = None

    async def take(self, given: Assignment, folder: Path) -> Model:
        """A started engine for a job, which may write into ``folder``. Errors: ``ConfigError``, ``EngineError``."""
        choice = given.choice
        if choice.upstream is not None:
            return self._hosted(choice.upstream, given.secrets)
        if choice.model not in self._worker.allow_model:
            raise ConfigError(
                f"this worker may not load the model {choice.model!r}; it may load {_listed(self._worker.allow_model)} "
                "(--allow-model)"
            )
        if choice.engine == "local" and self._warm is not None:
            if self._warm.name == choice.model:
                return self._warm
            await self.close()
        model = await self._started(choice, _replies(given, folder))
        if choice.engine == "local":
            self._warm = model
        return model

    async def put_back(self, model: Model, *, sound: bool) -> None:
        """The job is done with its engine; one that failed is not kept."""
        if model is not self._warm:
            await model.engine.close()
        elif not sound:
            await self.close()

    async def close(self) -> None:
        if self._warm is not None:
            warm, self._warm = self._warm, None
            await warm.engine.close()

    async def _started(self, choice: ModelChoice, replies: str | None) -> Model:
        folder = await asyncio.to_thread(resolve, choice.model)
        renderer = await asyncio.to_thread(Renderer.load, folder.path, self._render)
        config = replace(
            self._engine,
            engine="scripted" if choice.engine == "scripted" else "local",
            scripted_replies=replies,
        )
        engine = create_engine(
            config, folder.path, renderer.tokenizer, renderer.stop_token_ids[0], Workload(self._worker.concurrency),
            str(self._log_path),
        )  # fmt: skip
        await engine.start()
        log.info("engine_started", model=choice.label)
        return Model(choice.model, engine, renderer)

    def _hosted(self, upstream: Upstream, secrets: Mapping[str, str]) -> Model:
        allowed = {url.rstrip("/") for url in self._worker.allow_upstream}
        if upstream.base_url.rstrip("/") not in allowed:
            raise ConfigError(
                f"this worker may not call the hosted model at {upstream.base_url}; it may call "
                f"{_listed(self._worker.allow_upstream)} (--allow-upstream)"
            )
        key = None
        if upstream.api_key_secret is not None and (key := secrets.get(upstream.api_key_secret)) is None:
            raise ConfigError(
                f"the environment has no secret {upstream.api_key_secret}, which the hosted model needs as its key; "
                "set it and run again"
            )
        hosted = HostedEngine(upstream.base_url, upstream.model, key)
        return Model(upstream.model, hosted, None, hosted)


def _replies(given: Assignment, folder: Path) -> str | None:
    """The reply file of a scripted engine, which comes from the bundle and from nowhere else."""
    name = given.choice.replies
    if name is None:
        return None
    content = given.bundle.content(name)
    if content is None:
        raise ConfigError(f"the bundle has no file {name!r} with replies for the scripted engine")
    path = folder / "replies.jsonl"
    path.write_bytes(content)
    return str(path)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
