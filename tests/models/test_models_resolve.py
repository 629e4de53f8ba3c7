"""From a name to a folder."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from relaxforge.core.errors import ConfigError
from relaxforge.models.once import build_once
from relaxforge.models.resolve import default_cache_dir, resolve


def test_tiny_is_built_in_the_cache_once(tmp_path):
    first = resolve("tiny", tmp_path)
    stamp = Path(first.path, "model.safetensors").stat().st_mtime_ns
    assert resolve("tiny", tmp_path) == first
    assert Path(first.path, "model.safetensors").stat().st_mtime_ns == stamp
    assert (Path(first.path).parent, first.name) == (tmp_path, "tiny")


def test_the_cache_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "relaxforge" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "relaxforge" / "models"


def test_a_folder_is_taken_as_it_is(tmp_path):
    folder = resolve("tiny", tmp_path).path
    assert resolve(folder).path == folder


def test_a_folder_without_a_model_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"no config\.json \(it holds notes\.txt\)"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "~/nowhere"])
def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(name):
    with pytest.raises(ConfigError, match="no such folder"):
        resolve(name)


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing", "bad name!"])
def test_an_id_that_cannot_be_had_says_what_was_tried(tmp_path, name):
    code = "import sys; from relaxforge.models.resolve import resolve; resolve(sys.argv[1])"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, name], env=environment, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"relaxforge.core.errors.ConfigError: --model {name}: there is no folder of that name")
    assert "HF_HUB_OFFLINE is set" in last


def test_two_processes_that_start_together_build_once(tmp_path):
    code = (
        "import sys, time, pathlib; from relaxforge.models.once import build_once\n"
        "def build(work):\n"
        "    with open(sys.argv[2], 'a') as log: log.write('built\\n')\n"
        "    (work / 'file').write_text('whole')\n"
        "assert (build_once(pathlib.Path(sys.argv[1]), build) / 'file').read_text() == 'whole'"
    )
    arguments = [sys.executable, "-c", code, tmp_path / "target", tmp_path / "log"]
    processes = [subprocess.Popen(arguments) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text() == "built\n"


def test_a_build_that_fails_leaves_nothing_and_can_be_repeated(tmp_path):
    def fail(work):
        (work / "half").write_text("")
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        build_once(tmp_path / "target", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".target.lock"]
    assert build_once(tmp_path / "target", lambda work: (work / "file").touch()).is_dir()


def test_a_cache_that_cannot_be_written_is_a_configuration_mistake(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        resolve("tiny", tmp_path / "file" / "cache")


@pytest.mark.slow
def test_smollm2_answers_and_its_tokenizer_is_the_models_own():
    """Converted into the user's cache, as a run would do it, so that it happens once per machine."""
    folder = resolve("smollm2").path
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.encode("<|im_start|>system\nhi<|im_end|>\n") == [1, 9690, 198, 6004, 2, 198]
    for text in ("=  12", "  a1b22", "héllo 漢字 🎉", "x = 7 + 15\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    spaces, digits = tokenizer.encode("=  12")[1:-2], tokenizer.encode("=  12")[-2:]
    assert tokenizer.convert_ids_to_tokens([*spaces, *digits]) == ["ĠĠ", "1", "2"]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.dtype == torch.bfloat16
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt"
    )
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id
