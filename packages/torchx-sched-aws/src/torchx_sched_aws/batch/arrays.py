"""Array jobs: one job for many apps that differ only in arguments and environment variables.

Each app is a child of the array job. All children have the same command, which contains an ``sh``
script for each child and runs the script at the child's index. ``queue:train-x1.7`` is the app id
of child 7 of the array job ``train-x1``. Batch does not store tags of children, so a tag of the
array job records which children were deleted.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.arrays import element_id, element_script, shared_variables
from torchx_kit.names.ids import common_start, make_unique
from torchx_kit.names.limits import AWS_BATCH, fit_name
from torchx_kit.scripts.shell import is_variable_name
from torchx_sched_aws.batch.attempts import split_attempt_command
from torchx_sched_aws.batch.request import (
    DEFINITION_PREFIX,
    ENV_TORCHX_ROLE_NAME,
    MAX_DEFINITION_BYTES,
    BatchJob,
    environment,
    json_size,
)
from torchx_sched_aws.batch.states import ENDED
from torchx_sched_aws.tags import TAG_TORCHX_APPNAME, tag_value
from torchx_specs.model.app import AppDryRunInfo
from torchx_specs.schedulers.arrays import Arrays

if TYPE_CHECKING:
    from torchx_sched_aws.batch.scheduler import AWSBatchScheduler

#: Tag of an array job with a bit for each deleted child, as a hexadecimal number.
TAG_DELETED_CHILDREN = "torchx.pytorch.org/deleted-children"
#: The largest number of children: the 256 hexadecimal digits of a tag have 1024 bits.
MOST_CHILDREN = 1000

# Bytes of a job definition to keep free for the tag with its digest.
_RESERVED_BYTES = 256
_NAME = "torchx-array"
# Runs the script of this child; the arguments are the scripts of all children.
_RUN = 'shift "$AWS_BATCH_JOB_ARRAY_INDEX"; exec sh -c "$1"'
_START = ["sh", "-c", _RUN, _NAME]


@dataclass
class Element:
    """An app that can be a child of an array job.

    Attributes:
        name: Name of the app, as in the AppDef.
        job_name: Job name that the dry run chose.
        command: The command.
        env: The environment variables.
        common: The rest of the request: everything but names, command and variables.
    """

    name: str
    job_name: str
    command: list[str]
    env: dict[str, str]
    common: dict[str, Any]


def element_of(job: BatchJob, name: str) -> Element | None:
    """Return the element for a request, or None if the request cannot be a child of an array job.

    Args:
        job: The request.
        name: Name of the app.
    """
    definition, submission = copy.deepcopy(job.job_def), copy.deepcopy(job.submission)
    if definition.get("type") != "container" or "arrayProperties" in submission:
        return None
    container = definition["containerProperties"]
    override = submission.pop("containerOverrides", {})
    items = [*(container.pop("environment", None) or ()), *(override.pop("environment", ()))]
    env = {str(item["name"]): str(item["value"]) for item in items}
    command = override.pop("command", None) or container.get("command")
    container["command"] = []
    has_attempts = split_attempt_command(command or ())[1] is not None
    if not command or has_attempts or not all(map(is_variable_name, env)):
        return None
    definition.pop("jobDefinitionName")
    for tagged in (definition, submission):
        tags = tagged.get("tags") or {}
        tagged["tags"] = {key: tags[key] for key in tags if key != TAG_TORCHX_APPNAME}
    common = {
        "definition": definition,
        "submission": submission,
        "override": override,
        "queue": [job.queue, job.share_id],
        "role": env.get(ENV_TORCHX_ROLE_NAME),
    }
    return Element(name, job.name, list(command), env, common)


def elements_of(jobs: Iterable[tuple[str, BatchJob]]) -> list[Element]:
    """Return the elements for requests; none if the requests cannot be children of one array job.

    This needs two or more requests that differ only in names, arguments and variables.

    Args:
        jobs: The name of each app, and its request.
    """
    elements: list[Element] = []
    for name, job in jobs:
        element = element_of(job, name)
        if element is None or (elements and element.common != elements[0].common):
            return []
        elements.append(element)
    return elements if len(elements) > 1 else []


def make_arrays(elements: Sequence[Element]) -> Iterator[tuple[BatchJob | None, int]]:
    """Yield the request for each array job and its number of children; see :func:`elements_of`.

    A new array begins after :data:`MOST_CHILDREN` children, or when the job definition would be too
    large. An array needs two children; for an app that would be the only child, yield None instead
    of a request.
    """
    job_name = elements[0].job_name
    shared = shared_variables(
        [element.env for element in elements], varies=lambda _, value: job_name in value
    )
    first = 0
    while first < len(elements):
        part = elements[first : first + MOST_CHILDREN]
        job = _make_array(part, shared)
        most = MAX_DEFINITION_BYTES - _RESERVED_BYTES
        while len(part) > 1 and (size := json_size(job.job_def)) > most:
            part = part[: max(1, len(part) * most // size)]
            job = _make_array(part, shared)
        yield job if len(part) > 1 else None, len(part)
        first += len(part)


def _make_array(elements: Sequence[Element], shared: Mapping[str, str]) -> BatchJob:
    first = elements[0]
    common = copy.deepcopy(first.common)
    start = common_start([element.name for element in elements]) or first.name
    name = make_unique(fit_name(start, AWS_BATCH.within(100)))
    definition, submission = common["definition"], common["submission"]
    definition["jobDefinitionName"] = DEFINITION_PREFIX + fit_name(start, AWS_BATCH.within(100))
    for tagged in (definition, submission):
        tagged["tags"][TAG_TORCHX_APPNAME] = tag_value(start)
    scripts = [
        _script(element, element_id(name, index), shared) for index, element in enumerate(elements)
    ]
    container = definition["containerProperties"]
    container.update(command=[*_START, *scripts], environment=environment(shared))
    if common["override"]:
        submission["containerOverrides"] = common["override"]
    submission["arrayProperties"] = {"size": len(elements)}
    queue, share_id = common["queue"]
    return BatchJob(name, queue, share_id, definition, submission=submission)


def _script(element: Element, job_name: str, shared: Mapping[str, str]) -> str:
    """Return the shell script of a child; its first command does nothing but store the app's name.

    Args:
        element: The app.
        job_name: Name of the child.
        shared: The variables that all children have in common.
    """
    script = element_script(element.command, element.env, shared)
    return f": {shlex.quote(element.name)}\n{script.replace(element.job_name, job_name)}"


class BatchArrays(Arrays["AWSBatchScheduler"]):
    """Submits many apps as children of array jobs."""

    def _submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[BatchJob]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests, and yield the id of each app once it is submitted.

        Apps of one replica become children of array jobs if they differ only in arguments and
        environment variables; their image must contain ``sh``. Each array job has as many children
        as fit into its job definition. If one of the requests cannot become a child or has the
        option ``array=False``, all requests are submitted one after another.

        Args:
            dryrun_infos: The requests.
            max_parallel: None, because Batch cannot enforce a limit.

        Raises:
            AwsError: AWS refused a request or did not answer.
            RequestError: The queue does not accept a job, or a secret does not exist.
            WorkspaceError: A workspace image could not be built or pushed.
        """
        infos = list(dryrun_infos)
        elements = elements_of(
            (info.app.name if info.app else info.request.name, info.request) for info in infos
        )
        if not elements or any((info.cfg or {}).get("array") is False for info in infos):
            yield from super()._submit(infos)
            return
        for info in infos:
            self.scheduler.build_pending(info)
        first = 0
        for job, count in make_arrays(elements):
            if job is None:
                yield self.scheduler.schedule(infos[first])
            else:
                app_id = self.scheduler.submit_request(job)
                yield from (element_id(app_id, index) for index in range(count))
            first += count


# Functions for submitted arrays.


def array_size(job: Mapping[str, Any]) -> int:
    """Return the number of children of a job; 0 if the job is not an array job."""
    return int((job.get("arrayProperties") or {}).get("size") or 0)


def child_index(job: Mapping[str, Any]) -> int | None:
    """Return the index of a child, or None if the job is not a child."""
    index = (job.get("arrayProperties") or {}).get("index")
    return None if index is None else int(index)


def child_job(
    array: Mapping[str, Any], child: Mapping[str, Any] | None, index: int
) -> dict[str, Any] | None:
    """Return the description of a child with its own name, command, variables and tags.

    Args:
        array: The array job, as ``DescribeJobs`` returns it.
        child: The child, as ``DescribeJobs`` returns it; None if Batch has not created it yet. The
            array must then have its container.
        index: The child's index.

    Returns:
        The description; None if the array has no such child, or the child was deleted.
    """
    if index >= array_size(array) or index in deleted_children(array):
        return None
    found = dict(child or array)
    if child is None and found.get("status") not in ENDED:
        found["status"] = "SUBMITTED"
    found["jobId"] = f"{array['jobId']}:{index}"
    found["jobName"] = element_id(str(array["jobName"]), index)
    found["arrayProperties"] = {"index": index}
    container = dict(found.get("container") or {})
    name, argv, env = _read_script(container.get("command") or (), index)
    found["tags"] = {**(array.get("tags") or {}), TAG_TORCHX_APPNAME: name}
    items = [*(container.get("environment") or ()), *environment(env)]
    found["container"] = {**container, "command": argv, "environment": items}
    return found


def _read_script(command: Sequence[str], index: int) -> tuple[str, list[str], dict[str, str]]:
    """Return the app's name, the argv and the own variables of a child.

    If another program submitted the array job, the name is empty and the dict has no variables.

    Args:
        command: The command of the array job, which all children have.
        index: The child's index.
    """
    command = list(command)
    scripts = command[len(_START) :] if command[: len(_START)] == _START else []
    if index >= len(scripts):
        return "", command, {}  # another program submitted the array job
    _, name, *words = shlex.split(scripts[index])
    command_at = words.index("exec")
    variables = (word.partition("=") for word in words[1:command_at:2])  # export NAME=VALUE
    env = {key: value for key, _, value in variables}
    return name, words[command_at + 1 :], env


def deleted_children(array: Mapping[str, Any]) -> set[int]:
    """Return the indices of the deleted children of an array job."""
    try:
        bits = int((array.get("tags") or {}).get(TAG_DELETED_CHILDREN) or "0", 16)
    except ValueError:
        return set()  # somebody changed the tag
    return {index for index in range(array_size(array)) if bits >> index & 1}


def deleted_tag(indices: set[int]) -> str:
    """Return the value of :data:`TAG_DELETED_CHILDREN` for the indices of deleted children."""
    return f"{sum(1 << index for index in indices):x}"
