"""One optimiser step on the same rows: ours against trl's GRPOTrainer, in turns in one process.

64 rows in 8 Groups (about 45 prompt and 12 answer tokens), SmolLM2-135M, AdamW, gradient clipping, the same loss
(clipped surrogate, mean per row, no KL). trl gets the rows as it would have generated them, all in one batch and
without gradient checkpointing; its time is that of its own training loop between begin and end of a step. bfloat16
means float32 weights under autocast for trl, and bfloat16 weights with float32 masters for us. Both start from the
same weights, so in float32 the first step must move them to the same place.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # As TrainerProcess does: see its comment.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from gateway_parts import RESULTS, save, table
from relaxforge.core.samples import ContextPath, SampleGroup, Segment, TrainBatch
from relaxforge.core.turns import log_probs, token_ids
from relaxforge.models.resolve import resolve
from relaxforge.train.config import TrainConfig
from relaxforge.train.trainer import Trainer

GROUPS, SESSIONS, PROMPT, ANSWER = 8, 8, (40, 50), (8, 16)
SYSTEM = 20
LEARNING_RATE = 5e-5
CASES = (("bfloat16", True), ("bfloat16", False), ("float32", True))
"""Number format, and whether the Sessions of a Group have the same prompt."""


@dataclass
class Times:
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measure(self, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.add(time.perf_counter() - wall, time.process_time() - cpu)
        return result

    def add(self, wall: float, cpu: float) -> None:
        self.wall.append(wall)
        self.cpu.append(cpu)

    def figures(self) -> dict[str, float]:
        return {"wall_s": statistics.median(self.wall[1:]), "cpu_s": statistics.median(self.cpu[1:])}


@dataclass(frozen=True)
class Row:
    group: int
    prompt: list[int]
    answer: list[int]
    advantage: float


def rows(vocabulary: int, *, shared: bool) -> list[Row]:
    """Random ids: a system text common to all Groups, a question per Group, an answer per Session.

    Without ``shared`` every row has a prompt of its own, so that nothing can be computed once.
    """
    rng = random.Random(1)

    def ids(length: int) -> list[int]:
        return [rng.randrange(100, vocabulary) for _ in range(length)]

    system, made = ids(SYSTEM), []
    for group in range(GROUPS):
        prompt = system + ids(rng.randint(*PROMPT) - SYSTEM)
        for _ in range(SESSIONS):
            own = prompt if shared else ids(len(prompt))
            made.append(Row(group, own, ids(rng.randint(*ANSWER)), rng.choice([-1.0, -0.4, 0.6, 1.2])))
    return made


def our_batch(made: list[Row]) -> TrainBatch:
    groups = []
    for number in range(GROUPS):
        segments, contexts = [], []
        for index, row in enumerate(row for row in made if row.group == number):
            segments += [
                Segment(token_ids(row.prompt)),
                Segment(token_ids(row.answer), log_probs([-3.0] * len(row.answer))),
            ]
            path = (len(segments) - 2, len(segments) - 1)
            contexts.append(ContextPath(f"{number}-{index}", None, path, row.advantage, 0.0))
        groups.append(SampleGroup(str(number), tuple(segments), tuple(contexts)))
    return TrainBatch(0, tuple(groups), 1.0)


def their_batch(made: list[Row], pad: int) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, completions on the right, as trl does."""
    prompt_width, answer_width = max(len(r.prompt) for r in made), max(len(r.answer) for r in made)
    prompts = torch.full((len(made), prompt_width), pad)
    answers = torch.full((len(made), answer_width), pad)
    prompt_mask, answer_mask = torch.zeros_like(prompts), torch.zeros_like(answers)
    for index, row in enumerate(made):
        prompts[index, prompt_width - len(row.prompt) :] = torch.tensor(row.prompt)
        prompt_mask[index, prompt_width - len(row.prompt) :] = 1
        answers[index, : len(row.answer)] = torch.tensor(row.answer)
        answer_mask[index, : len(row.answer)] = 1
    return {
        "prompt_ids": prompts, "prompt_mask": prompt_mask, "completion_ids": answers, "completion_mask": answer_mask,
        "advantages": torch.tensor([row.advantage for row in made]), "num_items_in_batch": answer_mask.sum(),
    }  # fmt: skip


class GivenRows(GRPOTrainer):
    """trl's trainer with its generation left out: every batch is the given one."""

    given: dict[str, torch.Tensor]

    def _prepare_inputs(self, _: Any) -> dict[str, torch.Tensor]:
        return self.given


class InTurns(TrainerCallback):
    """Measures trl between begin and end of a step, then lets us take ours."""

    def __init__(self, theirs: Times, after: Callable[[], None]) -> None:
        self._theirs, self._after = theirs, after

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._theirs.add(time.perf_counter() - self._began[0], time.process_time() - self._began[1])
        self._after()


def trl_trainer(folder: str, scratch: str, dtype: str, steps: int, given: dict[str, torch.Tensor]) -> GivenRows:
    config = GRPOConfig(
        output_dir=scratch, per_device_train_batch_size=GROUPS * SESSIONS, num_generations=SESSIONS, max_steps=steps,
        learning_rate=LEARNING_RATE, lr_scheduler_type="constant", optim="adamw_torch", max_grad_norm=1.0, beta=0.0,
        loss_type="grpo", bf16=dtype == "bfloat16", gradient_checkpointing=False, use_cpu=True, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = GivenRows(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["unused"] * GROUPS * SESSIONS * 2}),
        processing_class=tokenizer,
    )
    trainer.given = given
    return trainer


def compare(folder: str, dtype: str, steps: int, *, shared: bool) -> dict[str, Any]:
    """Both sides on the same rows, one step each in turn; the first step warms up and is not counted."""
    ours, theirs = Times(), Times()
    config = TrainConfig(lr=LEARNING_RATE, use_rollout_logprobs=False, train_device="cpu", train_dtype=dtype)
    trainer = Trainer(folder, config)
    made = rows(AutoConfig.from_pretrained(folder).vocab_size, shared=shared)
    batch = our_batch(made)
    after_first: dict[str, float] = {}

    with tempfile.TemporaryDirectory() as scratch:
        peer = trl_trainer(folder, scratch, dtype, steps, their_batch(made, pad=2))
        start = {name: weight.detach().clone() for name, weight in peer.model.named_parameters()}

        def step() -> None:
            report = ours.measure(lambda: trainer.train(batch))
            if not after_first:
                if dtype == "float32":  # Rounding to bfloat16 is coarser than one step.
                    after_first.update(distance(start, trainer.publish(scratch).path, peer.model))
                after_first["computed_tokens"] = report.metrics["train/computed_tokens"]

        peer.add_callback(InTurns(theirs, step))
        peer.train()
    return {"ours": ours.figures(), "trl": theirs.figures(), "first_step": after_first}


def distance(start: dict[str, torch.Tensor], published: str, peer: torch.nn.Module) -> dict[str, float]:
    """How far our first step is from theirs, relative to its length; and the largest difference of a weight."""
    mine, apart, length, largest = load_file(Path(published) / "model.safetensors"), 0.0, 0.0, 0.0
    for name, weight in peer.named_parameters():
        difference = mine[name].float() - weight.detach()
        apart += difference.double().square().sum().item()
        length += (weight.detach() - start[name]).double().square().sum().item()
        largest = max(largest, difference.abs().max().item())
    return {"relative_distance": (apart / length) ** 0.5, "largest_difference": largest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3, help="steps per case, the first not counted (default 3)")
    parser.add_argument("--model", default="smollm2", help="model to train (default smollm2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the figures")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    folder = resolve(options.model, say=print).path

    figures: dict[str, Any] = {}
    for dtype, shared in CASES:
        name = f"{dtype}, {'shared prompts' if shared else 'every prompt different'}"
        figures[name] = compare(folder, dtype, options.steps, shared=shared)
        print(report(figures), flush=True)
    shown = {"model": options.model, "threads": torch.get_num_threads(), "figures": figures}
    print(save("train-step", shown, options.results))


def report(figures: dict[str, Any]) -> str:
    lines = []
    for name, case in figures.items():
        ours, theirs = case["ours"], case["trl"]
        apart = case["first_step"].get("relative_distance")
        lines.append(
            [
                name,
                f"{ours['wall_s']:.2f}",
                f"{theirs['wall_s']:.2f}",
                f"{ours['wall_s'] / theirs['wall_s']:.2f}",
                f"{ours['cpu_s'] / theirs['cpu_s']:.2f}",
                "" if apart is None else f"{apart:.5f}",
            ]
        )
    return table(["case", "ours s", "trl s", "ratio", "CPU ratio", "distance after step 1"], lines)


if __name__ == "__main__":
    main()
