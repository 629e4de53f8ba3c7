"""Training a whole step: weights move as they should, or not at all, and a checkpoint goes on exactly where it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from relaxforge.core.errors import ConfigError, TrainError
from relaxforge.core.samples import SampleGroup, TrainBatch
from relaxforge.core.turns import log_probs
from relaxforge.train.config import TrainConfig
from relaxforge.train.trainer import Trainer
from relaxforge.train.weights import WEIGHTS_FILE

EXACT = TrainConfig(lr=1e-3, train_dtype="float32", train_device="cpu")


def weights(trainer: Trainer, folder: Path) -> dict[str, Tensor]:
    """What an engine would get."""
    return load_file(Path(trainer.publish(str(folder)).path) / WEIGHTS_FILE)


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def likelihood(folder: Path, group: SampleGroup, session: int) -> float:
    """Logprob of the first answer of a Session under published weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt, answer = group.segments[0].tokens, group.segments[group.contexts[session].path[1]].tokens
    ids = torch.tensor([*prompt, *answer])
    logs = torch.log_softmax(model(ids[None]).logits[0], -1)
    return sum(logs[len(prompt) + i - 1, token].item() for i, token in enumerate(answer))


def with_advantages(group: SampleGroup, *advantages: float) -> SampleGroup:
    contexts = zip(group.contexts, advantages, strict=True)
    return replace(group, contexts=tuple(replace(context, advantage=value) for context, value in contexts))


def test_rewarded_answers_become_likelier_and_punished_ones_rarer(tiny_model: Path, make, tmp_path: Path) -> None:
    group = with_advantages(make.group(sessions=2, turns=1), 1.0, -1.0, -1.0)
    trainer = Trainer(str(tiny_model), replace(EXACT, use_rollout_logprobs=False))
    for _ in range(3):
        trainer.train(TrainBatch(0, (group,), 1.0))
    trainer.save(str(tmp_path))
    assert likelihood(tmp_path, group, 0) > likelihood(tiny_model, group, 0) + 0.1
    assert likelihood(tmp_path, group, 1) < likelihood(tiny_model, group, 1) - 0.1


def test_the_weight_version_counts_steps_that_moved_the_weights(tiny_model: Path, make, tmp_path: Path) -> None:
    trainer = Trainer(str(tiny_model), EXACT)
    before = weights(trainer, tmp_path)
    group = make.group()
    silent = with_advantages(group, *([0.0] * len(group.contexts)))
    report = trainer.train(TrainBatch(3, (silent,), 1.0))
    assert (report.rollout_id, report.weight_version) == (3, 0)
    assert report.metrics["train/loss"] == 0.0
    assert report.metrics["train/optimizer_steps"] == 0
    assert trainer.train(TrainBatch(4, (), 1.0)).weight_version == 0
    assert_equal(weights(trainer, tmp_path), before)
    assert trainer.train(make.batch()).weight_version == 1
    assert not torch.equal(weights(trainer, tmp_path)["model.norm.weight"], before["model.norm.weight"])


def test_order_of_sessions_and_repeated_rows_do_not_change_the_step(tiny_model: Path, make, tmp_path: Path) -> None:
    group = make.group()
    shuffled = replace(group, contexts=(*group.contexts[::-1], group.contexts[0], group.contexts[-1]))
    results = []
    for name, variant in (("plain", group), ("shuffled", shuffled)):
        trainer = Trainer(str(tiny_model), EXACT)
        trainer.train(TrainBatch(0, (variant,), 1.0))
        results.append(weights(trainer, tmp_path / name))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=0, atol=1e-5)


def test_micro_batches_do_not_change_the_step(tiny_model: Path, make, tmp_path: Path) -> None:
    group = make.group(sessions=6)
    results, counts = [], []
    for name, config in {
        "one": EXACT,
        "small": replace(EXACT, max_tokens_per_gpu=16),
        "counted": replace(EXACT, use_dynamic_batch_size=False, micro_batch_size=2),
    }.items():
        trainer = Trainer(str(tiny_model), config)
        counts.append(trainer.train(TrainBatch(0, (group,), 1.0)).metrics["train/micro_batches"])
        results.append(weights(trainer, tmp_path / name))
    assert counts[0] == 1
    assert min(counts[1:]) > 1
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=0, atol=1e-5)
        torch.testing.assert_close(results[0][name], results[2][name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(tiny_model: Path, make, tmp_path: Path, dtype) -> None:
    config = replace(
        EXACT, train_dtype=dtype, lr_decay_style="cosine", lr_decay_iters=9, lr_warmup_iters=2, global_batch_size=4
    )
    batches = [make.batch() for _ in range(4)]
    straight = Trainer(str(tiny_model), config)
    for batch in batches[:2]:
        straight.train(batch)
    straight.save(str(tmp_path / "checkpoint"))
    for batch in batches[2:]:
        expected = straight.train(batch)
    straight.save(str(tmp_path / "straight"))

    resumed = Trainer(str(tiny_model), config, resume_from=str(tmp_path / "checkpoint"))
    assert resumed.weight_version == 2
    for batch in batches[2:]:
        report = resumed.train(batch)
    resumed.save(str(tmp_path / "resumed"))

    assert report.weight_version == expected.weight_version == 4
    assert report.metrics["train/lr"] == expected.metrics["train/lr"]
    for file in (WEIGHTS_FILE, "trainer_state.safetensors"):
        assert_equal(load_file(tmp_path / "straight" / file), load_file(tmp_path / "resumed" / file))


def test_a_checkpoint_is_a_hugging_face_folder(tiny_model: Path, make, tmp_path: Path) -> None:
    trainer = Trainer(str(tiny_model), EXACT)
    trainer.train(make.batch())
    trainer.save(str(tmp_path / "saved"))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype="auto")
    assert loaded.dtype == torch.float32
    published = weights(trainer, tmp_path)
    assert "lm_head.weight" not in published
    for name, tensor in published.items():
        assert torch.equal(loaded.get_parameter(name), tensor)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert (tmp_path / "saved" / "tokenizer_config.json").read_text() == "{}"


def test_steps_too_small_for_bfloat16_add_up_in_the_masters(tiny_model: Path, make, tmp_path: Path) -> None:
    config = replace(EXACT, train_dtype="bfloat16", lr=1e-6)
    trainer = Trainer(str(tiny_model), config)
    trainer.train(make.batch())
    trainer.save(str(tmp_path))
    state = load_file(tmp_path / "trainer_state.safetensors")
    start = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16)
    saved = load_file(tmp_path / WEIGHTS_FILE)
    name = "model.norm.weight"
    assert torch.equal(saved[name], start.get_parameter(name))
    assert saved[name].dtype == torch.bfloat16
    moved = (state[f"master.{name}"] - start.get_parameter(name).float()).abs()
    assert moved.max().item() == pytest.approx(1e-6, rel=0.2)


def test_one_optimiser_step_per_global_batch(tiny_model: Path, make, tmp_path: Path) -> None:
    report = Trainer(str(tiny_model), replace(EXACT, global_batch_size=2)).train(make.batch())
    assert report.metrics["train/optimizer_steps"] == 4  # 7 Sessions
    assert report.weight_version == 1


def test_the_first_step_with_recomputed_logprobs_has_ratio_one(tiny_model: Path, make) -> None:
    config = replace(EXACT, use_rollout_logprobs=False)
    metrics = Trainer(str(tiny_model), config).train(make.batch()).metrics
    assert metrics["train/ppo_kl"] == 0.0
    assert metrics["train/pg_clipfrac"] == 0.0
    several = Trainer(str(tiny_model), replace(config, global_batch_size=2)).train(make.batch()).metrics
    assert several["train/ppo_kl"] != 0.0


def test_the_difference_to_the_engine_is_zero_when_the_engine_is_right(tiny_model: Path, make) -> None:
    group = make.group()
    metrics = Trainer(str(tiny_model), EXACT).train(TrainBatch(0, (group,), 0.7)).metrics
    assert metrics["train/logprob_diff_mean"] > 0.01
    right = Trainer(str(tiny_model), EXACT).train(TrainBatch(0, (as_sampled(tiny_model, group, 0.7),), 0.7)).metrics
    assert right["train/logprob_diff_max"] < 1e-5
    assert right["train/ppo_kl"] == pytest.approx(0.0, abs=1e-6)
    assert right["train/weight_staleness_max"] == 0


def test_tokens_of_other_weights_are_not_compared(tiny_model: Path, make) -> None:
    trainer = Trainer(str(tiny_model), EXACT)
    trainer.train(make.batch())
    metrics = trainer.train(make.batch()).metrics
    assert "train/logprob_diff_mean" not in metrics
    assert metrics["train/weight_staleness_mean"] == 1.0


def as_sampled(folder: Path, group: SampleGroup, temperature: float) -> SampleGroup:
    """The Group with the logprobs that an exact engine would have reported."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    segments = list(group.segments)
    for context in group.contexts:
        ids = [token for index in context.path for token in segments[index].tokens]
        logs = torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, -1)
        start = 0
        for index in context.path:
            segment = segments[index]
            if segment.sampled:
                exact = [logs[start + i - 1, token].item() for i, token in enumerate(segment.tokens)]
                segments[index] = replace(segment, logprobs=log_probs(exact))
            start += len(segment.tokens)
    return replace(group, segments=tuple(segments))


def test_kl_to_the_start_weights_is_zero_at_first_and_grows(tiny_model: Path, make) -> None:
    config = replace(EXACT, use_kl_loss=True, kl_loss_coef=0.01, kl_loss_type="k3", lr=3e-3)
    trainer = Trainer(str(tiny_model), config)
    assert trainer.train(make.batch()).metrics["train/kl_loss"] == pytest.approx(0.0, abs=1e-6)
    assert trainer.train(make.batch()).metrics["train/kl_loss"] > 1e-4


def test_entropy_bonus_moves_weights_without_any_advantage(tiny_model: Path, make) -> None:
    group = make.group()
    silent = with_advantages(group, *([0.0] * len(group.contexts)))
    trainer = Trainer(str(tiny_model), replace(EXACT, entropy_coef=0.1))
    report = trainer.train(TrainBatch(0, (silent,), 1.0))
    assert report.weight_version == 1
    assert report.metrics["train/loss"] == pytest.approx(-0.1 * report.metrics["train/entropy"], rel=1e-5)


def test_a_large_gradient_is_clipped_and_reported_unclipped(tiny_model: Path, make, tmp_path: Path) -> None:
    batch = make.batch()
    free = Trainer(str(tiny_model), replace(EXACT, clip_grad=0.0)).train(batch).metrics["train/grad_norm"]
    clipped = Trainer(str(tiny_model), replace(EXACT, clip_grad=free / 10))
    assert clipped.train(batch).metrics["train/grad_norm"] == pytest.approx(free, rel=1e-5)
    clipped.save(str(tmp_path))
    state = load_file(tmp_path / "trainer_state.safetensors")
    first_moments = [tensor.square().sum() for name, tensor in state.items() if name.startswith("exp_avg.")]
    assert torch.stack(first_moments).sum().sqrt().item() == pytest.approx(0.1 * free / 10, rel=1e-3)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(tiny_model: Path, make, tmp_path: Path) -> None:
    trainer = Trainer(str(tiny_model), EXACT)
    before = weights(trainer, tmp_path)
    group = make.group()
    broken = with_advantages(group, *([1e30] * len(group.contexts)))
    words = "optimiser step 0: the gradient norm is inf; the weights were left as they are"
    with pytest.raises(TrainError, match=words):
        trainer.train(TrainBatch(0, (broken,), 1.0))
    assert trainer.weight_version == 0
    assert_equal(weights(trainer, tmp_path / "again"), before)
    assert trainer.train(make.batch()).weight_version == 1


def test_publishing_keeps_the_newest_folders_complete(tiny_model: Path, make, tmp_path: Path) -> None:
    trainer = Trainer(str(tiny_model), EXACT)
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / WEIGHTS_FILE).write_text("left behind by a killed run")
    updates = [trainer.publish(str(tmp_path))]
    for _ in range(3):
        trainer.train(make.batch())
        updates.append(trainer.publish(str(tmp_path)))
        assert load_file(Path(updates[-1].path) / WEIGHTS_FILE)
    assert [update.version for update in updates] == [0, 1, 2, 3]
    assert trainer.publish(str(tmp_path)) is updates[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v2", "v3"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "trainer_state.json is not readable"),
        ("[]", "trainer_state.json is not readable"),
        ('{"schema_version": 99}', "written by another release"),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_refused(tiny_model: Path, tmp_path: Path, content, words: str) -> None:
    if content is not None:
        (tmp_path / "trainer_state.json").write_text(content)
    with pytest.raises(ConfigError, match=words):
        Trainer(str(tiny_model), EXACT, resume_from=str(tmp_path))


def test_a_checkpoint_of_another_model_or_format_is_refused(tiny_model: Path, make, tmp_path: Path) -> None:
    Trainer(str(tiny_model), EXACT).save(str(tmp_path))
    with pytest.raises(ConfigError, match="does not fit this model"):
        Trainer(str(tiny_model), replace(EXACT, train_dtype="bfloat16"), resume_from=str(tmp_path))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        Trainer(str(tmp_path), EXACT)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="not loadable as a causal language model"):
        Trainer(str(tmp_path), EXACT)


def test_damaged_weights_are_a_mistake_that_names_their_folder(tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=f"{tmp_path}: not loadable as a causal language model"):
        Trainer(str(tmp_path), EXACT)
