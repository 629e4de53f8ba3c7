"""How a launch becomes one process: inside a sandbox, its variables are for the inside alone.

They come from other people. Obeyed by the programs that put the walls up, ``BASH_ENV``, ``LD_PRELOAD`` or ``PATH``
would run an agent's code outside of them. So those start with our own ``RELAX_`` variables, and bubblewrap is told the
rest through a descriptor, where no list of processes shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from relaxforge.core.sessions import RESERVED_PREFIX, AgentLaunch


@dataclass(frozen=True, slots=True)
class Start:
    """What ``subprocess`` is given: ``words`` before the command, ``env``, and ``descriptors`` to pass on."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    descriptors: tuple[int, ...] = ()


@contextmanager
def start_of(launch: AgentLaunch) -> Iterator[Start]:
    """Valid until the process was started. Errors: ``OSError``."""
    if not launch.prefix:
        yield Start((), launch.env)
        return
    descriptor = os.memfd_create("environment")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(b"".join(os.fsencode(word) + b"\0" for word in _told(launch.env)))
        os.lseek(descriptor, 0, os.SEEK_SET)
        end = launch.prefix.index("--")
        words = (*launch.prefix[:end], "--args", str(descriptor), *launch.prefix[end:])
        yield Start(words, _ours(launch.env), (descriptor,))
    finally:
        os.close(descriptor)


def _ours(env: Mapping[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in env.items() if name.startswith(RESERVED_PREFIX)}
    return ours | {"PATH": os.environ.get("PATH", os.defpath)}


def _told(env: Mapping[str, str]) -> Iterator[str]:
    yield from ("--unsetenv", "PATH")
    for name, value in env.items():
        yield from ("--setenv", name, value)
