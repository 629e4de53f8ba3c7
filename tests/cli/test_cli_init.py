import pytest

from relaxforge.cli.config import load_config
from relaxforge.cli.init import FILES, init
from relaxforge.core.errors import ConfigError
from relaxforge.tasks.dataset import open_held_out, open_training


def test_init_writes_a_configuration_that_loads(tmp_path, capsys):
    folder = tmp_path / "my agent"
    assert init([str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    config = load_config("train", [str(folder / "run.toml"), "--engine", "scripted", "--model", "tiny"])
    assert config.agents.agent_cwd == str(folder)
    assert len(open_training(config.data)) == 8
    assert [len(dataset) for dataset in open_held_out(config.data).values()] == [4]
    assert f"relaxforge doctor '{folder / 'run.toml'}'\n" in capsys.readouterr().out


def test_init_overwrites_nothing(tmp_path):
    (tmp_path / "agent.py").write_text("mine")
    with pytest.raises(ConfigError, match=r"agent\.py exists already; name another folder"):
        init([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["agent.py"]


def test_init_into_a_place_that_cannot_be_written_is_a_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        init([str(tmp_path / "file" / "folder")])
