"""``verifiers`` (0.4.0): its interception server with the evaluation client, one registered rollout per session.

Runs in a virtual environment that has it. Prints one JSON line with its address, process id and keys.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

# This file has the name of the package that it measures.
sys.path.remove(str(Path(__file__).parent))

import verifiers.v1 as vf
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask


def session(upstream: str) -> RolloutSession:
    """A rollout whose model is the upstream."""
    os.environ["BENCH_API_KEY"] = "unused"
    model = ModelContext(model="mock", client=EvalClientConfig(base_url=upstream, api_key_var="BENCH_API_KEY"))
    trace = Trace(task=TraceTask(type="bench", data=TaskData(prompt="none")), agent=AgentInfo(config=vf.AgentConfig()))
    return RolloutSession(ctx=model, trace=trace)


async def main(upstream: str, sessions: int) -> None:
    async with InterceptionServer() as server:
        keys = [server.register(session(upstream))[0] for _ in range(sessions)]
        print(json.dumps({"url": f"{server.base_url}/v1", "pid": os.getpid(), "keys": keys}), flush=True)
        await asyncio.Event().wait()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--upstream", required=True)
parser.add_argument("--sessions", type=int, required=True)
options = parser.parse_args()
asyncio.run(main(options.upstream, options.sessions))
