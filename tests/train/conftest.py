"""A model of 30,000 random weights on disk, and Groups made from lists of numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from relaxforge.core.samples import ContextPath, SampleGroup, Segment, TrainBatch
from relaxforge.core.turns import VersionSpan, log_probs, token_ids

VOCABULARY = 61


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Compute threads that wait for each other cost more than they bring on matrices this small."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random Llama (tied embeddings, grouped attention) in float32."""
    folder = tmp_path_factory.mktemp("tiny")
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(7)
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@dataclass(frozen=True)
class GroupMaker:
    """Random Groups: ``turns`` answers per Session behind a shared prompt, some Sessions with a fork."""

    rng: random.Random

    def tokens(self, low: int = 1, high: int = 6) -> list[int]:
        return [self.rng.randrange(1, VOCABULARY) for _ in range(self.rng.randint(low, high))]

    def answer(self, low: int = 1, high: int = 5, version: int = 0) -> Segment:
        ids = self.tokens(low, high)
        logprobs = [self.rng.uniform(-5.0, -3.0) for _ in ids]
        return Segment(token_ids(ids), log_probs(logprobs), (VersionSpan(version, 0, len(ids)),))

    def observation(self, low: int = 1, high: int = 6) -> Segment:
        return Segment(token_ids(self.tokens(low, high)))

    def group(
        self, name: str = "g0", sessions: int = 4, turns: int = 2, prompt: tuple[int, int] = (3, 9)
    ) -> SampleGroup:
        segments = [self.observation(*prompt)]
        contexts: list[ContextPath] = []
        for number in range(sessions):
            path = [0]
            for _ in range(turns):
                segments += [self.answer(), self.observation()]
                path += [len(segments) - 2, len(segments) - 1]
            advantage = self.rng.choice([-1.5, -0.5, 0.5, 1.0])
            contexts.append(ContextPath(f"{name}-{number}", None, tuple(path), advantage, advantage))
            if number % 2:
                segments.append(self.answer())
                fork = (*path[:3], len(segments) - 1)
                contexts.append(ContextPath(f"{name}-{number}", "fork", fork, advantage, advantage))
        return SampleGroup(name, tuple(segments), tuple(contexts))

    def batch(self, groups: Sequence[SampleGroup] | None = None, temperature: float = 1.0) -> TrainBatch:
        chosen = groups if groups is not None else [self.group("g0"), self.group("g1", sessions=3)]
        return TrainBatch(0, tuple(chosen), temperature)


@pytest.fixture
def make() -> GroupMaker:
    return GroupMaker(random.Random(3))
