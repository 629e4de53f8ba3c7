import os
import subprocess
import sys
import time

import pytest

from relaxforge.cli import main as cli
from relaxforge.core.errors import CircuitOpen, ConfigError, StorageError


def relaxforge(*words, **env):
    return subprocess.run(
        [sys.executable, "-m", "relaxforge.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


def ends_with(monkeypatch, error):
    """The exit code of a command that raises ``error``."""

    def command(_):
        raise error

    monkeypatch.setattr(cli, "_command", lambda _: command)
    return cli.main(["anything"])


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("c"), 2), (CircuitOpen("o"), 3), (StorageError("s"), 1), (KeyboardInterrupt(), 130)],
)
def test_each_kind_of_end_has_its_exit_code(monkeypatch, error, code):
    assert ends_with(monkeypatch, error) == code


def test_an_error_is_one_line(monkeypatch, capsys):
    ends_with(monkeypatch, ConfigError("--lr must be > 0, got -1"))
    assert capsys.readouterr().err == "error: --lr must be > 0, got -1\n"


def test_a_bug_is_named_and_says_how_to_see_more(monkeypatch, capsys):
    assert ends_with(monkeypatch, ValueError("odd")) == 1
    assert "error: ValueError: odd (this is a bug in relaxforge; RELAXFORGE_DEBUG=1" in capsys.readouterr().err


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("RELAXFORGE_DEBUG", "1")
    with pytest.raises(ConfigError):
        ends_with(monkeypatch, ConfigError("c"))


def test_without_a_command_the_usage_is_shown():
    ran = relaxforge()
    assert (ran.returncode, ran.stdout.startswith("usage: relaxforge COMMAND")) == (2, True)
    assert relaxforge("--help").returncode == 0


def test_the_version_is_that_of_the_package():
    ran = relaxforge("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("relaxforge ")


def test_an_unknown_command_lists_the_known_ones():
    ran = relaxforge("trian")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: unknown command 'trian'; there are train, rollout, doctor, init, show, ")


def test_every_command_is_in_the_usage_and_has_a_help_of_its_own():
    from relaxforge.cli.main import COMMANDS, CONFIGURED, USAGE

    for name in (*CONFIGURED, *COMMANDS):
        assert f"\n  {name} " in USAGE
    assert max(len(line) for line in USAGE.splitlines()) <= 110
    for name in COMMANDS:
        ran = relaxforge(name, "--help")
        assert (ran.returncode, ran.stderr) == (0, ""), name
        assert ran.stdout.startswith(f"usage: relaxforge {name}")


def test_a_mistake_in_a_run_file_never_shows_a_traceback(tmp_path):
    path = tmp_path / "RUN.toml"
    path.write_text("rollout_batch_sise = 3\n")
    for command in ("train", "rollout", "doctor"):
        ran = relaxforge(command, path)
        assert ran.returncode == 2
        assert ran.stderr.startswith(f"error: {path}: unknown setting rollout_batch_sise; did you mean")
        assert ran.stderr.count("\n") == 1


def test_help_is_quick_and_loads_nothing_heavy():
    program = "import sys; from relaxforge.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    start = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert time.monotonic() - start < 5
    for heavy in ("torch", "transformers", "tyro", "rich", "starlette"):
        assert f"'{heavy}'" not in ran.stdout


def test_a_reader_who_leaves_early_is_no_error(tmp_path):
    ran = subprocess.run(
        f"{sys.executable} -m relaxforge.cli.main train --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""


def test_a_folder_that_was_deleted_under_us_is_said_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["doctor", "--prompt-data", "x.jsonl"]) == 2
    assert "has been deleted" in capsys.readouterr().err
