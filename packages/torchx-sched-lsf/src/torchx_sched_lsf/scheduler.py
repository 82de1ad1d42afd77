"""The scheduler class for LSF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx_kit.batch.scheduler import BatchScheduler
from torchx_sched_lsf.options import LsfOpts, option_problems
from torchx_sched_lsf.request import LsfRequest
from torchx_sched_lsf.system import Lsf
from torchx_specs.model.app import AppDef, AppDryRunInfo, Role
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import GpuCounts
from torchx_specs.schedulers.features import No


class LsfScheduler(BatchScheduler[LsfOpts]):
    """A scheduler that runs apps as LSF jobs, with LSF's own commands.

    Each replica is a separate job, named ``<app id>-<role>-<replica>``. When a replica has failed
    and has no retries left, the other jobs of the app are killed.

    Docker or Apptainer runs the role's image. A role without an image, or with a directory as its
    image, runs without a container. The logs are in ``jobdir`` (default: the current directory).
    The app's record, in which the replicas report how they ended, is in the same directory. The
    arguments of the constructor are those of :class:`~torchx_kit.batch.scheduler.BatchScheduler`.
    """

    system: Lsf
    system_type = Lsf
    request_type = LsfRequest
    features = replace(
        BatchScheduler.features,
        dependencies=True,
        gpus=True,
        exec=No("the command battach of LSF only opens an interactive shell"),
    )

    def gpus(self, cfg: Mapping[str, CfgVal] | None = None) -> GpuCounts:
        """Return how many GPUs of the cluster are free, in use and unavailable.

        Raises:
            BatchError: The hosts cannot be queried; versions before 10.1.0.6 do not count GPUs.
        """
        argv = ("bhosts", "-noheader", "-o", "status ngpus ngpus_alloc")
        rows = (line.split() for line in self.system.run_idempotent(*argv).splitlines())
        return GpuCounts.of_nodes(
            # A host whose slots are all in use has the status closed_Full or closed_Busy.
            (_number(row[1]), _number(row[2]), row[0] in ("ok", "closed_Full", "closed_Busy"))
            for row in rows
            if len(row) == 3
        )

    def _request_problems(self, app: AppDef, cfg: LsfOpts) -> Iterable[str]:
        return option_problems(cfg)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plan the copy of the workspace to ``jobdir``."""
        super().caching_build_workspace_and_update_role(role, _with_job_dir(cfg), build_cache)

    def build_pending(self, job: Any, cfg: Mapping[str, CfgVal] | None = None) -> dict[str, str]:
        """Build the workspaces that a dry run planned."""
        if cfg is None and isinstance(job, AppDryRunInfo):
            cfg = job.cfg
        return super().build_pending(job, _with_job_dir(cfg or {}))

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Add a dependency on another app to the options, and return the new options.

        Return None if that app is not in the index, is an array as a whole, or is not completely
        submitted.
        """
        entry = self._entry(app_id)
        if entry is None or entry.names or not (entry.submitted and entry.complete and entry.jobs):
            return None
        ids = [
            self.system.job_of_replica(entry, number, k)
            for number, role in enumerate(entry.roles)
            for k in range(role.num_replicas)
        ]
        name = "done" if outcome == "ok" else "ended"
        condition = " && ".join(f"{name}({job_id})" for job_id in ids)
        if outcome == "failed":
            failed = " || ".join(f"exit({job_id})" for job_id in ids)
            condition = f"{condition} && ({failed})"
        given = cfg.get("dependency")
        return {**cfg, "dependency": f"({given}) && {condition}" if given else condition}


def create_scheduler(session_name: str, **kwargs: Any) -> LsfScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    return LsfScheduler.create(session_name, **kwargs)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _with_job_dir(cfg: Mapping[str, CfgVal]) -> Mapping[str, CfgVal]:
    """Copy the option ``jobdir`` to ``job_dir``, the name that the workspace builder reads."""
    jobdir = cfg.get("jobdir")
    return {**cfg, "job_dir": jobdir} if jobdir else cfg
