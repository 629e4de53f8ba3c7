"""The engine process: what crosses the boundary, and what happens when one side is gone."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
import torch
from engine_parts import CONTEXT, local_rig, started
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from relaxforge.core.errors import ConfigError, EngineError
from relaxforge.core.turns import FinishReason, WeightUpdate
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.create import create_engine
from relaxforge.engine.local.engine import LocalEngine


@pytest.fixture
def own(tiny_folder, tmp_path):
    """A local engine for one test that breaks it."""
    yield from started(local_rig(tiny_folder, tmp_path))


@pytest.fixture(scope="module")
def other_weights(tiny_folder, tmp_path_factory):
    """The tiny model, moved a little in every direction."""
    folder = tmp_path_factory.mktemp("other")
    generator = torch.Generator().manual_seed(1)
    moved = {
        name: tensor + 0.02 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in load_file(f"{tiny_folder}/model.safetensors").items()
    }
    save_file(moved, folder / "model.safetensors")
    return str(folder)


def test_logprobs_are_those_of_a_plain_forward_before_top_p(local, tiny_folder):
    generation = local.answer(max_tokens=30, temperature=0.6, top_p=0.9, top_k=100)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([[*local.prompt, *generation.ids]])).logits[0]
    rows = torch.log_softmax(logits[len(local.prompt) - 1 : -1] / 0.6, -1)
    exact = rows[torch.arange(len(generation.ids)), torch.tensor(generation.ids)]
    assert list(generation.logprobs) == pytest.approx(exact.tolist(), abs=1e-4)


def test_a_seed_repeats_itself_and_no_seed_does_not(local):
    assert local.answer(seed=3).ids == local.answer(seed=3).ids
    free = {tuple(local.answer(seed=None, max_tokens=6).ids) for _ in range(3)}
    assert len(free) > 1


def test_new_weights_change_logprobs_and_the_old_ones_bring_them_back(local, tiny_folder, other_weights):
    def greedy():
        generation = local.answer(max_tokens=10, temperature=0.0)
        return list(generation.ids), list(generation.logprobs), generation.versions[0].version

    local.run(local.engine.load(WeightUpdate(50, tiny_folder)))
    before = greedy()
    local.run(local.engine.load(WeightUpdate(51, other_weights)))
    moved = greedy()
    local.run(local.engine.load(WeightUpdate(52, tiny_folder)))
    after = greedy()
    assert (before[2], moved[2], after[2]) == (50, 51, 52)
    assert moved[1] != before[1]
    assert after[:2] == before[:2]


@pytest.mark.parametrize("made", ["nothing", "nonsense"])
def test_weights_that_cannot_be_read_leave_the_old_ones_serving(local, tmp_path, made):
    if made == "nonsense":
        (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    before = local.answer()
    with pytest.raises(EngineError, match=r"model\.safetensors.*the old ones stay"):
        local.run(local.engine.load(WeightUpdate(99, str(tmp_path))))
    after = local.answer()
    assert (after.ids, after.versions) == (before.ids, before.versions)


def test_the_next_turn_finds_its_past_computed(local):
    first = local.answer(session="mine", max_tokens=5, seed=11)
    past = [*local.prompt, *first.ids]
    second = local.answer([*past, 5, 6, 7], session="mine")
    assert second.cached_tokens == len(past) - 1


def test_an_idle_engine_sleeps(local):
    local.answer()
    process = psutil.Process(local.engine.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    assert sum(process.cpu_times()[:2]) - before < 0.1


def test_when_the_process_is_killed_everybody_waiting_is_told_how_and_where(own, tmp_path):
    async def scenario():
        begun = asyncio.Event()
        requests = [own.request(own.slow_prompt, max_tokens=400) for _ in range(20)]
        answering = [asyncio.create_task(own.engine.generate(request, lambda _: begun.set())) for request in requests]
        await begun.wait()
        os.kill(own.engine.pid, signal.SIGKILL)
        return await asyncio.gather(*answering, return_exceptions=True)

    for error in own.run(scenario()):
        assert isinstance(error, EngineError)
        assert "signal 9" in str(error)
        assert str(tmp_path / "engine.log") in str(error)
    for call in (own.engine.generate(own.request()), own.engine.pause(), own.engine.capacity()):
        with pytest.raises(EngineError, match="signal 9"):
            own.run(call)


def test_a_closed_engine_says_so(own):
    own.run(own.engine.close())
    with pytest.raises(EngineError, match="closed"):
        own.answer()


def test_an_engine_that_was_not_started_says_so(tiny_folder, tmp_path):
    rig = local_rig(tiny_folder, tmp_path)
    with rig.runner, pytest.raises(EngineError, match="not started"):
        rig.answer()


def test_numbers_that_are_none_reach_the_caller_as_an_error(local, tiny_folder, tmp_path):
    weights = load_file(f"{tiny_folder}/model.safetensors")
    weights["model.norm.weight"][:] = torch.inf
    save_file(weights, tmp_path / "model.safetensors")
    local.run(local.engine.load(WeightUpdate(60, str(tmp_path))))
    with pytest.raises(EngineError, match="not finite"):
        local.answer()
    local.run(local.engine.load(WeightUpdate(61, tiny_folder)))
    assert local.answer().ids


def test_a_folder_without_weights_fails_at_the_start_with_the_librarys_reason(tiny_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "model.safetensors").unlink()
    rig = local_rig(str(folder), tmp_path)
    with rig.runner, pytest.raises(EngineError, match=r"model\.safetensors"):
        rig.run(rig.engine.start())


def test_a_cache_below_one_context_fails_at_the_start_with_the_flags_to_change(tiny_folder, tmp_path):
    rig = local_rig(tiny_folder, tmp_path, engine_cache_tokens=CONTEXT - 1)
    with rig.runner, pytest.raises(EngineError, match="--engine-cache-tokens"):
        rig.run(rig.engine.start())


def test_the_context_is_the_smaller_of_the_workloads_and_the_models(tiny_folder, tmp_path):
    def limit(folder, context):
        engine = LocalEngine(folder, EngineConfig(), Workload(1, context), end_of_turn_id=2)
        return engine.capabilities.max_context

    short = tmp_path / "short"
    shutil.copytree(tiny_folder, short)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    assert limit(str(short), 1000) == limit(str(short), None) == 64
    assert limit(tiny_folder, 1000) == 1000


def test_a_folder_that_is_no_model_is_a_configuration_mistake(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        create_engine(EngineConfig(), str(tmp_path), None, 2, Workload(1, 10))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="vocab_size"):
        create_engine(EngineConfig(), str(tmp_path), None, 2, Workload(1, 10))


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"engine_max_batch_tokens": 0}, "--engine-max-batch-tokens"),
        ({"engine_cache_tokens": -5}, "--engine-cache-tokens"),
        ({"scripted_replies": "x.jsonl"}, "--scripted-replies"),
    ],
)
def test_configuration_mistakes_name_their_flag(fields, flag):
    with pytest.raises(ConfigError, match=flag):
        replace(EngineConfig(), **fields)


def test_main_never_imports_torch_or_transformers():
    code = "import sys, relaxforge.engine.create; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_stop_string_ends_a_real_answer(local):
    text = local.tokenizer.decode(local.answer(max_tokens=20).ids)
    stop = next(part for part in text.split("\ufffd") if len(part) > 2)[:3]
    generation = local.answer(max_tokens=20, stop=(stop,))
    assert (generation.finish, generation.stop_match) == (FinishReason.STOP, stop)
