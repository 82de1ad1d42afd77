"""Options become directives; invalid ones are errors."""

from __future__ import annotations

import re

import pytest
from slurm_requests import directives, role, script_text

from torchx_sched_slurm.scheduler import (
    SlurmScheduler,
)
from torchx_specs import AppDef, Resource, Role


class TestDirectives:
    @pytest.mark.parametrize(
        ("cfg", "wanted"),
        [
            ({"constraint": "a&b"}, {"--constraint": '"a&b"'}),
            ({"exclusive": True}, {"--exclusive": ""}),
            ({"signal": "B:USR1@60"}, {"--signal": "B:USR1@60"}),
            ({"extra": ["nice=7", "--begin=now+1hour", "hold"]}, {"--nice": "7", "--hold": ""}),
            ({"nodelist": "n[1-4]"}, {"--nodelist": '"n[1-4]"'}),
        ],
    )
    def test_option_becomes_a_directive(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], wanted: dict[str, str]
    ) -> None:
        [found] = directives(script_text(scheduler, role(), **cfg))
        assert found.items() >= wanted.items()

    def test_options_of_the_job_are_on_the_command_line(self, scheduler: SlurmScheduler) -> None:
        cfg = {"account": "a", "comment": "b c", "mail-user": "me", "mail-type": "END"}
        info = scheduler.submit_dryrun(AppDef("x", [role()]), cfg)
        assert info.request.cmd == [
            *("sbatch", "--parsable", "--account=a"),
            *("--comment=b c", "--mail-type=END", "--mail-user=me"),
        ]
        assert str(info).startswith("sbatch --parsable --account=a")

    @pytest.mark.parametrize(
        ("cfg", "wanted"),
        [
            ({}, {"--gpus-per-node": "8"}),
            ({"gpu_type": "a100"}, {"--gpus-per-node": "a100:8"}),
            ({"gpu_option": "gres", "gpu_type": "h100"}, {"--gres": "gpu:h100:8"}),
            ({"gpu_option": "gpus-per-task"}, {"--gpus-per-task": "8"}),
            ({"replicas_per_node": 2}, {"--gpus-per-node": "16"}),
        ],
    )
    def test_gpus_are_requested(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], wanted: dict[str, str]
    ) -> None:
        job = role(resource=Resource(cpu=1, gpu=8, memMB=1))
        [found] = directives(script_text(scheduler, job, **cfg))
        assert found.items() >= wanted.items()

    @pytest.mark.parametrize(
        "time", ["90", "90:30", "1:30:00", "2-12", "2-12:30", "2-12:30:15", "UNLIMITED"]
    )
    def test_valid_time_limits(self, scheduler: SlurmScheduler, time: str) -> None:
        assert directives(script_text(scheduler, role(), time=time))[0]["--time"] == time

    @pytest.mark.parametrize(("time", "minutes"), [("2h", "120"), ("90s", "2"), ("1d12h", "2160")])
    def test_time_limit_with_a_unit(
        self, scheduler: SlurmScheduler, time: str, minutes: str
    ) -> None:
        assert directives(script_text(scheduler, role(), time=time))[0]["--time"] == minutes

    # Slurm checks the name of the signal: it knows more signals than this option does.
    @pytest.mark.parametrize("signal", ["USR1", "10", "B:TERM@60", "RB:usr2@300", "please"])
    def test_valid_signals(self, scheduler: SlurmScheduler, signal: str) -> None:
        assert directives(script_text(scheduler, role(), signal=signal))[0]["--signal"] == signal

    def test_nomem_requests_no_memory(self, scheduler: SlurmScheduler) -> None:
        assert "--mem" not in directives(script_text(scheduler, role(), nomem=True))[0]


class TestErrors:
    @pytest.mark.parametrize(
        ("cfg", "message"),
        [
            ({"time": "soon"}, "option time: 'soon' is not a time limit"),
            ({"time": "1:2:3:4"}, "option time"),
            ({"partition": "a\nb"}, "control character"),
            ({"gpu_option": "gpu-per-node"}, "did you mean 'gpus-per-node'"),
            ({"replicas_per_node": 0}, "must be 1 or more"),
            ({"extra": ["nodes=3"]}, "use Role.num_replicas"),
            ({"extra": ["#SBATCH x"]}, "use name or name=value"),
            ({"container": "docker"}, "not one of pyxis, apptainer"),
            ({"signal": "USR1@soon"}, "option signal"),
        ],
    )
    def test_invalid_option_is_an_error(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            script_text(scheduler, role(), **cfg)
        assert "\n" not in str(caught.value)

    def test_error_lists_all_problems(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match=r"no entrypoint.*option time") as caught:
            script_text(scheduler, Role("x", image=""), time="never")
        assert len(caught.value.problems) == 2  # type: ignore[attr-defined]
