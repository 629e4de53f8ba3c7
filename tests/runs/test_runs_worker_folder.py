"""The folder of a worker process: its own, also when many start at once beside what dead ones left."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from relaxforge.runs.worker import own_folder

WORKERS, ROUNDS = 6, 30


def test_many_workers_that_start_at_once_each_have_their_folder_and_tidy_up(tmp_path):
    for number in range(ROUNDS):
        work_dir = tmp_path / str(number)
        for left in range(WORKERS):
            (work_dir / f"left{left}").mkdir(parents=True)
            (work_dir / f"left{left}" / ".lock").touch()
        together = threading.Barrier(WORKERS, timeout=20)

        def work(name, work_dir=work_dir, together=together):
            together.wait()
            with own_folder(work_dir, name) as folder:
                together.wait()
                assert (folder / ".lock").exists(), "taken away by another worker"

        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(work, map(str, range(WORKERS))))
        assert list(work_dir.iterdir()) == []
