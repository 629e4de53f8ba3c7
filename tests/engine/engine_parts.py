"""What the engine tests share: the two engines behind one face, and requests for them."""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import count

from tokenizers import Tokenizer as Backend

from relaxforge.core.turns import GenerateRequest, Sampling, token_ids
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.local.engine import LocalEngine
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.engine.scripted.rules import read_rules

END_OF_TURN = 2
VOCABULARY = 512
CONTEXT = 512
DEADLINE_S = 60


class TextTokenizer:
    """The port ``Tokenizer`` over a model folder."""

    def __init__(self, folder):
        self._backend = Backend.from_file(f"{folder}/tokenizer.json")

    def encode(self, text):
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self._backend.decode(list(ids), skip_special_tokens=False)


@dataclass
class Rig:
    """A running engine, and how to ask it. ``slow_prompt`` gets an answer of hundreds of tokens that takes a while."""

    engine: object
    runner: asyncio.Runner
    tokenizer: TextTokenizer
    prompt: list[int]
    slow_prompt: list[int]
    numbers: count = field(default_factory=count)

    def run(self, coroutine):
        """Drive the engine's event loop until ``coroutine`` is done; fail rather than hang."""
        return self.runner.run(asyncio.wait_for(coroutine, DEADLINE_S))

    def request(self, prompt=None, *, session="s", delta_start=0, max_tokens=8, seed=7, request_id=None, **sampling):
        ids = token_ids(self.prompt if prompt is None else prompt)
        name = request_id or f"r{next(self.numbers)}"
        return GenerateRequest(session, name, ids, delta_start, Sampling(max_tokens, seed=seed, **sampling))

    async def until_waiting(self):
        while (await self.engine.capacity()).waiting == 0:  # noqa: ASYNC110 -- the port reports capacity when asked
            await asyncio.sleep(0)

    def answer(self, *args, **kwargs):
        return self.run(self.engine.generate(self.request(*args, **kwargs)))


def scripted_rig(folder, tmp_path):
    long_reply = "one two three four five six seven eight nine ten " * 8
    rules = [
        {"match": "slow", "replies": [long_reply], "tokens_per_s": 300},
        {"replies": ["I turn what is near 漢字."]},
    ]
    script = tmp_path / "replies.jsonl"
    script.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
    tokenizer = TextTokenizer(folder)
    engine = ScriptedEngine(read_rules(str(script)), tokenizer, END_OF_TURN, vocab_size=VOCABULARY, max_context=CONTEXT)
    return _rig(engine, tokenizer)


def local_rig(folder, tmp_path, *, max_concurrent=8, **config):
    engine = LocalEngine(
        folder, EngineConfig(**config), Workload(max_concurrent, CONTEXT), end_of_turn_id=END_OF_TURN,
        log_path=str(tmp_path / "engine.log"),
    )  # fmt: skip
    return _rig(engine, TextTokenizer(folder))


def _rig(engine, tokenizer):
    prompt = tokenizer.encode("<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n")
    slow = tokenizer.encode("<|im_start|>user\nBe slow.<|im_end|>\n<|im_start|>assistant\n")
    return Rig(engine, asyncio.Runner(), tokenizer, prompt, slow)


def started(rig):
    """A fixture's body: start, hand out, close."""
    with rig.runner:
        rig.run(rig.engine.start())
        yield rig
        rig.run(rig.engine.close())
