"""Job arrays: submission of many apps by one ``bsub -J "name[1-N]"``, and index entries.

An app is one element of the array. ``train-x1.7`` is the app id of element 7 of the array
``train-x1``; ``101[7]`` is its job id in LSF. The record of the element is the sub-directory ``7``
of the array's record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from torchx_kit.jobs.arrays import ParallelLimit, submit_parts, without_variations
from torchx_kit.names.ids import common_start
from torchx_kit.secrets import secret_refs
from torchx_sched_lsf.client import LimitError, Lsf, LsfError, UnreachableError
from torchx_sched_lsf.job_files.records import Entry, Index, merged
from torchx_sched_lsf.names import element_id, make_app_id
from torchx_sched_lsf.request import LsfArray, LsfBsub
from torchx_sched_lsf.submit import submit
from torchx_specs.errors import BackendError

# LSF's default of MAX_JOB_ARRAY_SIZE, for clusters whose bparams does not print the parameter.
_DEFAULT_SIZE = 1000
# Largest number of elements in an array that TorchX submits. Every query of an element reads the
# array's entry in the index, so the entry must stay small.
_LARGEST_SIZE = 2000
# Part of bsub's message, in lower case, if an array has more elements than MAX_JOB_ARRAY_SIZE.
_TOO_LARGE = "job array index too large"


def can_be_array(requests: Sequence[LsfBsub]) -> bool:
    """Return True if several requests differ only in arguments and environment variables.

    Only apps of one replica become elements of an array.
    """
    first = requests[0] if len(requests) > 1 else None
    if first is None or len(first.app.roles) != 1 or first.app.roles[0].num_replicas != 1:
        return False
    expected = _without_variations(first)
    return all(_without_variations(request) == expected for request in requests)


def _without_variations(request: LsfBsub) -> tuple[object, ...]:
    roles = [without_variations(role) for role in request.app.roles]
    return request.jobdir, request.cfg, request.cmd, roles


def max_array_size(lsf: Lsf) -> int:
    """Return how many elements an array may have: the cluster's limit, but at most 2000.

    Raises:
        UnreachableError: LSF cannot be reached.
    """
    try:
        output = lsf.run_idempotent("bparams", "-a")
    except UnreachableError:
        raise
    except LsfError:
        # An old version, or another system, has no bparams: assume LSF's default. If this is too
        # large, bsub refuses the array, and a smaller one is submitted.
        output = ""
    match = re.search(r"^\s*MAX_JOB_ARRAY_SIZE\s*=\s*(\d+)", output, re.M)
    return min(int(match[1]) if match else _DEFAULT_SIZE, _LARGEST_SIZE)


def submit_arrays(
    lsf: Lsf,
    requests: Sequence[LsfBsub],
    names: Sequence[str],
    size: int,
    max_parallel: int | None,
    index: Index,
) -> Iterator[str]:
    """Submit apps as elements of arrays, and yield the ids of the apps.

    If LSF refuses an array because of its size or because too many jobs are pending, a smaller
    array is submitted.

    Args:
        lsf: The client.
        requests: The apps, for which :func:`can_be_array` returned True.
        names: The names of the apps.
        size: How many elements an array may have.
        max_parallel: How many elements may run at the same time; None means no limit.
        index: The index, which gets an entry for each array.

    Raises:
        LimitError: Too many jobs are pending, even for an array of one element.
        LsfError: LSF does not accept an array, or cannot be reached.
    """
    limit = ParallelLimit(-(-len(requests) // size), max_parallel)

    def submit_part(part: slice) -> Entry:
        return _submit_array(lsf, requests[part], names[part], limit, index)

    for part, entry in submit_parts(len(requests), size, submit_part, _is_too_large):
        limit.add(entry.roles[0].jobs[0])
        for number in range(1, len(requests[part]) + 1):
            yield element_id(entry.app_id, number)


def _is_too_large(error: BackendError) -> bool:
    return isinstance(error, LimitError) or _TOO_LARGE in str(error).lower()


def _submit_array(
    lsf: Lsf,
    requests: Sequence[LsfBsub],
    names: Sequence[str],
    limit: ParallelLimit,
    index: Index,
) -> Entry:
    # The script of an app with a secret defines the function that reads secrets.
    model = next((one for one in requests if secret_refs(one.app.roles[0].env)), requests[0])
    name = common_start(names) or names[0]
    app_id = make_app_id(name)
    array = LsfArray(
        model.jobdir,
        app_id,
        model.app,
        model.cfg,
        model.cmd,
        elements=[request.app for request in requests],
        limit=limit.share,
        previous=limit.previous,
    )
    return submit(lsf, array, app_id, name, index, names)


# Functions for submitted arrays.


def elements(array: Entry, own: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries of the elements of an array that were not deleted.

    Args:
        array: The entry of the array.
        own: The entries that single elements have in the index, by app id.
    """
    made = (array.element(index) for index in range(1, len(array.names) + 1))
    found = (merged(element, own.get(element.app_id)) for element in made)
    return [element for element in found if not element.deleted]
