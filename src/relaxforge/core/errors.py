"""Every error that crosses a room, named after the boundary where it arose.

::

    RelaxForgeError
    ├── ConfigError            the user's configuration, flags or files (exit code 2, never a traceback)
    ├── TaskError              a dataset row that cannot become a Session
    ├── BundleError            a folder or package that is no environment version
    ├── EvaluatorError         an evaluator that gave no verdict; carries a bounded tail of its output
    ├── AgentError             what the agent process did, or did not do; carries a FailureCategory
    │   └── AgentExecutionError    it ran and failed; carries a bounded tail of its output
    ├── RequestError           one model request that cannot be served; carries status, code and the offending field
    ├── RenderError            the chat template refuses these messages
    │   └── TooManyTokensError     they are longer than the context can be
    │   └── ImageError             the model reads no images; carries the path of one
    ├── EngineError            the engine failed or was asked for what it cannot do
    ├── CreditError            a reward or advantage function raised or returned nonsense
    ├── TrainError             the trainer failed
    ├── StorageError           evidence or checkpoints cannot be written
    └── CircuitOpen            nothing of use came back (exit code 3)

A message says what failed, which id, what was allowed, and what to do next.
"""

from __future__ import annotations

from relaxforge.core.sessions import FailureCategory


class RelaxForgeError(Exception):
    """Root of all errors that RelaxForge raises on purpose."""


class ConfigError(RelaxForgeError):
    """Something the user can mend in RUN.toml, a flag or a file."""


class TaskError(ConfigError):
    """A dataset that cannot be read, or a row that cannot become a Session."""


class BundleError(ConfigError):
    """An environment folder that cannot be published, or a package that is not the one it claims to be."""


def _with_output(message: str, log_tail: str) -> str:
    return f"{message}\n--- last output ---\n{log_tail}" if log_tail else message


class EvaluatorError(RelaxForgeError):
    """An evaluator crashed, ran out of time, or wrote something that is no verdict (``verifier_error``).

    The message ends with the tail of its stdout and stderr.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(_with_output(message, log_tail))
        self.log_tail = log_tail


class AgentError(RelaxForgeError):
    """A Session failed; ``category`` says in which way, ``log_tail`` holds the end of its output (may be empty)."""

    def __init__(self, message: str, category: FailureCategory, log_tail: str = "") -> None:
        super().__init__(message)
        self.category = category
        self.log_tail = log_tail


class AgentExecutionError(AgentError):
    """The agent process ran and failed. The message ends with the tail of its stdout and stderr."""

    def __init__(self, message: str, category: FailureCategory, log_tail: str = "") -> None:
        super().__init__(_with_output(message, log_tail), category, log_tail)
        self.summary = message


class RequestError(RelaxForgeError):
    """A model request that is answered with an error, in the shape of its dialect.

    ``status`` is the HTTP status, ``code`` a stable word, ``param`` the path of the offending field.
    """

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request", param: str | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class RenderError(RelaxForgeError):
    """The chat template refuses a conversation; the message quotes the template's own words."""


class ImageError(RenderError):
    """An image was sent to a model that reads text only; ``where`` is its path in the request."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where or 'a message'} is an image, and this model reads text only; send text instead")
        self.where = where


class TooManyTokensError(RenderError):
    """The messages alone have at least ``least`` tokens, which is more than they may; nothing else was looked at."""

    def __init__(self, least: int) -> None:
        super().__init__(f"the messages have at least {least} tokens")
        self.least = least


class EngineError(RelaxForgeError):
    """The engine failed, or was asked for something outside its capabilities."""


class CreditError(RelaxForgeError):
    """A reward function raised, or returned something that is not a finite number."""


class TrainError(RelaxForgeError):
    """The trainer process failed or refused a batch."""


class StorageError(RelaxForgeError):
    """The run directory cannot be written (disk full, no permission). Runs stop on it: evidence comes first."""


class CircuitOpen(RelaxForgeError):
    """Group after Group failed, or was discarded by the sampling filter; the message says why most of them."""
