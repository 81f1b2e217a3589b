"""Settings for all tests: two torch threads, and hypothesis without a clock (and without randomness in CI)."""

from __future__ import annotations

import os
import signal

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in the background of a shell; tests send SIGINT to child processes
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis

import elmo  # noqa: F401  # before torch, so that waiting threads do not spin

import torch  # isort: skip

torch.set_num_threads(2)
without_clock = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("local", **without_clock)
hypothesis.settings.register_profile("ci", **without_clock, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
