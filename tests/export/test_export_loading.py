"""Files load where people load them: with datasets, and in TRL's own functions."""

import json
import math
import os
import warnings

import pytest
from export_parts import Forest, call, dump, result, said, stored, user

from relaxforge.export.kinds import FORMATS, choose
from relaxforge.export.lines import preference_line
from relaxforge.export.schema import features

BLOCK = 10 << 20
"""Bytes from which datasets infers the schema of a whole file."""


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


def load(path, **given):
    import datasets

    return datasets.load_dataset("json", data_files=str(path), split="train", **given)


def attempt(answer, *, tool="order", arguments='{"n": 1}', filler=""):
    forest = Forest()
    first = forest.turn(None, [user("Buy a mug.")], said(None, call("a", tool, arguments)))
    last = forest.turn(first, [result("a", "placed" + filler)], said(answer))
    return dump(forest, exported=last)


def quiet(filler=""):
    """An attempt without a single tool call."""
    forest = Forest()
    return dump(forest, exported=forest.turn(None, [user("Hello.")], said("Hi." + filler)))


def write(path, lines):
    path.write_bytes(b"".join(line for line in lines if line is not None))
    return path


def rollouts(filler=""):
    """First nothing but scored attempts of one shape, then everything that makes schemas differ."""
    lines = [attempt(f"answer {n}", filler=filler) for n in range(3)]
    return [
        *(stored(line, reward=1.0, stages={"stage_a": 1}) for line in lines),
        stored(attempt("x", tool="other", arguments='{"name": "x", "deep": {"list": [1, "two"]}}'), reward=0.15,
               stages={"stage_b": 0.5}, failure_category="partial"),
        stored(quiet(), reward=None, evaluation_run_id=None, training_run_id="t"),
        stored(trajectory_status="missing", reward=0.0, environment_version_id=None),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [name for name, shape in FORMATS.items() if shape.pairs is None])
def test_every_format_of_single_rollouts_loads(name, tmp_path):
    write_line = FORMATS[name].write
    lines = [write_line(rollout) for rollout in rollouts()]
    rows = load(write(tmp_path / "rows.jsonl", lines))
    assert len(rows) == sum(line is not None for line in lines)


@pytest.mark.parametrize("name", ["atif-shaped", "trl-preference", "openai-dpo"])
def test_every_format_of_pairs_loads(name, tmp_path):
    better = [stored(attempt("good", arguments=f'{{"n": {n}}}'), reward=1.0) for n in range(3)]
    worse = stored(attempt("bad", tool="cancel", arguments='{"why": {"code": 1}}'), reward=0.15)
    lines = [choose("preference", name).format.write(one, worse) for one in better]
    assert len(load(write(tmp_path / "pairs.jsonl", lines))) == 3


@pytest.mark.parametrize("name", [name for name, shape in FORMATS.items() if shape.pairs is None])
def test_what_comes_first_after_ten_megabytes_breaks_nothing_with_our_schema(name, tmp_path):
    import datasets

    filler = "x" * (BLOCK // 3)
    first = [stored(quiet(filler), reward=None if name in ("atif-shaped", "atif") else 0.0) for _ in range(4)]
    lines = [FORMATS[name].write(rollout) for rollout in (*first, *rollouts())]
    path = write(tmp_path / "rows.jsonl", lines)
    assert path.stat().st_size > BLOCK
    rows = load(path, features=datasets.Features.from_dict(features(name)))
    assert len(rows) == sum(line is not None for line in lines)
    plain = [json.loads(line) for line in lines if line is not None]
    assert [list(row) for row in rows] == [list(row) for row in plain] or name == "atif"


def test_stages_categories_and_ids_that_appear_late_break_nothing_without_a_schema(tmp_path):
    filler = "x" * (BLOCK // 3)
    lines = [FORMATS["atif-shaped"].write(rollout) for rollout in rollouts(filler)]
    rows = load(write(tmp_path / "rows.jsonl", lines))
    assert rows["reward"] == [1.0, 1.0, 1.0, 0.15, None, 0.0]
    assert json.loads(rows["stages"][3]) == {"stage_b": 0.5}


def test_numbers_keep_their_digits_through_loading(tmp_path):
    lines = [preference_line(stored(reward=1.0), stored(reward=value)) for value in (0.15, 0.1 + 0.2, 1e-07)]
    assert load(write(tmp_path / "pairs.jsonl", lines))["rejectedReward"] == [0.15, 0.1 + 0.2, 1e-07]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import AutoTokenizer

    from relaxforge.models import tiny

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return AutoTokenizer.from_pretrained(str(tiny.folder(tmp_path_factory.mktemp("models"))))


@pytest.fixture(scope="module")
def trl():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import trl
        import trl.data_utils
    return trl


def loaded_rows(path):
    """Rows as TRL's trainers see them: through datasets, without the nulls that Arrow fills in."""
    from trl.trainer.utils import remove_none_values

    return list(load(path).with_transform(remove_none_values))


def test_trl_takes_sft_rows(trl, tokenizer, tmp_path):
    path = write(tmp_path / "rows.jsonl", [FORMATS["trl-sft"].write(rollout) for rollout in rollouts()])
    for row in loaded_rows(path):
        assert trl.data_utils.is_conversational(row)
        text = trl.data_utils.maybe_apply_chat_template(row, tokenizer, tools=json.loads(row["tools"]))["text"]
        assert row["messages"][0]["content"] in text
        assert row["messages"][-1]["content"] in text


def test_trl_takes_preference_and_kto_rows(trl, tokenizer, tmp_path):
    good, bad = stored(attempt("good"), reward=1.0), stored(attempt("bad"), reward=0.0)
    path = write(tmp_path / "pairs.jsonl", [FORMATS["trl-preference"].write(good, bad)])
    (row,) = loaded_rows(path)
    implicit = {"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]}
    assert trl.data_utils.extract_prompt(implicit)["prompt"] == row["prompt"]
    texts = trl.data_utils.maybe_apply_chat_template(row, tokenizer)
    assert "good" in texts["chosen"]
    assert "bad" in texts["rejected"]
    path = write(tmp_path / "kto.jsonl", [FORMATS["trl-kto"].write(one) for one in (good, bad)])
    rows = loaded_rows(path)
    assert [row["label"] for row in rows] == [True, False]
    assert "good" in trl.data_utils.maybe_apply_chat_template(rows[0], tokenizer)["completion"]


@pytest.mark.slow
def test_a_preference_file_trains_a_step_of_trls_dpo(trl, tokenizer, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    from relaxforge.models import tiny

    lines = [
        FORMATS["trl-preference"].write(
            stored(attempt("good", arguments=f'{{"n": {n}}}'), reward=1.0), stored(attempt("bad"), reward=0.0)
        )
        for n in range(1, 3)
    ]
    rows = load(write(tmp_path / "pairs.jsonl", lines))
    model = AutoModelForCausalLM.from_pretrained(str(tiny.folder(tmp_path / "models")), dtype=torch.float32)
    before = {name: value.clone() for name, value in model.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = trl.DPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, learning_rate=0.1,
            use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, bf16=False, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = trl.DPOTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
        trained = trainer.train()
    assert trained.global_step == 1
    assert math.isfinite(trained.training_loss)
    changed = [name for name, value in model.named_parameters() if not torch.equal(value, before[name])]
    assert changed
