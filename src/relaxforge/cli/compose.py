"""The composition root: builds every object of a Run from its configuration, starts them, and takes them down."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from relaxforge.agents.check import check_command
from relaxforge.agents.runner import SpawnedAgents
from relaxforge.agents.sandbox import open_sandbox
from relaxforge.cli.config import Config, dump_config, flat
from relaxforge.cli.doctor import warnings
from relaxforge.cli.evidence import agent_values, order_of, sending
from relaxforge.cli.places import checkpoints_of, feed_of, run_path, schedule_words, steps_of, with_schedule
from relaxforge.core.errors import ConfigError
from relaxforge.core.ports import Engine, Learner
from relaxforge.engine.config import Workload
from relaxforge.engine.create import create_engine
from relaxforge.gateway.server import Gateway
from relaxforge.models.resolve import ModelFolder, resolve
from relaxforge.observe.log import configure, get_logger
from relaxforge.observe.metrics import open_metrics
from relaxforge.observe.progress import open_progress
from relaxforge.observe.report import print_report
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.conductor import Conductor
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.scoring import Scorer
from relaxforge.rollout.step import Rooms
from relaxforge.rollout.supervise import Supervisor
from relaxforge.runs.checkpoint import RunState, complete_checkpoints, find_checkpoint, prepare_folder, read_state
from relaxforge.runs.directory import RunDirectory, open_run_directory
from relaxforge.runs.evidence_process import EvidenceOrder
from relaxforge.runs.feed import TaskFeed
from relaxforge.runs.training import RunLoop, RunParts
from relaxforge.tasks.dataset import Dataset, open_held_out, open_training
from relaxforge.tasks.source import TaskSource
from relaxforge.train.client import TrainerProcess

log = get_logger()

DONE, INTERRUPTED = 0, 130


def run(command: str, config: Config) -> int:
    """``relaxforge train`` or ``rollout``, with what a person wants to read before and after."""
    for warning in warnings(config):
        _say(f"warning: {warning}")
    path = run_path(config)
    _say(f"run directory: {path}")
    stopped = execute(command, config, path)
    print_report(path)
    return INTERRUPTED if stopped else DONE


def execute(command: str, config: Config, path: Path) -> bool:
    """``train``: the whole loop; ``rollout``: samples and evidence, no trainer. Returns whether it was interrupted."""
    check_command(config.agents, os.environ)
    order = order_of(config.workspace, path, agent_values(config.agents.agent_env, os.environ))
    training, held_out = open_training(config.data), open_held_out(config.data)
    checkpoints = checkpoints_of(config, path)
    checkpoint = find_checkpoint(config.run.resume, checkpoints) if config.run.resume else None
    state = read_state(checkpoint) if checkpoint else None
    if checkpoint is not None:
        _say(f"going on from {checkpoint}")
    elif command == "train" and (earlier := complete_checkpoints(checkpoints)):
        raise ConfigError(
            f"{earlier[-1]} is the checkpoint of an earlier run, and the new ones would replace it; go on with "
            "--resume latest, or choose another --run-dir or --save"
        )
    feed = feed_of(config, training, state)
    if command == "train":
        config = with_schedule(config, len(training))
        if words := schedule_words(config):
            _say(words)
    folder = resolve(config.run.model, say=_say)
    with open_run_directory(path, dump_config(config)) as directory:
        configure(directory.events_log, config.observe.log_level)
        if command == "train":
            prepare_folder(checkpoints)
        program = _Program(
            config, directory, folder, feed, held_out, checkpoint, state, order, trains=command == "train"
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(program.run())


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class _Program:
    """One Run, from building to closing. Everything it starts is closed in reverse order, however it ends."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        folder: ModelFolder,
        feed: TaskFeed,
        held_out: dict[str, Dataset],
        checkpoint: Path | None,
        state: RunState | None,
        order: EvidenceOrder | None,
        *,
        trains: bool,
    ) -> None:
        self._config = config
        self._directory = directory
        self._folder = folder
        self._feed = feed
        self._held_out = held_out
        self._checkpoint = checkpoint
        self._state = state
        self._order = order
        self._trains = trains
        self._stop = asyncio.Event()
        self._over = False
        self._progress = open_progress()

    async def run(self) -> bool:
        """Returns whether the Run was interrupted. Errors: any ``RelaxForgeError``."""
        work = asyncio.create_task(self._work())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
                loop.add_signal_handler(number, self._interrupt, work)
        try:
            return await work
        except asyncio.CancelledError:
            return True

    def _interrupt(self, work: asyncio.Task[bool]) -> None:
        if self._stop.is_set() or self._over:
            work.cancel()
            return
        self._stop.set()
        _say("finishing this step and saving a checkpoint; interrupt again to stop at once")

    async def _work(self) -> bool:
        config = self._config
        async with AsyncExitStack() as stack:
            evidence_log, drain_s = str(self._directory.logs / "evidence.log"), config.workspace.workspace_drain_timeout
            await stack.enter_async_context(sending(self._order, evidence_log, drain_s, _say))
            renderer = Renderer.load(self._folder.path, config.render)
            engine = self._engine(renderer)
            stack.push_async_callback(engine.close)
            agents = SpawnedAgents(config.agents, self._directory.sessions)
            registry = SessionRegistry()
            # Engine and trainer import their libraries at the same time; both are processes of their own.
            learner, _ = await asyncio.gather(self._learner(stack), engine.start())
            await agents.start(str(self._directory.logs / "spawner.log"))
            stack.push_async_callback(agents.close)
            gateway: Gateway
            sandbox = open_sandbox(config.agents, self._directory.path, stack)
            conductor = Conductor(
                Rooms(
                    SessionFactory(
                        config.rollout, config.agents, config.history, engine, renderer, registry,
                        self._directory.incarnation, config.render.check_render_every,
                    ),
                    Supervisor(
                        agents, config.agents, config.history, registry, self._directory.sessions,
                        lambda: gateway.url_at(sandbox.origin) if sandbox.origin else gateway.base_url, self._trains,
                        sandbox,
                    ),
                    Scorer(config.credit, config.rollout.dynamic_sampling_filter_path),
                    self._progress,
                    check=config.rollout.debug_check_integrity,
                    vital=(engine.lost,) if learner is None else (engine.lost, learner.lost),
                )
            )  # fmt: skip
            gateway = Gateway(
                registry, config.gateway, (self._folder.name,), conductor.debug_state,
                Path(sandbox.socket) if sandbox.socket else None,
            )  # fmt: skip
            await gateway.start()
            stack.push_async_callback(gateway.close)
            try:
                return await self._loop(conductor, engine, learner, stack)
            finally:
                self._over = True

    def _engine(self, renderer: Renderer) -> Engine:
        config = self._config.rollout
        sessions = [config.resident_sessions]
        if self._held_out and self._config.run.eval_interval is not None:
            sessions.append(config.resident_eval_groups * config.n_samples_per_eval_prompt)
        contexts = [config.rollout_max_context_len, config.eval_max_context_len or config.rollout_max_context_len]
        longest = None if None in contexts else max(length for length in contexts if length is not None)
        return create_engine(
            self._config.engine,
            self._folder.path,
            renderer.tokenizer,
            renderer.stop_token_ids[0],
            Workload(max(sessions), longest),
            str(self._directory.logs / "engine.log"),
        )

    async def _learner(self, stack: AsyncExitStack) -> Learner | None:
        if not self._trains:
            return None
        learner = await TrainerProcess.start(
            self._folder.path,
            self._config.train,
            log_path=str(self._directory.logs / "trainer.log"),
            resume_from=str(self._checkpoint) if self._checkpoint else None,
        )
        stack.push_async_callback(learner.close)
        return learner

    async def _loop(self, conductor: Conductor, engine: Engine, learner: Learner | None, stack: AsyncExitStack) -> bool:
        # What the libraries brought stays for good. Looking through it stopped the event loop for 64 ms, not 14.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        config, directory = self._config, self._directory
        if self._state is not None:
            conductor.number_from(self._state.next_group)
        metrics = open_metrics(config.observe, directory.path, flat(config), incarnation=directory.incarnation)
        stack.callback(metrics.close)
        weights = directory.path / "weights"
        weights.mkdir(exist_ok=True)
        stack.callback(shutil.rmtree, weights, ignore_errors=True)
        parts = RunParts(
            directory=directory,
            run=config.run,
            rollout=config.rollout,
            steps=steps_of(config, len(self._feed)),
            conductor=conductor,
            engine=engine,
            learner=learner,
            feed=self._feed,
            held_out={name: TaskSource(dataset) for name, dataset in self._held_out.items()},
            metrics=metrics,
            progress=self._progress,
            weights_dir=weights,
            checkpoints=checkpoints_of(config, directory.path),
            stop=self._stop,
            log_passrate=config.credit.log_passrate,
        )
        return await RunLoop(parts, self._state.next_rollout if self._state else 0).run()
