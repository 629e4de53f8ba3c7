"""``relaxforge export`` against a workspace that runs: what arrives is what the workspace has, or nothing."""

import json
import os
import stat
from pathlib import Path

import pytest

from relaxforge.cli.main import main
from relaxforge.export.fetch import fetch

KINDS = {"all": 3, "successful": 1, "failed": 1, "recovery": 1, "preference": 1}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def evidence(workspace):
    return workspace.evidence(workspace.a, [0.15, 1.0, None])


@pytest.fixture
def token(workspace, tmp_path):
    file = tmp_path / "token"
    file.write_text(workspace.token(workspace.a, "read", "export").headers["Authorization"].removeprefix("Bearer "))
    file.chmod(0o600)
    return file


@pytest.fixture
def export(workspace, token, capfd):
    """Runs the command; its exit code, what it said and what it complained about."""

    def run(*flags):
        code = main(["export", "--url", workspace.url, "--token-file", str(token), *flags])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def rows(name):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


@pytest.mark.parametrize(("kind", "count"), KINDS.items())
def test_each_kind_is_written_under_its_name(export, evidence, kind, count):
    code, said, _ = export("--kind", kind)
    name = "agentforge-preferences.jsonl" if kind == "preference" else f"agentforge-rollouts-{kind}.jsonl"
    assert (code, [path.name for path in Path().iterdir()]) == (0, [name])
    assert len(rows(name)) == count
    assert said.startswith(f"{name}: {count} lines, {Path(name).stat().st_size} bytes, SHA-256 compared; ")
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600


def test_the_failed_line_is_the_one_of_the_source(export, evidence):
    assert export("--kind", "failed", "-o", "failed.jsonl")[0] == 0
    (row,) = rows("failed.jsonl")
    assert (row["privacyClass"], row["format"], row["reward"]) == ("PRIVATE", "atif-shaped", 0.15)
    assert row["evaluationRunId"] == str(evidence.run_id)
    assert row["trajectory"][0] == {"step": 1, "tool": "mcp", "command": "initialize", "observation": "shelf 0"}


def test_filters_and_formats_are_passed_on(export, evidence):
    version = str(evidence.version_id)
    assert export("--environment-version", version, "--since", "2020-01-01T00:00:00Z", "--format", "atif")[0] == 0
    documents = rows("agentforge-rollouts-all.atif.jsonl")
    assert {document["schema_version"] for document in documents} == {"ATIF-v1.7"}
    assert {document["extra"]["environmentVersionId"] for document in documents} == {version}
    code, said, _ = export("--until", "2020-01-01T00:00:00Z", "-o", "none.jsonl")
    assert (code, Path("none.jsonl").read_text()) == (0, "")
    assert "0 lines, 0 bytes" in said


def test_all_follows_the_cursors_and_without_it_the_rest_is_announced(export, workspace, evidence, monkeypatch):
    def two_at_a_time(client, query, *rest):
        return fetch(client, {**query, "limit": "2"}, *rest)

    monkeypatch.setattr("relaxforge.cli.export.fetch", two_at_a_time)
    code, said, _ = export()
    assert (code, len(rows("agentforge-rollouts-all.jsonl"))) == (0, 2)
    assert "3 rollouts match" in said
    assert "--all fetches the rest" in said
    code, said, _ = export("--all")
    assert (code, len({row["rolloutId"] for row in rows("agentforge-rollouts-all.jsonl")})) == (0, 3)
    assert "--all" not in said


def test_a_terminal_sees_a_bar_and_nobody_else_does(export, evidence, monkeypatch):
    assert export()[2] == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, said, bar = export()
    assert "agentforge-rollouts-all.jsonl" in bar
    assert "━" in bar
    assert said.startswith("agentforge-rollouts-all.jsonl: 3 lines")


def test_columns_are_written_beside_the_rows_on_request(export, evidence):
    assert export("--features", "features.json")[0] == 0
    assert json.loads(Path("features.json").read_text())["reward"] == {"dtype": "float64", "_type": "Value"}


def test_what_cannot_be_told_is_counted(export, evidence):
    code, said, _ = export("--format", "trl-sft")
    assert code == 0
    assert "0 lines" in said
    assert "3 of them cannot be told in this format and are left out" in said


def test_a_refusal_is_one_line_and_leaves_the_old_file_alone(export, evidence, token):
    Path("kept.jsonl").write_text("old")
    for flags, words in [
        (["--kind", "preference", "--format", "atif"], "format atif does not go with kind preference"),
        (["--environment", "nonsense"], "the workspace refused (4"),
        (["--since", "yesterday"], "the workspace refused (4"),
    ]:
        code, said, complaint = export("-o", "kept.jsonl", *flags)
        assert (code, said) == (2, "")
        assert words in complaint
        assert complaint.count("\n") == 1
    token.write_text("rf_wrong")
    code, _, complaint = export("-o", "kept.jsonl")
    assert code == 2
    assert "the workspace refused (401)" in complaint
    assert [path.name for path in Path().iterdir()] == ["kept.jsonl"]
    assert Path("kept.jsonl").read_text() == "old"


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(export, evidence):
    os.mkfifo("pipe")
    code, _, error = export("--output", "pipe")
    assert code == 2
    assert "pipe cannot be written: it is no file" in error
    assert Path("pipe").is_fifo()
    assert [path.name for path in Path().iterdir()] == ["pipe"]


def test_a_token_file_that_others_can_read_is_refused_and_the_variable_works(export, evidence, token, monkeypatch):
    token.chmod(0o644)
    code, _, complaint = export()
    assert code == 2
    assert "can be read by other users; run: chmod 600" in complaint
    monkeypatch.setenv("RELAXFORGE_TOKEN", token.read_text())
    assert export("--token-file", "None")[0] == 0


def test_a_workspace_that_is_not_there_is_said(token, capfd):
    code = main(["export", "--url", "http://127.0.0.1:9", "--token-file", str(token)])
    assert code == 1
    assert "http://127.0.0.1:9 did not send all of the export" in capfd.readouterr().err
    assert list(Path().iterdir()) == []


def test_another_organizations_rollouts_are_not_in_the_file(export, workspace, evidence):
    other = workspace.evidence(workspace.b, [0.5])
    assert export()[0] == 0
    assert str(other.run_id) not in Path("agentforge-rollouts-all.jsonl").read_text()
