"""The choice of a device: what auto takes, and what an error says there is."""

from __future__ import annotations

import pytest
import torch

from elmo.devices import available_devices, choose_device
from elmo.errors import ConfigError


def has_devices(monkeypatch: pytest.MonkeyPatch, *, cuda: int = 0, mps: bool = False) -> None:
    """Lets torch report these devices, whatever this machine has."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(2, True, "cuda"), (1, False, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_auto_takes_cuda_then_mps_then_cpu(monkeypatch, cuda, mps, best):
    has_devices(monkeypatch, cuda=cuda, mps=mps)
    assert choose_device("auto") == best


def test_cpu_is_always_available():
    assert choose_device("cpu") == choose_device(torch.device("cpu")) == "cpu"
    assert available_devices()[-1] == "cpu"


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7", "mps", "gpu", "xpu", "cuda:x", "", "CPU"])
def test_unavailable_devices_are_refused_with_those_there_are(monkeypatch, name):
    has_devices(monkeypatch)
    with pytest.raises(ConfigError) as error:
        choose_device(name)
    assert error.value.message == f"device is {name!r}; this machine has cpu."


def test_number_beyond_the_gpus_is_refused_with_those_there_are(monkeypatch):
    has_devices(monkeypatch, cuda=2, mps=True)
    with pytest.raises(ConfigError, match=r"device is 'cuda:2'; this machine has cuda:0, cuda:1, mps, cpu\."):
        choose_device("cuda:2")


@pytest.mark.gpu
def test_gpus_are_chosen_by_name_and_number():
    assert choose_device("auto") == choose_device("cuda") == "cuda"
    assert choose_device("cuda:0") == "cuda:0"
