"""``rllm-model-gateway`` (0.1.0): a proxy that captures token ids from its upstream, with its memory store.

Runs in a virtual environment that has it. Prints one JSON line with its address and process id.
"""

from __future__ import annotations

import argparse
import json
import os
import socket

import uvicorn
from rllm_model_gateway.models import GatewayConfig, WorkerConfig
from rllm_model_gateway.server import create_app

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--upstream", required=True)
parser.add_argument("--sessions", type=int)
options = parser.parse_args()

app = create_app(GatewayConfig(workers=[WorkerConfig(url=options.upstream)], store_worker="memory"))
# asyncio switches Nagle's algorithm off only on sockets that name their protocol.
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
port = listening.getsockname()[1]
print(json.dumps({"url": f"http://127.0.0.1:{port}/sessions/{{key}}/v1", "pid": os.getpid()}), flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
