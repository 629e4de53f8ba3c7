"""The trainer as a process: answers, errors under their own names, and what main learns when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from relaxforge.core.errors import ConfigError, StorageError, TrainError
from relaxforge.core.samples import TrainBatch
from relaxforge.train.client import TrainerProcess
from relaxforge.train.config import TrainConfig

CONFIG = TrainConfig(lr=1e-3, train_device="cpu", train_dtype="float32")


def test_a_trainer_process_trains_publishes_saves_and_resumes(tiny_model: Path, make, tmp_path: Path) -> None:
    asyncio.run(whole_life(tiny_model, make.batch(), tmp_path))


async def whole_life(tiny_model: Path, batch: TrainBatch, tmp_path: Path) -> None:
    trainer = await TrainerProcess.start(str(tiny_model), CONFIG, log_path=str(tmp_path / "trainer.log"))
    try:
        assert trainer.description["dtype"] == "float32"
        report = await trainer.train(batch)
        assert (report.rollout_id, report.weight_version) == (batch.rollout_id, 1)
        update = await trainer.publish(str(tmp_path / "weights"))
        assert update.version == 1
        assert (Path(update.path) / "model.safetensors").is_file()
        await trainer.save(str(tmp_path / "checkpoint"))
        (tmp_path / "file").write_text("no folder")
        with pytest.raises(StorageError, match=r"checkpoint .*file cannot be written"):
            await trainer.save(str(tmp_path / "file"))
    finally:
        await trainer.close()

    resumed = await TrainerProcess.start(
        str(tiny_model), CONFIG, log_path=str(tmp_path / "trainer.log"), resume_from=str(tmp_path / "checkpoint")
    )
    try:
        assert resumed.description["weight_version"] == 1
        os.kill(resumed.pid, signal.SIGKILL)
        with pytest.raises(
            TrainError, match=r"ended with signal 9 .*out of memory\?\) during train; its log is .*trainer\.log"
        ):
            await resumed.train(batch)
    finally:
        await resumed.close()


def test_a_missing_model_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^/.*: no Hugging Face model folder there"):
        asyncio.run(TrainerProcess.start(str(tmp_path), CONFIG, log_path=str(tmp_path / "trainer.log")))
