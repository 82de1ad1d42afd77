"""Submission with doubles of Slurm's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.batch.errors import BatchError
from torchx_sched_slurm.jobs import SEPARATOR
from torchx_sched_slurm.scheduler import create_scheduler
from torchx_specs import AppDef, Resource, Role

HERE = Path(__file__).parent


class TestSubmit:
    def test_error_has_each_message_of_slurm_once(self, command_double) -> None:  # type: ignore[no-untyped-def]
        errors = HERE / "recorded" / "sbatch-partition-22.05.8.err"
        command_double("sbatch", f"cat '{errors}' '{errors}' >&2; exit 1")
        app = AppDef("x", [Role("r", image="", entrypoint="true")])
        with pytest.raises(BatchError) as caught:
            create_scheduler("x").submit(app, {"partition": "nope"})
        assert str(caught.value) == (
            "sbatch: invalid partition specified: nope;"
            " Batch job submission failed: Invalid partition name specified"
        )

    def test_job_that_slurm_accepted_without_an_answer_is_not_submitted_again(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        """The scheduler finds the accepted job in the queue by the mark in the script's path."""
        monkeypatch.chdir(tmp_path)
        message = "sbatch: error: Socket timed out on send/recv operation"
        calls = command_double(
            "sbatch",
            f'for w in "$@"; do echo "$w" > path; done\necho \'{message}\' >&2; exit 1',
        )
        fields = ["42+0", "PENDING", "None", "", "", "", "", "x", "$(cat path)", ""]
        command_double("squeue", f'echo "{SEPARATOR.join(fields)}"')
        app = AppDef("x", [Role("r", image="", entrypoint="true")])
        scheduler = create_scheduler("x")
        monkeypatch.setattr(scheduler.system, "sleep", lambda seconds: None)
        assert scheduler.submit(app, {"comment": "mine"}) == "42"
        assert len(calls.read_text().splitlines()) == 1

    def test_memory_is_not_requested_from_a_cluster_that_does_not_manage_it(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.chdir(tmp_path)
        errors = HERE / "recorded" / "sbatch-memory-22.05.8.err"
        command_double(
            "sbatch",
            'for w in "$@"; do f=$w; done\n'
            f"""if grep -q -- --mem= "$f"; then cat '{errors}' >&2; exit 1; fi; echo 43""",
        )
        command_double("sinfo", "printf 'main*,1\\nbig,64000\\n'")
        app = AppDef("x", [Role("r", image="", entrypoint="true", resource=Resource(1, 0, 100))])
        scheduler = create_scheduler("x")
        assert scheduler.submit(app, {}) == "43"
        with pytest.raises(BatchError, match="Memory specification"):
            scheduler.submit(app, {"partition": "big"})
