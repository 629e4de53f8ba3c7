import tomllib
from pathlib import Path

import pytest

from relaxforge.cli.config import Config, dump_config, load_config, settings
from relaxforge.cli.flags import flag_names
from relaxforge.core.errors import ConfigError

DATA = ("--prompt-data", "tasks.jsonl")


def run_file(folder: Path, text: str) -> str:
    path = folder / "RUN.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_flags_alone_are_a_configuration():
    config = load_config("train", [*DATA, "--agent-command", "python3 agent.py", "--lr", "5e-5", "--num-rollout", "3"])
    assert config.data.prompt_data == "tasks.jsonl"
    assert config.agents.agent_command == "python3 agent.py"
    assert (config.train.lr, config.run.num_rollout) == (5e-5, 3)
    assert config.run_file is None


def test_a_flag_wins_over_the_run_file(tmp_path):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\nrollout_batch_size = 4\nn_samples_per_prompt = 2\n')
    config = load_config("train", [path, "--rollout-batch-size", "16"])
    assert (config.rollout.rollout_batch_size, config.rollout.n_samples_per_prompt) == (16, 2)
    assert config.run_file == path


def test_checks_see_the_file_and_the_flags_together(tmp_path):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\nover_sampling_batch_size = 4\n')
    assert load_config("train", [path, "--rollout-batch-size", "2"]).rollout.started_groups == 4
    with pytest.raises(ConfigError, match="--over-sampling-batch-size must be at least --rollout-batch-size"):
        load_config("train", [path, "--rollout-batch-size", "8"])


def test_relative_paths_of_a_run_file_start_at_its_folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    path = run_file(
        folder,
        'prompt_data = "data/train.jsonl"\neval_prompt_data = ["easy", "data/easy.jsonl"]\nmodel = "./model"\n'
        'custom_rm_path = "verify.py:reward"\nengine = "scripted"\nscripted_replies = "/abs/replies.jsonl"\n'
        'resume = "latest"\n',
    )
    config = load_config("train", [path])
    assert config.data.prompt_data == str(folder / "data/train.jsonl")
    assert config.data.eval_datasets == (("easy", str(folder / "data/easy.jsonl")),)
    assert config.run.model == str(folder / "model")
    assert config.credit.custom_rm_path == f"{folder}/verify.py:reward"
    assert config.engine.scripted_replies == "/abs/replies.jsonl"
    assert config.run.resume == "latest"
    assert config.agents.agent_cwd == str(folder), "the agent runs beside the run file unless told otherwise"


def test_names_that_are_no_files_stay_as_they_are(tmp_path):
    path = run_file(
        tmp_path, 'prompt_data = "d.jsonl"\nmodel = "Qwen/Qwen3-0.6B"\ncustom_rm_path = "package.module.reward"\n'
    )
    config = load_config("train", [path])
    assert (config.run.model, config.credit.custom_rm_path) == ("Qwen/Qwen3-0.6B", "package.module.reward")


def test_relative_paths_in_flags_start_at_the_current_folder(tmp_path):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\n')
    assert load_config("train", [path, "--prompt-data", "here.jsonl"]).data.prompt_data == "here.jsonl"


def test_none_can_be_said_in_both_places(tmp_path):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\nagent_startup_timeout = "None"\n')
    assert load_config("train", [path]).agents.agent_startup_timeout is None
    assert load_config("train", [*DATA, "--agent-startup-timeout", "None"]).agents.agent_startup_timeout is None


def test_lists_are_given_as_in_the_guide():
    config = load_config("train", [*DATA, "--agent-env", "FOO=bar", "BAZ=a b", "--use-agentic-rollout"])
    assert config.agents.agent_env == ("FOO=bar", "BAZ=a b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rollout_batch_sise = 4", r"RUN\.toml: unknown setting rollout_batch_sise; did you mean rollout_batch_size\?"),
        ("xyzzy = 4", r"RUN\.toml: unknown setting xyzzy; `relaxforge train --help` lists all"),
        ("rollout-batch-size = 4", "unknown setting rollout-batch-size; did you mean rollout_batch_size"),
        ('lr = "fast"', r"RUN\.toml: lr = 'fast': Expected `float`, got `str`"),
        ('keep_session_dirs = "some"', r"keep_session_dirs = 'some': Invalid enum value 'some'"),
        ("[agents]\nagent_timeout = 3.0", r"\[agents\] is a table, but a run file is one flat list"),
        ("lr = = 1", r"RUN\.toml: not valid TOML: .*line 1, column 6"),
        ("agent_timeout = -1.0", "--agent-timeout must be > 0 seconds, got -1.0"),
    ],
)
def test_a_mistake_in_a_run_file_is_one_sentence(tmp_path, text, message):
    path = run_file(tmp_path, f'prompt_data = "d.jsonl"\n{text}\n' if "= =" not in text else text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config("train", [path])
    assert "\n" not in str(caught.value)


def test_a_missing_or_unreadable_run_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.toml: cannot read this run file: No such file or directory"):
        load_config("train", [str(tmp_path / "no.toml")])
    (tmp_path / "RUN.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        load_config("train", [str(tmp_path / "RUN.toml")])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rollout-batch-sise", "4"), "unknown setting --rollout-batch-sise; did you mean --rollout-batch-size"),
        (("--lr", "fast"), "--lr: .*fast"),
        (("--keep-session-dirs", "some"), "invalid choice 'some' for argument '--keep-session-dirs'"),
        (("--num-rollout",), "--num-rollout"),
        (("stray",), "stray"),
        (("--agent-timeout", "-1"), "--agent-timeout must be > 0 seconds, got -1"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(words, message, capsys):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config("train", [*DATA, *words])
    assert "\n" not in str(caught.value)
    assert "│" not in str(caught.value)
    assert capsys.readouterr().err == ""


def test_missing_data_is_a_mistake():
    with pytest.raises(ConfigError, match="--prompt-data"):
        load_config("train", [])


def test_the_dump_is_a_run_file_that_gives_the_same_configuration(tmp_path):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\nagent_startup_timeout = "None"\nlr = 3e-5\n')
    config = load_config("train", [path, "--agent-env", "A=1", "--eval-prompt-data", "x", "/y.jsonl"])
    again = run_file(tmp_path, dump_config(config))
    assert load_config("train", [again]) == config


def test_secrets_are_left_out_of_the_dump():
    config = load_config("train", [*DATA, "--agent-env", "OPENAI_API_KEY=sk-123", "PLAIN=yes", "db_password=x=y"])
    text = dump_config(config)
    assert "sk-123" not in text
    assert "x=y" not in text
    assert tomllib.loads(text)["agent_env"] == ["OPENAI_API_KEY=<redacted>", "PLAIN=yes", "db_password=<redacted>"]


def test_no_two_rooms_use_one_name():
    names = flag_names(Config)
    assert len(names) == len(set(names)) == len(settings())


def test_help_fits_and_names_every_flag_with_its_default(capsys):
    with pytest.raises(SystemExit) as stop:
        load_config("train", ["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    for name in flag_names(Config):
        assert f"{name} " in text or f"{name}," in text, name
    assert "--run-file" not in text
    squeezed = " ".join(text.replace("│", " ").split())
    assert squeezed.count("(default: ") + squeezed.count("(required)") >= len(flag_names(Config))


def test_help_shows_the_values_of_the_run_file_as_defaults(tmp_path, capsys):
    path = run_file(tmp_path, 'prompt_data = "d.jsonl"\nrollout_batch_size = 77\n')
    with pytest.raises(SystemExit):
        load_config("train", [path, "--help"])
    assert "(default: 77)" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["1", "7", "40"])
def test_help_ends_on_the_narrowest_screen(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as ended:
        load_config("train", ["--help"])
    assert not ended.value.code
    assert "--agent-command" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-rollout", "2", "run.toml"], "run.toml: the run file comes first, before all flags"),
        (["--tensorboard", "true"], "--tensorboard takes no value true; a switch is turned on by its name alone"),
        (["--no-tensorboard=yes"], "--no-tensorboard takes no value yes; a switch"),
        (["--num-rollout", "2", "3"], "3: no flag takes this value"),
        (["--no-model"], "--no-model: unknown flag"),
        (["-x"], "-x: unknown flag"),
        (["--num-rollout", "abc"], "--num-rollout must be a whole number or None, got 'abc'"),
        (["--eval-temperature", "abc"], "--eval-temperature must be a number or None, got 'abc'"),
    ],
)
def test_a_word_that_does_not_fit_is_explained(words, message):
    with pytest.raises(ConfigError) as caught:
        load_config("train", ["--prompt-data", "x.jsonl", *words])
    assert str(caught.value).startswith(message)


def test_a_byte_order_mark_does_no_harm_to_a_run_file(tmp_path):
    (tmp_path / "run.toml").write_bytes(b'\xef\xbb\xbfprompt_data = "x.jsonl"\n')
    assert load_config("train", [str(tmp_path / "run.toml")]).data.prompt_data == str(tmp_path / "x.jsonl")
