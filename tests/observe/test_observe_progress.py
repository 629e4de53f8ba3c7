import io

from rich.console import Console

from relaxforge.observe.clock import Stopwatch
from relaxforge.observe.progress import BarProgress, LineProgress


def test_without_a_terminal_each_quarter_and_each_phase_is_a_line(capsys):
    now = [0.0]
    progress = LineProgress(clock=lambda: now[0])
    progress.begin("step 1/2", sessions=8)
    for _ in range(8):
        progress.prepared()
    for _ in range(8):
        now[0] += 1.0
        progress.scored()
    progress.phase("train")
    progress.phase("train")
    progress.end()
    assert capsys.readouterr().err.splitlines() == [
        "step 1/2 rollout: prepared 8/8 scored 2/8 (2.0 s)",
        "step 1/2 rollout: prepared 8/8 scored 4/8 (4.0 s)",
        "step 1/2 rollout: prepared 8/8 scored 6/8 (6.0 s)",
        "step 1/2 rollout: prepared 8/8 scored 8/8 (8.0 s)",
        "step 1/2 train: prepared 8/8 scored 8/8 (8.0 s)",
    ]


def test_a_terminal_gets_one_bar_per_step_that_counts_both():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    progress = BarProgress(console)
    progress.begin("step 1/2", sessions=4)
    progress.prepared(4)
    progress.scored(3)
    progress.phase("train")
    progress.end()
    progress.begin("step 2/2", sessions=4)
    progress.end()
    text = console.file.getvalue()
    assert "prepared 4/4  scored 3/4" in text
    assert "step 2/2" in text


def test_reports_outside_a_step_are_ignored():
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True))
    progress.prepared()
    progress.scored()
    progress.phase("train")
    progress.end()


def test_phases_add_up():
    times = iter([0.0, 2.0, 10.0, 11.0, 20.0, 23.0])
    watch = Stopwatch(lambda: next(times))
    with watch.phase("rollout"):
        pass
    with watch.phase("train"):
        pass
    with watch.phase("rollout"):
        pass
    assert watch.seconds == {"rollout": 5.0, "train": 1.0}
