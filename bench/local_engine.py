"""Tokens per second of the local engine against transformers ``generate`` in static batches, in turns in one run.

``staggered``: twice as many requests as run at once, arriving 50 ms apart on average, their lengths lognormal (median
16, at most 64 tokens). ``generate`` waits until a batch is full, which serves it better than to start with what is
there, and runs until the longest is done; its surplus tokens do not count. ``equal``: all arrive together and want 48
tokens each. ``groups``: 64 requests of 8 Groups that share their prompt, 16 tokens each, as in the demo. Both sides
sample at temperature 1, never stop early, and use the same threads. The engine runs in its process, as always.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass
from math import log
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # As LocalEngine sets it for its process.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from gateway_parts import RESULTS, save, table
from relaxforge.core.turns import GenerateRequest, Sampling, token_ids
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.local.engine import LocalEngine
from relaxforge.models.resolve import resolve

NO_TOKEN = -1
MEAN_GAP_S = 0.05


@dataclass(frozen=True)
class Job:
    """One request: when it arrives, what it is asked, how many tokens it wants."""

    at_s: float
    prompt: list[int]
    tokens: int


def prompt_of(chance: random.Random) -> list[int]:
    return [chance.randrange(100, 40_000) for _ in range(chance.randint(40, 90))]


def staggered(concurrent: int, chance: random.Random) -> list[Job]:
    jobs, at_s = [], 0.0
    for _ in range(2 * concurrent):
        jobs.append(Job(at_s, prompt_of(chance), max(1, min(64, round(chance.lognormvariate(log(16), 0.8))))))
        at_s += chance.expovariate(1 / MEAN_GAP_S)
    return jobs


def equal(concurrent: int, chance: random.Random) -> list[Job]:
    return [Job(0.0, prompt_of(chance), 48) for _ in range(concurrent)]


def groups(concurrent: int, chance: random.Random) -> list[Job]:
    return [Job(0.0, prompt, 16) for prompt in [prompt_of(chance) for _ in range(concurrent // 8)] for _ in range(8)]


SHAPES = {"staggered": staggered, "equal": equal, "groups": groups}
SCENARIOS = [(shape, concurrent) for shape in ("staggered", "equal") for concurrent in (1, 8, 32)] + [("groups", 64)]


def without_end(folder: str, target: str) -> str:
    """The same model in a folder that names no end token, so that lengths are what the jobs say."""
    for file in Path(folder).iterdir():
        if file.name in ("config.json", "generation_config.json"):
            fields = {**json.loads(file.read_text()), "eos_token_id": None}
            Path(target, file.name).write_text(json.dumps(fields))
        else:
            Path(target, file.name).symlink_to(file)
    return target


@torch.inference_mode()
def run_static(model: PreTrainedModel, jobs: list[Job], concurrent: int) -> float:
    """Seconds until ``generate`` has answered all jobs in full batches, in the order of their arrival."""
    began = time.perf_counter()
    for first in range(0, len(jobs), concurrent):
        batch = jobs[first : first + concurrent]
        time.sleep(max(0.0, batch[-1].at_s - (time.perf_counter() - began)))
        size = max(len(job.prompt) for job in batch)
        rows = [[0] * (size - len(job.prompt)) + job.prompt for job in batch]
        mask = [[0] * (size - len(job.prompt)) + [1] * len(job.prompt) for job in batch]
        model.generate(
            torch.tensor(rows), attention_mask=torch.tensor(mask), max_new_tokens=max(job.tokens for job in batch),
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
        )  # fmt: skip
    return time.perf_counter() - began


async def run_ours(engine: LocalEngine, jobs: list[Job], concurrent: int) -> float:
    """Seconds until the engine has answered all jobs, at most ``concurrent`` at once, each from its arrival on."""
    gate = asyncio.Semaphore(concurrent)

    async def answer(number: int, job: Job) -> None:
        await asyncio.sleep(job.at_s)
        async with gate:
            sampling = Sampling(job.tokens)
            request = GenerateRequest("s", f"r{number}", token_ids(job.prompt), 0, sampling)
            generation = await engine.generate(request)
        assert len(generation.ids) == job.tokens

    began = time.perf_counter()
    await asyncio.gather(*(answer(number, job) for number, job in enumerate(jobs)))
    return time.perf_counter() - began


async def measure(folder: str, repeats: int, dtype: str) -> list[dict[str, float | int | str]]:
    """Best tokens per second of each side over ``repeats`` takes in turns, with fresh prompts in each."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    engine = LocalEngine(
        folder, EngineConfig(engine_dtype=dtype, engine_device="cpu"), Workload(64, 512), end_of_turn_id=NO_TOKEN
    )
    await engine.start()
    figures: list[dict[str, float | int | str]] = []
    for shape, concurrent in SCENARIOS:
        best = {"static": 0.0, "ours": 0.0}
        for repeat in range(repeats + 1):
            jobs = SHAPES[shape](concurrent, random.Random(repeat))
            tokens = sum(job.tokens for job in jobs)
            taken = {"ours": await run_ours(engine, jobs, concurrent), "static": run_static(model, jobs, concurrent)}
            if repeat:  # The first one warms up.
                best = {side: max(best[side], tokens / seconds) for side, seconds in taken.items()}
        figures.append({"shape": shape, "concurrent": concurrent, **best, "ratio": best["ours"] / best["static"]})
        print(json.dumps(figures[-1]), flush=True)
    await engine.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=2, help="measured takes per scenario (default 2)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    options = parser.parse_args()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as target:
        folder = without_end(resolve(options.model).path, target)
        figures = asyncio.run(measure(folder, options.repeats, options.dtype))
    head = ["requests", "at once", "generate tok/s", "ours tok/s", "ours / generate"]
    print(table(head, [[row["shape"], row["concurrent"], row["static"], row["ours"], row["ratio"]] for row in figures]))
    print(save("local-engine", {"figures": figures, "dtype": options.dtype}, options.results))


if __name__ == "__main__":
    main()
