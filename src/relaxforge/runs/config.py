"""What a Run is: its model, its folder, how long it goes on and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from relaxforge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunConfig:
    model: str = "smollm2"
    """`smollm2` (packaged SmolLM2-135M-Instruct), `tiny` (random, for dry runs), a Hugging Face folder, or an id."""

    run_dir: str | None = None
    """Folder that keeps everything about the Run; None: `runs/<date>-<name>`."""

    num_rollout: int | None = None
    """Rollout steps; None: as many as --num-epoch gives."""

    num_epoch: int | None = None
    """Passes over the dataset, when --num-rollout is not given; None: 1."""

    eval_interval: int | None = None
    """Rollout steps between two evaluations; None: no evaluation. The last step is always followed by one."""

    skip_eval_before_train: bool = False
    """Leave out the evaluation of the untrained model."""

    save: str | None = None
    """Folder for checkpoints; None: `checkpoints` in the run folder."""

    save_interval: int | None = None
    """Rollout steps between two checkpoints; None: only at the end and on Ctrl-C."""

    save_keep: int = 2
    """Complete checkpoints to keep; older ones are removed after a newer one is complete."""

    resume: str | None = None
    """Checkpoint folder to go on from, or `latest` for the newest complete one of --run-dir; None: start anew."""

    save_debug_rollout_data: str | None = None
    """Path of the dump with `{rollout_id}` in it; None: `rollouts/{rollout_id}.jsonl` in the run folder."""

    def __post_init__(self) -> None:
        for name in ("num_rollout", "num_epoch", "eval_interval", "save_interval", "save_keep"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.save_debug_rollout_data is not None and "{rollout_id}" not in self.save_debug_rollout_data:
            raise ConfigError(
                "--save-debug-rollout-data must contain {rollout_id}, for example dump/{rollout_id}.jsonl"
            )


@dataclass(frozen=True, slots=True)
class WorkspaceConfig:
    workspace_url: str | None = None
    """Workspace that gets the evidence of every Session, for example `https://workspace.example.org`. It is sent from
    the run's own files by a process of its own, so no step waits for a workspace that is slow or away. None: none."""

    workspace_token_file: str | None = None
    """File (mode 0600) with an API token that may `ingest`. None: the variable RELAXFORGE_WORKSPACE_TOKEN."""

    database_url_file: str | None = None
    """File (mode 0600) with the URL of a workspace's database for the role relaxforge_app, to write there directly
    instead of --workspace-url. None: over HTTP."""

    workspace_organization: str | None = None
    """Id of the organization whose rows are written with --database-url-file. None: the one of the token."""

    workspace_drain_timeout: float = 60.0
    """Seconds at the end of a run for what is not sent yet; `relaxforge send` sends the rest later."""

    def __post_init__(self) -> None:
        if self.workspace_url is not None and self.database_url_file is not None:
            raise ConfigError("--workspace-url and --database-url-file exclude each other: evidence goes to one place")
        if self.workspace_url is not None:
            _check_url(self.workspace_url)
        if self.database_url_file is not None and self.workspace_organization is None:
            raise ConfigError("--database-url-file needs --workspace-organization, the id of the organization")
        if self.workspace_organization is not None:
            _check_uuid(self.workspace_organization)
        if not self.workspace_drain_timeout >= 0:
            raise ConfigError(f"--workspace-drain-timeout must be >= 0 seconds, got {self.workspace_drain_timeout}")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ConfigError(f"--workspace-url must be like https://workspace.example.org, got {url!r}")


def _check_uuid(text: str) -> None:
    try:
        UUID(text)
    except ValueError:
        raise ConfigError(f"--workspace-organization must be the id of an organization, got {text!r}") from None
