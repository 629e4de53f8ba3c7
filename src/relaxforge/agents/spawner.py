"""The spawner: a small process that starts agents and ends everything they started.

``python -m relaxforge.agents.spawner GRACE_S LOG_BYTES``, started by ``SpawnedAgents``. Main calls ``run`` with an
``AgentLaunch``; the spawner answers with one event (the pid) and, when the leader and all its descendants are gone,
with ``code``, ``signal``, ``duration_s`` and ``survivors``. The notice ``kill`` ends a Session early; ``stop`` ends
all of them and is answered when nothing is left.

It is a child subreaper: whatever an agent detaches (double fork, setsid, a new name) becomes our child when its parent
ends. So a Session is over exactly when no child of ours belongs to it any more, and the kernel tells us of every step
on the way by SIGCHLD; nothing is polled. A child that is nobody's leader belongs to the Session of its process group or
of its environment marker. One that has neither is a stray and is ended when no Session is running.

When main goes away, in whatever way, every agent is ended, then the spawner ends itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from relaxforge.agents.ending import Ending, send
from relaxforge.agents.processes import all_processes, children, marker, read_process, with_descendants
from relaxforge.agents.run_log import LogPump
from relaxforge.agents.walled import start_of
from relaxforge.core.sessions import AgentLaunch
from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.codec import shape
from relaxforge.ipc.frames import Frame

_PR_SET_CHILD_SUBREAPER = 36
_SECOND_LOOK_S = 0.01


@dataclass(slots=True, eq=False)
class Agent:
    """One Session: its leader process, and what is known about its end."""

    frame: Frame
    launch: AgentLaunch
    leader: subprocess.Popen[bytes]
    log: int
    started: float
    ended: float | None = None
    ending: Ending | None = None
    survivors: set[int] = field(default_factory=set)

    def report(self) -> dict[str, object]:
        """How the leader ended, as main turns it into an ``AgentExit``."""
        status = self.leader.returncode
        return {
            "code": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
            "duration_s": (time.monotonic() if self.ended is None else self.ended) - self.started,
            "survivors": len(self.survivors),
        }


class Spawner:
    """Starts, reaps and ends agents in one thread; another one carries what they print."""

    def __init__(self, channel: ChildChannel, grace_s: float, log_bytes: int) -> None:
        self._channel = channel
        self._grace_s = grace_s
        self._logs = LogPump(log_bytes)
        self._files = more_files()
        self._bash = shutil.which("bash") or "/bin/bash"
        self._agents: dict[str, Agent] = {}
        self._strays: Ending | None = None
        self._unclaimed: set[int] = set()
        self._look_again = False
        self._stopping = False
        self._asked_to_stop: Frame | None = None

    def stop(self) -> None:
        """End everything, then return from ``run``. May be called from a signal handler."""
        self._stopping = True
        self._channel.wake()

    def run(self) -> None:
        """Serve main until it is gone and nothing is left."""
        while self._serving():
            frame = self._channel.poll(self._pause_s())
            while frame is not None:
                self._handle(frame)
                frame = self._channel.poll()
            self._stopping = self._stopping or self._channel.closed
            self._reap()
            for agent in self._agents.values():
                if self._stopping or agent.ended is not None:
                    self._end(agent)
            self._advance()
        if self._asked_to_stop is not None:
            self._channel.reply(self._asked_to_stop)

    def _serving(self) -> bool:
        if not self._stopping or self._agents:
            return True
        return bool(children()) and not (self._strays and self._strays.gave_up(time.monotonic()))

    def _pause_s(self) -> float | None:
        """Seconds until something is due; ``None``: only news can change anything."""
        if self._look_again:
            return _SECOND_LOOK_S
        if not self._agents and self._strays is None and children():
            return 0.0
        now = time.monotonic()
        endings = [agent.ending for agent in self._agents.values()] + [self._strays]
        return min((each.pause_s(now) for each in endings if each and not each.gave_up(now)), default=None)

    def _handle(self, frame: Frame) -> None:
        if frame.method == "run":
            self._start(frame)
        elif frame.method == "stop":
            self._stopping, self._asked_to_stop = True, frame
        elif frame.method == "kill" and (agent := self._agents.get(str(frame.body))):
            self._end(agent)

    def _start(self, frame: Frame) -> None:
        launch = shape(frame.body, AgentLaunch)
        try:
            log, leader = self._launched(launch)
        except (OSError, ValueError) as error:
            self._channel.fail(frame, error)
            return
        self._strays = None  # From here on a stray may be this agent's.
        self._agents[launch.session_id] = Agent(frame, launch, leader, log, time.monotonic())
        self._channel.event(frame, leader.pid)

    def _launched(self, launch: AgentLaunch) -> tuple[int, subprocess.Popen[bytes]]:
        """The name of the agent's log, and its leader. Errors: ``OSError``, ``ValueError``."""
        log, output = self._logs.open(launch.log_path)
        try:
            # Without preexec_fn Popen uses vfork: a storm of launches stays cheap.
            with start_of(launch) as start:
                leader = subprocess.Popen(
                    [*start.words, self._bash, "-c", launch.command], cwd=launch.cwd, env=start.env,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                    pass_fds=start.descriptors,
                )  # fmt: skip
        except (OSError, ValueError):
            self._logs.close(log)
            raise
        finally:
            os.close(output)
        with suppress(OSError):  # It has ended already.
            resource.prlimit(leader.pid, resource.RLIMIT_NOFILE, self._files)
        return log, leader

    def _end(self, agent: Agent) -> None:
        agent.ending = agent.ending or Ending(self._grace_s, time.monotonic())

    def _reap(self) -> None:
        """Collect every child that has ended, leaders and adopted ones."""
        leaders = {agent.leader.pid: agent for agent in self._agents.values() if agent.ended is None}
        for pid, status in iter(_ended_child, None):
            if agent := leaders.get(pid):
                agent.leader.returncode = os.waitstatus_to_exitcode(status)
                agent.ended = time.monotonic()

    def _advance(self) -> None:
        """Bring everything that is ending one step further; strays once no Session is left that could own them."""
        endings: dict[Agent | None, Ending] = {
            agent: agent.ending for agent in self._agents.values() if agent.ending is not None
        }
        self._look_again = False
        if self._agents and not endings:
            return
        claims = self._claims()
        if claims is None:
            return
        now = time.monotonic()
        self._strays = (self._strays or Ending(self._grace_s, now)) if not self._agents and None in claims else None
        if self._strays is not None:
            endings[None] = self._strays
        due = {owner: number for owner, ending in endings.items() if owner in claims and (number := ending.due(now))}
        if due:
            _signal(due, claims)
        for agent, ending in endings.items():
            if agent is not None and _over(agent, claims.get(agent, []), ending.gave_up(now)):
                del self._agents[agent.launch.session_id]
                self._logs.close(agent.log)
                self._channel.reply(agent.frame, agent.report())

    def _claims(self) -> dict[Agent | None, list[int]] | None:
        """Our children by the Session they belong to, strays under ``None``; ``None`` when that cannot be told now.

        One that has ended and is not reaped does not show whose it was, or what it left to us: SIGCHLD brings us back.
        One in the middle of an exec shows no environment for a moment: a stray is believed on the second look.
        """
        leaders = {agent.leader.pid: agent for agent in self._agents.values()}
        folders = {agent.launch.io_dir: agent for agent in self._agents.values()}
        claims: dict[Agent | None, list[int]] = {}
        for pid in children():
            process = read_process(pid)
            if process is None and pid not in leaders:
                return None
            group = process.group if process else pid
            owner = leaders.get(group) or folders.get(marker(pid) or "")
            claims.setdefault(owner, []).append(pid)
        seen, self._unclaimed = self._unclaimed, set(claims.get(None, ()))
        self._look_again = not self._unclaimed <= seen
        return None if self._look_again else claims


def _signal(due: Mapping[Agent | None, signal.Signals], claims: Mapping[Agent | None, list[int]]) -> None:
    table = all_processes()
    for owner, number in due.items():
        members = with_descendants(table, claims[owner])
        send(number, {table[pid].group for pid in members})
        if owner is not None and (owner.ended is not None or number is signal.SIGKILL):
            owner.survivors |= members - {owner.leader.pid}


def _over(agent: Agent, claimed: list[int], gave_up: bool) -> bool:
    if gave_up:
        sys.stderr.write(f"{agent.launch.session_id}: processes {claimed} cannot be ended; they are left behind\n")
    return gave_up or (agent.ended is not None and not claimed)


def _ended_child() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def more_files() -> tuple[int, int]:
    """Let us open as many files as we may: each agent takes two. Returns the limits that agents are to have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def become_subreaper() -> None:
    """Make the kernel hand us every descendant whose parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def main() -> None:
    become_subreaper()
    channel = ChildChannel(lifeline_exit=None)
    spawner = Spawner(channel, grace_s=float(sys.argv[1]), log_bytes=int(sys.argv[2]))
    signal.signal(signal.SIGCHLD, lambda *_: channel.wake())
    signal.signal(signal.SIGTERM, lambda *_: spawner.stop())
    spawner.run()


if __name__ == "__main__":
    main()
