import pytest
import torch
from engine_parts import local_rig, scripted_rig, started

from relaxforge.models.resolve import resolve

# Models this small gain nothing from a second thread, and lose much while other tests use the cores.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return resolve("tiny", tmp_path_factory.mktemp("models")).path


@pytest.fixture(scope="session")
def scripted(tiny_folder, tmp_path_factory):
    yield from started(scripted_rig(tiny_folder, tmp_path_factory.mktemp("scripted")))


@pytest.fixture(scope="session")
def local(tiny_folder, tmp_path_factory):
    """One local engine for all tests that leave it as they found it: starting costs seconds."""
    yield from started(local_rig(tiny_folder, tmp_path_factory.mktemp("local")))


@pytest.fixture(params=["scripted", "local"])
def rig(request):
    return request.getfixturevalue(request.param)
