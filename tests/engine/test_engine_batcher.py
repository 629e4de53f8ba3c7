"""The batcher against plain transformers: whatever is shared, cut or interleaved, the numbers are the same."""

import random

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from relaxforge.core.errors import EngineError
from relaxforge.core.turns import Sampling, token_ids
from relaxforge.engine.local.attention import Layout, Piece
from relaxforge.engine.local.batcher import Batcher
from relaxforge.engine.local.model import LocalModel
from relaxforge.engine.local.packed import can_pack

SMALL = {
    "vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
FAMILIES = {
    "llama": {},
    "llama without grouped heads": {"model_type": "llama", "num_key_value_heads": 4},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 7},
    "gemma3_text": {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
    "phi3": {"tie_word_embeddings": True},
    "granite": {},
}


def save_random(folder, model_type, seed=0, **changes):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(**{**SMALL, "model_type": model_type, **changes})
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return str(folder)


def decode(ids):
    return "".join(chr(32 + token) for token in ids)


def batcher_of(model, *, slots=4, max_batch_tokens=1000):
    return Batcher(model, slots=slots, slot_tokens=96, max_batch_tokens=max_batch_tokens, decode=decode)


def drain(batcher, answers):
    """Step until nothing is left; ``answers[number]`` collects (tokens, logprobs)."""
    while batcher.running + batcher.waiting:
        for one in batcher.step():
            tokens, logprobs = answers.setdefault(one.running.number, ([], []))
            tokens.append(one.token)
            logprobs.append(one.logprob)
    return answers


def exact_logprobs(folder, prompt, tokens, temperature):
    """One plain forward over the whole context, in float64 from the logits on."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0].double()
    rows = torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, -1)
    return rows[torch.arange(len(tokens)), torch.tensor(tokens)].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_those_of_a_plain_forward(tmp_path, family):
    folder = save_random(tmp_path, **{"model_type": family, **FAMILIES[family]})
    batcher, chance = batcher_of(LocalModel(folder), max_batch_tokens=11), random.Random(4)
    shared = [chance.randrange(3, 90) for _ in range(20)]
    prompts = [shared + [chance.randrange(3, 90) for _ in range(size)] for size in (0, 1, 5, 9, 30, 0)]
    answers = {}
    for number, prompt in enumerate(prompts):
        batcher.add(number, token_ids(prompt), 12, Sampling(12, temperature=0.7, seed=number), frozenset())
        for one in batcher.step() if number % 2 else ():
            answers.setdefault(one.running.number, ([], []))
            answers[one.running.number][0].append(one.token)
            answers[one.running.number][1].append(one.logprob)
    drain(batcher, answers)
    for number, prompt in enumerate(prompts):
        tokens, logprobs = answers[number]
        assert len(tokens) == 12
        assert logprobs == pytest.approx(exact_logprobs(folder, prompt, tokens, 0.7), abs=1e-4)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("gemma2", {}), ("gpt_oss", {"num_local_experts": 2, "num_experts_per_tok": 1}), ("mamba", {})],
)
def test_architectures_it_cannot_compute_are_refused(tmp_path, family, changes):
    folder = save_random(tmp_path, family, **changes)
    with pytest.raises(EngineError, match="--engine local cannot run"):
        LocalModel(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two sets of weights of one architecture."""
    return [save_random(tmp_path_factory.mktemp("weights"), "llama", seed=seed) for seed in (0, 1)]


def test_a_seed_gives_the_same_answer_alone_and_in_any_company(folders):
    model, prompt = LocalModel(folders[0]), token_ids(range(3, 30))
    alone = batcher_of(model)
    alone.add(0, prompt[:], 20, Sampling(20, seed=5), frozenset())
    expected = drain(alone, {})[0][0]
    crowd = batcher_of(model, slots=3, max_batch_tokens=16)
    for number in range(7):
        crowd.add(number, token_ids(range(5 + number, 40)), 9 + number, Sampling(99, seed=number), frozenset())
    crowd.step()
    crowd.add(9, prompt[:], 20, Sampling(20, seed=5), frozenset())
    assert drain(crowd, {})[9][0] == expected


def test_a_continued_answer_draws_what_the_whole_one_would_have(folders):
    model, prompt = LocalModel(folders[0]), token_ids(range(3, 30))
    whole, rest = batcher_of(model), batcher_of(model)
    whole.add(0, prompt[:], 20, Sampling(20, seed=5), frozenset())
    tokens = drain(whole, {})[0][0]
    rest.add(0, prompt + token_ids(tokens[:8]), 12, Sampling(12, seed=5), frozenset())
    assert drain(rest, {})[0][0] == tokens[8:]


def test_after_new_weights_nothing_comes_from_the_old_ones(folders):
    """Also not for a request in flight: its later logprobs are those of the new weights over the whole context."""
    model, prompt = LocalModel(folders[0]), list(range(3, 40))
    batcher = batcher_of(model, max_batch_tokens=13)
    batcher.add(0, token_ids(prompt), 16, Sampling(16, seed=1), frozenset())
    answers = {0: ([], [])}
    while len(answers[0][0]) < 6:
        for one in batcher.step():
            answers[0][0].append(one.token)
            answers[0][1].append(one.logprob)
    batcher.load(folders[1])
    batcher.add(1, token_ids(prompt), 4, Sampling(4, seed=2), frozenset())
    drain(batcher, answers)
    tokens, logprobs = answers[0]
    assert logprobs[:6] == pytest.approx(exact_logprobs(folders[0], prompt, tokens, 1)[:6], abs=1e-4)
    assert logprobs[6:] == pytest.approx(exact_logprobs(folders[1], prompt, tokens, 1)[6:], abs=1e-4)
    assert answers[1][1] == pytest.approx(exact_logprobs(folders[1], prompt, answers[1][0], 1), abs=1e-4)
    batcher.load(folders[0])
    batcher.add(2, token_ids(prompt), 16, Sampling(16, seed=1), frozenset())
    again = drain(batcher, {})[2]
    assert (again[0][:6], again[1][:6]) == (tokens[:6], logprobs[:6])


def test_a_group_computes_its_prompt_once(folders):
    batcher = batcher_of(LocalModel(folders[0]), slots=8)
    for number in range(8):
        batcher.add(number, token_ids(range(3, 60)), 3, Sampling(3, seed=number), frozenset())
    cached = {}
    while batcher.running + batcher.waiting:
        cached |= {one.running.number: one.running.cached for one in batcher.step()}
    assert sorted(cached.values()) == [0] + [56] * 7


def test_more_requests_than_slots_wait_their_turn(folders):
    batcher = batcher_of(LocalModel(folders[0]), slots=2)
    for number in range(5):
        batcher.add(number, token_ids([3 + number, 4]), 4, Sampling(4), frozenset())
    batcher.step()
    assert (batcher.running, batcher.waiting) == (2, 3)
    assert sorted(drain(batcher, {})) == [0, 1, 2, 3, 4]
    assert (batcher.running, batcher.waiting) == (0, 0)


def test_an_aborted_request_gives_its_slot_back(folders):
    batcher = batcher_of(LocalModel(folders[0]), slots=1)
    for number in range(3):
        batcher.add(number, token_ids([3, 4]), 50, Sampling(50), frozenset())
    batcher.step()
    assert batcher.abort(0).number == 0
    assert batcher.abort(1).number == 1
    assert batcher.abort(7) is None
    assert list(drain(batcher, {})) == [2]


@pytest.mark.parametrize("change", ["unknown", "missing", "shape", "cut", "none"])
def test_weights_that_do_not_fit_are_refused_and_the_old_ones_stay(folders, tmp_path, change):
    model = LocalModel(folders[0])
    weights, path = load_file(f"{folders[1]}/model.safetensors"), tmp_path / "model.safetensors"
    name = "model.layers.1.mlp.up_proj.weight"
    if change == "unknown":
        weights["model.layers.9.mlp.up_proj.weight"] = weights[name].clone()
    elif change == "missing":
        del weights[name]
    elif change == "shape":
        weights[name] = weights[name][:-1].clone()
    if change != "none":
        save_file(weights, path)
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    batcher = batcher_of(model)
    batcher.add(0, token_ids([3, 4, 5]), 4, Sampling(4, seed=1), frozenset())
    before = drain(batcher, {})[0]
    with pytest.raises(EngineError, match="the old ones stay"):
        batcher.load(str(tmp_path))
    batcher.add(0, token_ids([3, 4, 5]), 4, Sampling(4, seed=1), frozenset())
    after = drain(batcher, {})[0]
    assert after[0] == before[0]
    assert after[1] == pytest.approx(before[1], abs=1e-5)


def test_tied_weights_may_come_under_one_name_or_both(tmp_path):
    folder = save_random(tmp_path, "llama", tie_word_embeddings=True)
    model, weights = LocalModel(folder), load_file(f"{folder}/model.safetensors")
    assert "lm_head.weight" not in weights
    model.load(folder)
    save_file(
        {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()}, f"{folder}/model.safetensors"
    )
    model.load(folder)


def test_weights_that_give_no_numbers_are_an_error_and_not_a_token(tmp_path):
    folder = save_random(tmp_path, "llama")
    model, weights = LocalModel(folder), load_file(f"{folder}/model.safetensors")
    good = tmp_path / "good"
    good.mkdir()
    save_file(weights, good / "model.safetensors")
    weights["model.layers.0.input_layernorm.weight"] = torch.full_like(weights["model.norm.weight"], torch.nan)
    save_file(weights, f"{folder}/model.safetensors")
    batcher = batcher_of(model)
    batcher.load(folder)
    batcher.add(0, token_ids(range(3, 11)), 4, Sampling(4), frozenset())
    (one,) = batcher.step()
    assert one.error == "the model's logits are not finite"
    assert (batcher.running, batcher.waiting) == (0, 0)
    batcher.load(str(good))
    for number, size in enumerate((7, 7, 7, 4)):  # The last in the slot of numbers that were none, beside longer ones.
        batcher.add(number, token_ids(range(3 + number, 3 + number + size)), 3, Sampling(3), frozenset())
    assert all(logprob <= 0 for _, logprobs in drain(batcher, {}).values() for logprob in logprobs)


def test_bfloat16_stays_near_float32(folders):
    batcher, prompt = batcher_of(LocalModel(folders[0], dtype="bfloat16")), list(range(3, 40))
    batcher.add(0, token_ids(prompt), 16, Sampling(16, seed=1), frozenset())
    tokens, logprobs = drain(batcher, {})[0]
    gaps = [abs(a - b) for a, b in zip(logprobs, exact_logprobs(folders[0], prompt, tokens, 1), strict=True)]
    assert sum(gaps) / len(gaps) < 0.1


def test_packed_layers_compute_what_plain_ones_do_also_after_new_weights(tmp_path):
    folders = [save_random(tmp_path / str(seed), "qwen2", seed=seed) for seed in (0, 1)]  # With biases.
    model, plain = LocalModel(folders[0], dtype="bfloat16"), LocalModel(folders[0], dtype="bfloat16")
    if not can_pack(plain._model):
        pytest.skip("this CPU has no bfloat16 kernels to pack for")
    for folder in folders:
        model.load(folder)
        plain.load(folder)
        for module in plain._model.modules():
            module.__dict__.pop("forward", None)
        caches = [one.new_cache(1, 8) for one in (model, plain)]
        packed, exact = (
            one.forward([5, 6, 7], Layout(cache, (Piece(0, 0, 3),)))
            for one, cache in zip((model, plain), caches, strict=True)
        )
        assert torch.equal(packed, exact)
