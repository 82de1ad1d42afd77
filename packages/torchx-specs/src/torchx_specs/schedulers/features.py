"""What a scheduler can do, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from torchx_specs.errors import NotSupportedError


class No(str):
    """A feature that a scheduler lacks, and the reason; false in a condition.

    >>> bool(No("the API is JSON"))
    False
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"No({str(self)!r})"


#: Whether a scheduler has a feature; :class:`No` also says why it lacks the feature.
Feature = bool | No


#: What a caller asks for by the use of a feature, for the error message.
_USES = {
    "requeue": "start an app again after a preemption, a time limit or exit code 75",
    "dependencies": "hold an app until another app has ended",
    "ends_app": "end an app when some of its roles have succeeded (metadata torchx/ends_app)",
    "logs": "read logs",
    "exec": "run commands in replicas",
    "ports": "forward ports of replicas",
    "hosts": "use another machine than this one",
    "archives": "copy files without tar in the replica",
    "array_limit": "limit how many of the apps run at the same time",
    "gpus": "count the GPUs of the cluster",
}


@dataclass(frozen=True, kw_only=True)
class SchedulerFeatures:
    """What a scheduler can do. A scheduler has a record as its attribute ``features``.

    Callers read the record instead of calling a method to see whether it works. A field is True,
    False, or a :class:`No` with the reason. The defaults are those of a scheduler that implements
    the required methods; the conformance suite tests each feature that is true.

    >>> SchedulerFeatures(exec=True, streams=No("the log of a container is one")).streams
    No('the log of a container is one')

    Attributes:
        exit_code: Tell the exit code of a replica.
        retries: Start a failed replica again.
        restart_count: Count restarts.
        list: List apps.
        newest_first: List apps from the newest one on, and read an app only when it is taken.
        delete: Delete apps.
        cancel_state: Tell a cancelled app from a failed one.
        cancel_pending: Cancel an app that waits for resources.
        describe_roles: Describe the roles of an app.
        times: Tell when an app was submitted, started and ended.
        native: Return the native request of an app.
        watch: Announce changes of an app.
        kill: End an app without time for a clean shutdown.
        client_jobs: End apps with the client that submitted them.
        hosts: Use the commands and files of another machine, such as a login node.
        several_roles: Run apps with several roles.
        rank0: Tell replicas the address of replica 0.
        hostile_arguments: Pass any text as an argument.
        hostile_environment: Pass any text in an environment variable.
        not_utf8: Pass bytes that are not UTF-8. If the record has a reason why not, a request with
            such bytes is refused.
        odd_names: Accept any names of apps and roles.
        secrets: Pass secrets to jobs.
        setup: Run setup lines before the program.
        time_limit: End a job after a time limit.
        requeue: Start an app again after a preemption, a time limit or exit code 75 (options
            ``requeue`` and ``resume_dir``).
        dependencies: Hold an app until another app has ended.
        ends_app: End an app when the roles with the metadata ``torchx/ends_app`` have succeeded.
        logs: Read logs.
        streams: Read standard output and standard error separately.
        regex: Select log lines by a regular expression.
        since_until: Select log lines by time.
        tail: Follow logs.
        closing: End followed logs when the scheduler is closed.
        last: Read the last lines of a log from its end.
        partial: Show text before its line ends.
        attempt_marks: Mark in a log where an attempt after the first one begins.
        log_order: Return the lines of both streams in the same order.
        blank_lines: Keep blank lines in logs.
        unterminated_line: Keep a last line without a newline.
        undecodable_output: Keep output that is not UTF-8.
        exec: Run commands in replicas.
        ports: Forward ports of replicas.
        archives: Copy files without tar in the replica.
        arrays: Submit many apps with one request.
        array_limit: Limit how many apps of an array run at the same time.
        mass_cancel: Cancel many apps with one request.
        mass_delete: Delete many apps with one request.
        gpus: Count the GPUs of the cluster that are free, in use and unavailable.
    """

    # Apps.
    exit_code: Feature = True
    retries: Feature = True
    restart_count: Feature = True
    list: Feature = True
    newest_first: Feature = False
    delete: Feature = True
    cancel_state: Feature = True
    cancel_pending: Feature = True
    describe_roles: Feature = True
    times: Feature = True
    native: Feature = False
    watch: Feature = False
    kill: Feature = False
    client_jobs: Feature = False
    hosts: Feature = False

    # Requests.
    several_roles: Feature = True
    rank0: Feature = True
    hostile_arguments: Feature = True
    hostile_environment: Feature = True
    not_utf8: Feature = True
    odd_names: Feature = True
    secrets: Feature = False
    setup: Feature = False
    time_limit: Feature = False
    requeue: Feature = False
    dependencies: Feature = False
    ends_app: Feature = False

    # Logs.
    logs: Feature = False
    streams: Feature = True
    regex: Feature = True
    since_until: Feature = True
    tail: Feature = True
    closing: Feature = True
    last: Feature = False
    partial: Feature = False
    attempt_marks: Feature = False
    log_order: Feature = True
    blank_lines: Feature = True
    unterminated_line: Feature = True
    undecodable_output: Feature = True

    # Replicas that run.
    exec: Feature = False
    ports: Feature = False
    archives: Feature = False

    # Many apps at once.
    arrays: Feature = False
    array_limit: Feature = False
    mass_cancel: Feature = False
    mass_delete: Feature = False

    # The cluster.
    gpus: Feature = False

    def lacks(self) -> Mapping[str, str]:
        """Return the features that the scheduler lacks for a reason, with the reasons."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: str(value) for name, value in values if isinstance(value, No)}

    def error(self, feature: str, scheduler: str) -> NotSupportedError:
        """Return the error for the use of a feature that is false.

        Args:
            feature: Name of the field.
            scheduler: Name of the scheduler.
        """
        value = getattr(self, feature)
        reason = f": {value}" if isinstance(value, No) else ""
        return NotSupportedError(f"the scheduler '{scheduler}' cannot {_USES[feature]}{reason}")

    def require(self, feature: str, scheduler: str) -> None:
        """Raise the :meth:`error` of a feature if it is false."""
        if not getattr(self, feature):
            raise self.error(feature, scheduler)


# The bound is a Scheduler, whose module imports this one.
S = TypeVar("S", bound=Any)


class Ability(Generic[S]):
    """The base class of the objects for a scheduler's abilities.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: S) -> None:
        self.scheduler = scheduler
