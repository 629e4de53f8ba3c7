"""The calls that cross rooms. A room implements a port or is handed one; it never imports the other side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relaxforge.core.errors import RelaxForgeError
from relaxforge.core.messages import Api, Message, ModelRequest, Tool
from relaxforge.core.samples import TrainBatch, TrainReport
from relaxforge.core.sessions import AgentExit, AgentLaunch
from relaxforge.core.turns import (
    Capabilities,
    Capacity,
    GenerateRequest,
    Generation,
    HostedAnswer,
    ModelTurn,
    Sampling,
    TextPiece,
    TokenChunk,
    WeightUpdate,
)


def ignore_chunk(chunk: TokenChunk) -> None:
    """The listener of a caller that wants only the whole answer."""


class Tokenizer(Protocol):
    """Text and token ids, nothing about conversations."""

    def encode(self, text: str) -> Sequence[int]:
        """Ids of ``text``; spellings of special tokens become their ids, nothing is added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens spelled out; incomplete characters become U+FFFD."""
        ...


class Engine(Protocol):
    """Token ids in, token ids out.

    ``generate`` reports tokens through ``emit`` as they are sampled and returns them all at the end; after ``abort``
    it returns early with what was sampled (finish ``abort``), also for a request that is still waiting (no tokens).
    ``pause`` stops sampling, keeps every request, and lets new ones wait until ``resume``. ``load`` replaces the
    weights; no later token is computed from anything cached under the old ones. ``lost`` returns when the engine cannot
    answer any more, ever, with the error that says so. Errors: ``EngineError``.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def start(self) -> None: ...

    async def generate(
        self, request: GenerateRequest, emit: Callable[[TokenChunk], None] = ignore_chunk
    ) -> Generation: ...

    async def abort(self, request_id: str) -> None: ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, update: WeightUpdate) -> None: ...

    async def capacity(self) -> Capacity: ...

    async def lost(self) -> RelaxForgeError: ...

    async def close(self) -> None: ...


class HostedModel(Protocol):
    """A model behind somebody else's API: a conversation in, a message out, no tokens. Errors: ``EngineError``."""

    async def answer(self, request_id: str, request: ModelRequest, sampling: Sampling) -> HostedAnswer:
        """One answer. A request that the model's API refuses for what is in it: ``RequestError``."""
        ...

    async def abort(self, request_id: str) -> None:
        """End a request under way; ``answer`` raises ``EngineError``."""
        ...


class SessionDoor(Protocol):
    """One Session as the gateway sees it.

    The gateway keeps three memories here. ``known`` maps a key of a message's raw bytes, and ``Message.exact``, to the
    canonical message (a tuple where the raw one means none or several), so a message that comes back unchanged is
    neither parsed nor hashed field by field again and equal messages are one object. ``known_tools`` does the same for
    a whole tool list. ``known_fields`` names the request fields that were reported as ignored.
    """

    @property
    def session_id(self) -> str: ...

    known: dict[bytes, Message | tuple[Message, ...]]
    known_tools: dict[bytes, tuple[Tool, ...]]
    known_fields: set[str]

    async def turn(self, request: ModelRequest, said: Callable[[TextPiece], None] | None = None) -> ModelTurn:
        """Answer one request; ``said`` hears text while it is sampled, where possible. Errors: ``RequestError``."""
        ...

    def left(self, request: ModelRequest) -> None:
        """The client of ``request``, whose ``turn`` is under way, has hung up: an equal request is its retry."""
        ...

    async def lost(self, request: ModelRequest) -> None:
        """The client of ``request``, whose ``turn`` is under way, has gone for good: abort the generation.

        Does nothing while another client waits for the same generation. What was sampled is committed.
        """
        ...

    async def count(self, request: ModelRequest) -> int:
        """Tokens of the prompt that ``request`` would give; changes nothing. Errors: ``RequestError``."""
        ...

    def refused(self, request_api: Api, error: Exception) -> None:
        """Record a request that was refused before it became a ``ModelRequest``; ``turn`` records its own errors."""
        ...

    def delivered(self, request_id: str, complete: bool) -> None:
        """Report whether the answer of ``request_id`` was written to its client completely."""
        ...


class TurnHandler(Protocol):
    """The only door between HTTP and rollout."""

    def open(self, credential: str) -> SessionDoor:
        """The Session that ``credential`` opens.

        Errors: ``RequestError`` 404 for an unknown Session or wrong secret, 404 ``session_discarded`` for one that
        has ended.
        """
        ...


class AgentProcess(Protocol):
    """One running agent."""

    async def wait(self) -> AgentExit:
        """Until the leader has exited and nothing of its process tree is left."""
        ...

    async def kill(self) -> AgentExit:
        """SIGTERM to everything the agent started, SIGKILL after the grace period, then the exit."""
        ...


class AgentRunner(Protocol):
    """Starts agent processes. Errors: ``AgentError`` with ``env_setup`` when a launch is impossible."""

    async def launch(self, launch: AgentLaunch) -> AgentProcess: ...


class Learner(Protocol):
    """The trainer process, seen from main. Errors: ``TrainError``."""

    async def train(self, batch: TrainBatch) -> TrainReport: ...

    async def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights for engines into a folder under ``directory``."""
        ...

    async def save(self, directory: str) -> None:
        """Write model (Hugging Face layout), optimiser, schedule and random state into ``directory``."""
        ...

    async def lost(self) -> RelaxForgeError:
        """Until the process is gone; the error that says so."""
        ...

    async def close(self) -> None: ...


class TrialSink(Protocol):
    """Where a run's evidence goes; idempotent by (run, incarnation, session). Errors: ``StorageError``."""

    def append(self, line: dict[str, Any]) -> None:
        """Keep one ended Session (a dump line)."""
        ...

    def close(self) -> None: ...
