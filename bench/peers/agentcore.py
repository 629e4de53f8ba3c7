"""``agentcore-rl-toolkit[gateway]`` (0.2.0): owns tokenization; here with an engine that answers at once.

``--history tree`` is its default, ``--history linear`` the faster one and the baseline we compare with. The tokenizer
is a byte-level BPE trained on the standard library, the template plain ChatML. Runs in a virtual environment that has
it. Prints one JSON line with its address and process id.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.rollout_gateway.gateway import RolloutGateway
from agentcore_rl_toolkit.rollout_gateway.render import HfTemplateRenderer
from agentcore_rl_toolkit.rollout_gateway.trajectory import TurnRecord
from aiohttp import web
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

ANSWER = "The file was updated as requested and all checks pass. ".ljust(400, ".")[:400]
END = "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    files = [str(path) for path in sorted(Path(os.__file__).parent.glob("*.py"))[:200]]
    trained = ByteLevelBPETokenizer()
    trained.train(files, vocab_size=30_000, special_tokens=["<|im_start|>", END, "<pad>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token=END, pad_token="<pad>")  # noqa: SLF001
    tokenizer.chat_template = CHATML
    return tokenizer


class InstantEngine:
    """Gives the same 400 characters to every prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._ids = [*tokenizer.encode(ANSWER, add_special_tokens=False), tokenizer.eos_token_id]

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> TurnRecord:
        return TurnRecord(
            prompt_ids=list(prompt_ids),
            output_ids=self._ids,
            finish_reason="stop",
            output_log_probs=[-0.1] * len(self._ids),
        )


async def main(history: str) -> None:
    tokenizer = make_tokenizer()
    gateway = RolloutGateway(
        backend=InstantEngine(tokenizer),
        renderer=HfTemplateRenderer(tokenizer, reasoning_parser=lambda text: ("", text.replace(END, ""))),
        tokenizer=tokenizer,
        history_mode=history,
    )
    runner = web.AppRunner(gateway.app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/v1", "pid": os.getpid()}), flush=True)
    await asyncio.Event().wait()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--upstream")
parser.add_argument("--sessions", type=int)
parser.add_argument("--history", choices=["linear", "tree"], default="linear")
asyncio.run(main(parser.parse_args().history))
