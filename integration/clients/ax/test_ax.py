"""Tests with Ax 1.3.1: the tests of its TorchX runner and metric pass, and an experiment runs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_torchx_tests_of_ax_pass(call: Call) -> None:
    tests = Path(str(importlib.util.find_spec("ax").origin)).parent / "runners/tests/test_torchx.py"
    # The excluded test takes as long as all others together, because Ax fits models in it.
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", tests.parent, "-k", "not in_batches")
    done = call("pytest", *options, tests, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


EXPERIMENT = """
import json, sys, time
from ax.core import (
    Arm, Experiment, Objective, OptimizationConfig, ParameterType, RangeParameter, SearchSpace,
)
from ax.core.base_trial import TrialStatus
from ax.metrics.torchx import TorchXMetric
from ax.runners.torchx import TorchXRunner
from torchx.components import utils

metric = TorchXMetric(name="booth_eval")
parameter = lambda name: RangeParameter(
    name=name, lower=-10.0, upper=10.0, parameter_type=ParameterType.FLOAT
)
experiment = Experiment(
    name="booth",
    search_space=SearchSpace(parameters=[parameter("x1"), parameter("x2")]),
    optimization_config=OptimizationConfig(objective=Objective(metric=metric, minimize=True)),
    runner=TorchXRunner(tracker_base=sys.argv[1], component=utils.booth, orchestrator="local_cwd"),
)
points = [{"x1": 1.0, "x2": 3.0}, {"x1": 0.0, "x2": 0.0}]
for point in points:
    experiment.new_trial().add_arm(Arm(parameters=point)).run()
while True:
    states = experiment.runner.poll_trial_status(experiment.trials.values())
    if TrialStatus.RUNNING not in states and TrialStatus.STAGED not in states:
        break
    time.sleep(0.1)
trials = experiment.trials.values()
print(json.dumps({
    "states": {state.name: sorted(indices) for state, indices in states.items()},
    "means": [metric.fetch_trial_data(t).unwrap().df["mean"].item() for t in trials],
}))
"""


def test_an_experiment_runs_on_local_cwd(script: Callable[..., str], tmp_path: Path) -> None:
    shown = json.loads(script(EXPERIMENT, tmp_path / "results").splitlines()[-1])
    assert shown["states"] == {"COMPLETED": [0, 1]}
    # Booth's function has its minimum 0 at (1, 3).
    assert shown["means"] == [0.0, 74.0]
