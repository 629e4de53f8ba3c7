import io
import json

from rich.console import Console

from relaxforge.observe.report import Curve, plot_lines, print_report, read_metrics


def write_metrics(run_dir, *rows):
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def console():
    return Console(file=io.StringIO(), width=100)


def run(run_dir):
    write_metrics(
        run_dir,
        {"kind": "eval", "rollout_id": 0, "eval/sums/accuracy": 0.125},
        {"kind": "step", "rollout_id": 0, "rollout/raw_reward": 0.25, "train/grad_norm": None},
        {"kind": "step", "rollout_id": 1, "rollout/raw_reward": 0.5, "train/grad_norm": None},
        {"kind": "eval", "rollout_id": 2, "eval/sums/accuracy": 0.75},
    )


def test_table_and_plot_show_training_reward_and_held_out_accuracy(tmp_path):
    run(tmp_path)
    out = console()
    print_report(tmp_path, out)
    text = out.file.getvalue()
    header = next(line for line in text.splitlines() if "reward" in line)
    assert "sums" in header
    assert "grad" not in header, "a column without any value is left out"
    assert [line for line in text.splitlines() if "0.125" in line and "0.25" in line], "the evaluation before step 0"
    assert "● training reward" in text
    assert "○ held-out accuracy: sums" in text


def test_the_plot_is_also_a_png(tmp_path):
    run(tmp_path)
    print_report(tmp_path, console())
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_metrics_has_no_report(tmp_path):
    out = console()
    print_report(tmp_path, out)
    assert out.file.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_repeated_step_counts_once_with_its_last_attempt(tmp_path):
    write_metrics(
        tmp_path,
        {"kind": "step", "rollout_id": 0, "rollout/raw_reward": 0.1},
        {"kind": "step", "rollout_id": 1, "rollout/raw_reward": 0.2},
        {"kind": "step", "rollout_id": 1, "rollout/raw_reward": 0.3},
    )
    assert [row["rollout/raw_reward"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0.1, 0.3]


def test_a_rising_curve_rises_in_the_plot():
    curve = Curve("c", "*", tuple((step, step / 10) for step in range(11)))
    lines = plot_lines([curve], width=21, height=5)
    columns = [line.index("*") for line in lines[:5]]
    assert columns == sorted(columns, reverse=True)
    assert lines[0].startswith("  1.00 |")
    assert lines[4].startswith("  0.00 |")


def test_values_outside_zero_and_one_widen_the_plot():
    lines = plot_lines([Curve("c", "*", ((0, -2.0), (1, 3.0)))], width=10, height=3)
    assert lines[0] == "  3.00 |         *"
    assert lines[2] == " -2.00 |*         "


def test_half_a_line_that_a_killed_run_left_does_not_count(tmp_path):
    run(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "rollo')
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 4


def test_a_plot_that_cannot_be_written_costs_no_more_than_the_plot(tmp_path, capsys):
    run(tmp_path)
    (tmp_path / "report.png").symlink_to("/dev/full")
    out = console()
    print_report(tmp_path, out)
    assert "training reward" in out.file.getvalue()
    assert "report.png cannot be written: No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "report.png").is_symlink()


def test_the_narrowest_screen_gets_a_plot(tmp_path):
    run(tmp_path)
    out = Console(file=io.StringIO(), width=1)
    print_report(tmp_path, out)
    assert "●" in out.file.getvalue()
