"""``relaxforge doctor``: what would go wrong, found without starting an agent, an engine or a trainer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxforge.agents.check import check_command
from relaxforge.agents.environment import withheld
from relaxforge.cli.config import Config
from relaxforge.cli.conversation import visible
from relaxforge.cli.evidence import order_of
from relaxforge.cli.places import checkpoints_of, feed_of, run_path, schedule_words, steps_of, with_schedule
from relaxforge.core.errors import ConfigError, RelaxForgeError
from relaxforge.credit.functions import load_function
from relaxforge.engine.scripted.rules import read_rules
from relaxforge.gateway.server import check_addresses
from relaxforge.models.resolve import resolve
from relaxforge.render.renderer import Renderer
from relaxforge.runs.checkpoint import find_checkpoint, read_state
from relaxforge.runs.evidence_process import open_workspace
from relaxforge.tasks.dataset import open_held_out, open_training

Level = Literal["ok", "note", "warning", "problem"]
STYLES: dict[Level, str] = {"ok": "green", "note": "dim", "warning": "yellow", "problem": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that doctor has to say. Only a problem keeps a run from starting."""

    level: Level
    text: str


def doctor(config: Config) -> int:
    """Print every finding; 0 when a run could start, 2 when not."""
    console, problems = Console(highlight=False), 0
    for title, section in SECTIONS.items():
        findings = Table.grid(padding=(0, 1))
        for finding in _examined(section, config):
            problems += finding.level == "problem"
            findings.add_row(Text(f"  {finding.level:<8}", STYLES[finding.level]), Text(visible(finding.text)))
        console.print(Text(title, "bold"))
        console.print(findings)
    console.print(f"{problems} problem{'' if problems == 1 else 's'}" if problems else "ready to run", style="bold")
    return 2 if problems else 0


def _examined(section: Callable[[Config], Iterator[Finding]], config: Config) -> Iterator[Finding]:
    try:
        yield from section(config)
    except RelaxForgeError as error:
        yield Finding("problem", str(error))


def configuration(config: Config) -> Iterator[Finding]:
    """Settings that are sound one by one and odd together."""
    rollout, run = config.rollout, config.run
    yield Finding("ok", f"run file {config.run_file}" if config.run_file else "no run file, flags and defaults only")
    if rollout.rollout_top_p < 1 or rollout.rollout_top_k > 0:
        yield Finding(
            "warning",
            "--rollout-top-p below 1 or --rollout-top-k above 0: tokens are sampled from fewer candidates than "
            "the trainer's logprobs assume",
        )
    if rollout.n_samples_per_prompt == 1 and not config.credit.disable_rewards_normalization:
        yield Finding(
            "warning", "--n-samples-per-prompt 1: a Group of one has nothing to compare, so nothing is learned"
        )
    if rollout.started_groups > rollout.rollout_batch_size:
        yield Finding(
            "warning", "--over-sampling-batch-size: work beyond --rollout-batch-size is thrown away each step"
        )
    if run.eval_interval is not None and not config.data.eval_prompt_data:
        yield Finding("warning", "--eval-interval without --eval-prompt-data: nothing is evaluated")
    if config.data.eval_prompt_data and run.eval_interval is None:
        yield Finding("warning", "--eval-prompt-data without --eval-interval: nothing is evaluated")


def warnings(config: Config) -> list[str]:
    """What a run that starts all the same should be told first."""
    return [finding.text for finding in configuration(config) if finding.level == "warning"]


def data(config: Config) -> Iterator[Finding]:
    """Whether every row of every dataset can become a Session."""
    training = open_training(config.data)
    yield Finding("ok", f"{training.path}: {len(training)} Tasks")
    if len(training) < config.rollout.rollout_batch_size:
        yield Finding("note", f"a step of {config.rollout.rollout_batch_size} Groups passes the dataset more than once")
    yield Finding("note", f"{steps_of(config, len(training))} rollout steps")
    if words := schedule_words(with_schedule(config, len(training))):
        yield Finding("note", words)
    for name, dataset in open_held_out(config.data).items():
        yield Finding("ok", f"{name}: {dataset.path}: {len(dataset)} held-out Tasks")


def run_folder(config: Config) -> Iterator[Finding]:
    """Whether the run has a place to write to, and a checkpoint to go on from where it is asked to."""
    path = run_path(config)
    folders = {"--run-dir": path, "--save": checkpoints_of(config, path)}
    for flag, folder in folders.items():
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            yield Finding("problem", f"{flag}: {there} is not a folder that we may write to")
    yield Finding("ok", f"{path}, checkpoints in {folders['--save']}")
    if config.run.resume is not None:
        checkpoint = find_checkpoint(config.run.resume, folders["--save"])
        state = read_state(checkpoint)
        feed_of(config, open_training(config.data), state)
        yield Finding("ok", f"goes on with step {state.next_rollout + 1} from {checkpoint}")


def agent(config: Config) -> Iterator[Finding]:
    """Whether the command can start, and what it will not see."""
    check_command(config.agents, os.environ)
    yield Finding("ok", f"{config.agents.agent_command!r} in {config.agents.agent_cwd}")
    if config.agents.agent_sandbox == "none":
        yield Finding("note", "agents run unconfined, as you (--agent-sandbox bwrap confines them)")
    else:
        reach = "the model API" if config.agents.agent_sandbox_network == "gateway" else "the network"
        yield Finding("ok", f"bubblewrap confines each agent to its folders and {reach}; --agent-cwd is read-only")
    if names := withheld(config.agents, os.environ):
        yield Finding("note", f"agents do not see: {', '.join(names)} (--agent-env NAME passes one on)")


def model_api(config: Config) -> Iterator[Finding]:
    """Whether it can listen where it shall."""
    gateway = config.gateway
    check_addresses(gateway)
    port = gateway.agentic_bind_port or "a free port"
    yield Finding("ok", f"{gateway.agentic_bind_host}, {port}")


def reward(config: Config) -> Iterator[Finding]:
    """Where the reward comes from, and what is done with a Group that has it."""
    if filter_path := config.rollout.dynamic_sampling_filter_path:
        load_function(filter_path, "--dynamic-sampling-filter-path")
        yield Finding("ok", f"{filter_path} says which Groups are kept")
    path = config.credit.custom_rm_path
    if path is None:
        yield Finding("ok", "the agent writes its reward")
        return
    load_function(path, "--custom-rm-path")
    yield Finding("ok", f"{path} gives it where the agent does not")


def template(config: Config) -> Iterator[Finding]:
    """What the chat template does and refuses; the first lines are what agents notice."""
    folder = resolve(config.run.model)
    renderer = Renderer.load(folder.path, config.render)
    yield Finding("ok", f"{folder.name}: {folder.path}")
    for name, value in renderer.properties.described():
        if value:
            yield Finding("note", f"{name.replace('_', ' ')}: {value}")
    yield from _control_tokens(config, renderer)


def _control_tokens(config: Config, renderer: Renderer) -> Iterator[Finding]:
    """Spellings of control tokens in the Tasks' messages (decision 10a)."""
    try:
        tasks = open_training(config.data)
    except ConfigError:
        return  # The data section has said so.
    counts = [
        renderer.control_tokens_in(json.dumps(tasks[row].messages, ensure_ascii=False)) for row in range(len(tasks))
    ]
    if found := sum(counts):
        rows = sum(count > 0 for count in counts)
        fate = "become control tokens" if config.render.agentic_special_tokens == "keep" else "are escaped"
        yield Finding(
            "warning", f"{found} control tokens spelled out in {rows} Tasks {fate} (--agentic-special-tokens)"
        )


def engine(config: Config) -> Iterator[Finding]:
    """Whether the engine has what it needs."""
    script = config.engine.scripted_replies
    if script is not None:
        yield Finding("ok", f"scripted, {len(read_rules(script))} rules from {script}")
    elif config.engine.engine == "scripted":
        yield Finding("ok", "scripted, with the built-in replies (--scripted-replies gives others)")
    else:
        yield Finding("ok", f"{config.engine.engine} on {config.engine.engine_device}")


def capacity(config: Config) -> Iterator[Finding]:
    """Sessions that are alive at once: what an external agent platform must have room for."""
    rollout, held_out = config.rollout, config.data.eval_datasets
    train, size = rollout.resident_sessions, rollout.n_samples_per_prompt
    yield Finding("note", f"T = {rollout.resident_groups} Groups x {size} = {train} training Sessions at once")
    group, groups = rollout.n_samples_per_eval_prompt, rollout.resident_eval_groups
    for name, _ in held_out:
        yield Finding("note", f"E_{name} = {groups} Groups x {group} = {groups * group} evaluation Sessions at once")
    peak = groups * group if held_out else 0
    yield Finding("ok", f"external_slots >= max(T, E_peak) = {max(train, peak)}; fewer can block the first requests")


def workspace(config: Config) -> Iterator[Finding]:
    """Where evidence goes, and whether the credential for it is there; nobody is asked."""
    order = order_of(config.workspace, run_path(config), ())
    if order is None:
        yield Finding("note", "evidence stays in the run folder (--workspace-url sends it to a workspace, too)")
    else:
        yield Finding("ok", f"evidence goes to {open_workspace(order).name}")


SECTIONS: dict[str, Callable[[Config], Iterator[Finding]]] = {
    "configuration": configuration,
    "data": data,
    "run folder": run_folder,
    "agent": agent,
    "model API": model_api,
    "reward": reward,
    "chat template": template,
    "engine": engine,
    "capacity": capacity,
    "workspace": workspace,
}
