"""Submits functions as jobs."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from torchx_functions.app import JobParameters, job_name, make_app, write_app
from torchx_functions.checkpoint import checkpoint_method
from torchx_functions.errors import PickleError
from torchx_functions.folders import open_call, open_group, open_root
from torchx_functions.group import JobGroup
from torchx_functions.host_folder import MODULES, ROOT, modules, prepare_root, read_host_folder
from torchx_functions.job import Job, default_runner
from torchx_functions.outcome import Versions
from torchx_functions.submissions import Submission
from torchx_kit.home import TORCHX_HOME
from torchx_kit.names.ids import random_id
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import split_host
from torchx_specs.errors import ConfigError, RequestError, TorchXError, nearest, one_line

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal

P = ParamSpec("P")
R = TypeVar("R")

_NAMES = tuple(field.name for field in fields(JobParameters))
# Parameters of submitit, and the fields of JobParameters with the same meaning.
_SUBMITIT_NAMES = {
    "cpus_per_task": "cpus",
    "gpus_per_node": "gpus",
    "slurm_gpus_per_node": "gpus",
    "slurm_cpus_per_task": "cpus",
    "slurm_array_parallelism": "max_parallel",
    "slurm_job_name": "name",
    "slurm_max_num_timeout": "retries",
}
# The options that functions with checkpoints need, where a scheduler has them: another attempt
# after a stop, and a signal before the time limit, as long before as submitit's.
_CHECKPOINT_OPTIONS: dict[str, CfgVal] = {"requeue": True, "signal": "USR1@90"}


class Executor:
    """Runs functions as jobs of one scheduler.

    >>> from torchx_functions import Executor
    >>> executor = Executor(folder="/shared/me/jobs", scheduler="slurm")  # doctest: +SKIP
    >>> executor.update_parameters(cpus_per_task=4, mem_gb=8, timeout_min=60)  # doctest: +SKIP
    >>> executor.submit(pow, 2, 10).result()  # doctest: +SKIP
    1024

    Args:
        folder: The folder for functions and results; the default is ``$TORCHX_HOME/functions``.
            The folder must have the same path in the jobs. If it is missing, it is created with
            mode 0700. If the scheduler has a host, as ``slurm@login1`` does, the folder is on the
            host; the default is ``~/.torchx/functions`` there.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler, and the host whose commands and files it uses.
        runner: Submits the jobs; the default is a runner of this process.
        parameters: See :meth:`update_parameters`.

    Attributes:
        folder: The folder for functions and results; on this machine, its absolute path.

    Raises:
        RequestError: A parameter is unknown or has a wrong value.
        ConfigError: The folder cannot be created.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        scheduler: str = "local_cwd",
        cfg: Mapping[str, CfgVal] | None = None,
        *,
        runner: Runner | None = None,
        **parameters: Any,
    ) -> None:
        self._scheduler, options = config.take_host(scheduler, cfg or {})
        self._name_of_scheduler, self._host = split_host(self._scheduler)
        if self._host:
            self.folder = os.fspath(folder or ROOT)
        else:
            self.folder = _made_folder(folder or TORCHX_HOME("functions"))
        self._cfg: dict[str, CfgVal] = dict(options)
        self._given_runner = runner
        self.parameters = JobParameters()
        self.update_parameters(**parameters)

    @property
    def _runner(self) -> Runner:
        return self._given_runner or default_runner()

    def update_parameters(self, **parameters: Any) -> None:
        """Change the parameters of the jobs that are submitted from now on.

        In addition to the fields of :class:`JobParameters`, these names of submitit are valid:
        ``cpus_per_task``, ``gpus_per_node``, ``mem_gb``, ``timeout_min`` (on Slurm only),
        ``slurm_array_parallelism``, ``slurm_cpus_per_task``, ``slurm_gpus_per_node``,
        ``slurm_job_name``, ``slurm_max_num_timeout`` and ``slurm_signal_delay_s``. Every other
        ``slurm_OPTION`` is an option of the scheduler ``slurm``, and ignored with another
        scheduler. ``nodes`` and ``tasks_per_node`` must be 1.

        Raises:
            RequestError: A parameter is unknown or has a wrong value; the message has all problems.
        """
        problems: list[str] = []
        values: dict[str, Any] = {}
        cfg: dict[str, CfgVal] = {}
        for name, value in parameters.items():
            if name in _NAMES or name in _SUBMITIT_NAMES:
                values[_SUBMITIT_NAMES.get(name, name)] = value
            elif name == "mem_gb":
                is_number = isinstance(value, (int, float))
                values["mem_mb"] = int(value * 1024) if is_number else value
            elif name in ("nodes", "tasks_per_node"):
                if value != 1:
                    problems.append(f"{name} is {value!r}; a function runs in 1 process")
            elif name == "timeout_min":
                if self._name_of_scheduler == "slurm":
                    cfg["time"] = str(value)
                else:
                    problems.append(
                        f"timeout_min is for the scheduler slurm; {self._scheduler} may have an"
                        " option for it: use cfg="
                    )
            elif name.startswith("slurm_") and self._name_of_scheduler != "slurm":
                continue
            elif name == "slurm_signal_delay_s":
                cfg["signal"] = f"USR1@{value}"
            elif name.startswith("slurm_"):
                cfg[name.removeprefix("slurm_")] = value
            else:
                known = (*_NAMES, *_SUBMITIT_NAMES, "mem_gb", "timeout_min")
                problems.append(
                    f"unknown parameter '{name}';{nearest(name, known)} valid are"
                    f" {', '.join((*_NAMES, 'mem_gb', 'timeout_min'))}"
                )
        problems += _value_problems(values)
        if problems:
            raise RequestError(problems)
        for name, value in values.items():
            setattr(self.parameters, name, value)
        self._cfg.update(cfg)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Run ``fn(*args, **kwargs)`` as a job.

        The job continues when this process ends, and :meth:`Job.from_handle` returns it in another
        process.

        Raises:
            PickleError: The function or an argument cannot be pickled.
            RequestError: ``fn`` cannot be called, the scheduler refuses the request, or its
                containers cannot read the folder.
            BackendError: The scheduler did not answer; it may have accepted the job nevertheless.
        """
        runner = self._runner
        cfg = self._options(fn)
        can_detach = runner.scheduler_run_opts(self._scheduler).get("detach") is not None
        if can_detach and runner.lives_in_client(self._scheduler, cfg):
            cfg.setdefault("detach", True)
        folder = self._write(fn, [(args, kwargs)])
        with _removed_on_error(folder):
            name = f"{self._name(fn)}-{os.path.basename(folder)}"
            app = self._app(name, self.parameters, folder)
            info = runner.dryrun(app, self._scheduler, cfg)
            submission = Submission(folder, name=name, scheduler=self._scheduler, cfg=cfg)
            submission.write()
        # The folder and the record stay after an error of schedule: the job may have been submitted
        # nevertheless.
        handle = runner.schedule(info)
        submission.settle(handle)
        group: JobGroup[R] = JobGroup(folder, runner, handle, 1, self.parameters.retries)
        return group[0]

    def map(self, fn: Callable[..., R], /, *iterables: Iterable[Any]) -> JobGroup[R]:
        """Run ``fn(*elements)`` for the elements of the iterables, each call as a job.

        The jobs are elements of a sweep. The driver of the sweep submits each job once, and again
        only for retries, even if this process is killed. On Slurm, the jobs are one job array.
        ``torchx sweep`` accepts the handle of the returned group.

        Raises:
            PickleError: The function or an argument cannot be pickled.
            RequestError: There are no elements, the iterables have different lengths, the scheduler
                refuses the request, or its containers cannot read the folder.
        """
        from torchx_sweep import api
        from torchx_sweep.handles import handle_of

        if not iterables:
            raise RequestError("map needs an iterable of arguments")
        try:
            calls: list[tuple[Any, Any]] = [(args, {}) for args in zip(*iterables, strict=True)]
        except ValueError:
            raise RequestError("the iterables of map have different lengths") from None
        if not calls:
            raise RequestError("the iterables of map have no elements")
        runner, retries = self._runner, self.parameters.retries
        folder = self._write(fn, calls)
        # The sweep repeats failed jobs, so the scheduler must not restart them.
        once = replace(self.parameters, retries=0)
        with _removed_on_error(folder):
            app = self._app(self._name(fn), once, folder)
            with open_group(folder) as group_folder:
                write_app(group_folder, app)
            plan = api.plan(
                runner,
                "torchx_functions.app:call",
                scheduler=self._scheduler,
                cfg=self._options(fn),
                grid={"folder": [f"{folder}/{number}" for number in range(len(calls))]},
                max_parallel=self.parameters.max_parallel,
                retries=retries,
                confirmed=True,
            )
        handle = handle_of(plan.record)
        # Record the handle before the submission. Otherwise, if this process is killed, nobody
        # knows the folder of the jobs.
        Submission(folder).settle(handle)
        api.submit(runner, plan)
        return JobGroup(folder, runner, handle, len(calls), retries)

    def map_array(self, fn: Callable[..., R], /, *iterables: Iterable[Any]) -> list[Job[R]]:
        """Return the jobs of :meth:`map` as a list, as submitit does."""
        return list(self.map(fn, *iterables))

    def _options(self, fn: Callable[..., Any]) -> dict[str, CfgVal]:
        """Return the scheduler's options for the job of a function."""
        if checkpoint_method(fn) is None or self._scheduler == "kubernetes":
            return dict(self._cfg)  # on Kubernetes, requeue needs further rights: the user sets it
        known = self._runner.scheduler_run_opts(self._scheduler)
        added = {k: v for k, v in _CHECKPOINT_OPTIONS.items() if known.get(k) is not None}
        return {**added, **self._cfg}

    def _app(self, name: str, parameters: JobParameters, folder: str) -> AppDef:
        """Return the app of the first call of a group, whose folder the jobs have from now on."""
        with open_group(folder) as group:
            there = read_host_folder(group)
        if there is None:
            root, call, user = self.folder, f"{folder}/0", None
        else:
            there.send(folder)
            root, call, user = posixpath.dirname(there.path), f"{there.path}/0", there.user
        return make_app(name, self._scheduler, parameters, root, call, user)

    def _name(self, fn: Callable[..., Any]) -> str:
        return job_name(self.parameters.name or getattr(fn, "__name__", type(fn).__name__))

    def _write(self, fn: Callable[..., Any], calls: Sequence[tuple[Any, Any]]) -> str:
        """Write a function and its calls to a new folder, and return the path of the folder."""
        if not callable(fn):
            raise RequestError(f"{fn!r:.100} cannot be called; give a function first")
        function = _pickled(fn, "the function")
        data = [_pickled(call, f"the arguments of call {i}") for i, call in enumerate(calls)]
        spec: dict[str, Any] = {
            "versions": asdict(Versions()),
            "sys_path": [os.path.abspath(entry) for entry in sys.path],
            "size": len(calls),
            "retries": self.parameters.retries,
        }
        name = random_id(12)
        if self._host:
            path, user = prepare_root(self._host, self.folder)
            spec["host"] = {"host": self._host, "path": f"{path}/{name}", "user": user}
        here = os.path.realpath(TORCHX_HOME("functions")) if self._host else self.folder
        with open_root(here) as root:
            root.make(name)
        folder = os.path.join(here, name)
        with _removed_on_error(folder), open_group(folder) as group:
            if self._host:
                group.copy(MODULES, modules())
            group.write("function.pkl", function)
            group.write("job.json", json.dumps(spec).encode())
            for number, call in enumerate(data):
                group.make(str(number))
                with open_call(os.path.join(folder, str(number))) as call_folder:
                    call_folder.write("call.pkl", call)
        return folder


@contextmanager
def _removed_on_error(folder: str) -> Iterator[None]:
    """Remove a folder if the ``with`` block, which ends before the submission, raises an error."""
    try:
        yield
    except BaseException:
        with suppress(TorchXError, OSError), open_group(folder) as group:
            if there := read_host_folder(group):
                there.remove()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _pickled(value: object, subject: str) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as e:
        raise PickleError(
            f"{subject} cannot be pickled: {type(e).__name__}: {one_line(e)}; open files, locks and"
            " connections in the function, not outside"
        ) from e
    return data


def _made_folder(folder: str | os.PathLike[str]) -> str:
    path = os.path.realpath(os.path.expanduser(folder))
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"folder= {path} cannot be created: {e.strerror or e}") from None
    return path


def _value_problems(values: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, lowest in {
        "cpus": 1,
        "gpus": 0,
        "mem_mb": 1,
        "retries": 0,
        "max_parallel": 1,
    }.items():
        value = values.get(name, lowest)
        if name == "max_parallel" and value is None:
            continue
        if name == "cpus" and isinstance(value, float) and value > 0:
            continue  # some schedulers have fractions of a CPU
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            problems.append(f"{name} is {value!r}; it must be an integer, {lowest} or more")
    return problems


def submit(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
    """Run ``fn(*args, **kwargs)`` as a local job; see :meth:`Executor.submit`."""
    return Executor().submit(fn, *args, **kwargs)


def map(
    fn: Callable[..., R], /, *iterables: Iterable[Any], executor: Executor | None = None
) -> JobGroup[R]:
    """Run ``fn`` for the elements of the iterables, each call as a job; see :meth:`Executor.map`.

    Args:
        fn: The function.
        iterables: The arguments of the calls, as for the built-in ``map``.
        executor: The scheduler and the parameters of the jobs; the default is local jobs.
    """
    return (executor or Executor()).map(fn, *iterables)
