"""The integration tests of the gate, ``.ci/run``: all others run in ``nox -s deep`` only.

A test is in the gate if it is marked ``gate``, as a few cases of each conformance suite are, or if
:data:`TESTS` has a pattern for it. If a change touches a back end, all tests of the back end's
folder are in the gate, except :data:`DOUBLES`: these tests are in the gate if a change touches a
double of a service. Never in the gate are :data:`SECOND_VERSIONS` and :data:`RANDOM_TESTS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

#: Patterns of further tests of the gate, as ``FOLDER/FILE::TEST``.
TESTS = (
    "*/test_page_*.py::*",
    "local/test_async_runner.py::*",
    "local/test_conformance_plugins.py::TestTorchxSchedLocal::*",
    "local/test_threads.py::*",
    "local/test_demo.py::test_run_of_a_failing_job_exits_with_1",
    "registry/test_workspace.py::test_image_built_*",
    "registry/test_workspace.py::test_unchanged_workspace_uploads_nothing",
    "terminal/test_completion.py::test_*[[]*]",
    "terminal/test_inside_on_a_terminal.py::test_a_user_works_in_a_shell[[]local_cwd]",
    "terminal/test_inside_on_a_terminal.py::test_help_imports_no_back_end",
)

#: Patterns of tests with the second release of a service or on a second kind of screen, and of
#: tests with random moments and inputs.
SECOND_VERSIONS = (
    "*[[]*trixie*",
    "lsf/*::TestOldLsfDouble::*",
    "dashboard/*[[]*tablet*",
    "dashboard/*[[]*phone*",
)
RANDOM_TESTS = (
    "local/test_local_attack.py::*",
    "local/test_sweep_full_disk.py::*",
    "local/test_sweep_kills.py::*",
    "slurm/test_slurm_sweeps.py::*",
    "ssh/test_interrupted_submissions.py::test_random_*",
)

#: Patterns of the tests of the doubles, which test no code of a distribution.
DOUBLES = ("*/test_*_double.py::*",)

#: Patterns of tests that start a Docker Engine. Engines that start at the same time change each
#: other's firewall rules, so one worker of pytest-xdist runs these tests.
ENGINES = (
    "aws/*",
    "docker/*",
    "registry/*",
    "terminal/*[[]local_docker*",
    "terminal/test_bad_input.py::*",
    "trackers/test_job.py::*",
)

#: Folders whose conformance suite runs in a worker of its own, as each worker has its own cluster.
#: With all of their tests, these folders take the longest.
TWO_WORKERS = ("slurm", "k8s")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a test, ``FOLDER/FILE::TEST``, matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_selected(name: str, marked: bool, whole: Collection[str] = ()) -> bool:
    """Return whether the gate runs a test.

    Args:
        name: The test, ``FOLDER/FILE::TEST``.
        marked: Whether the test is marked ``gate``.
        whole: The folders of which the gate runs all tests; ``doubles`` adds :data:`DOUBLES`.
    """
    if matches(name, (*SECOND_VERSIONS, *RANDOM_TESTS)):
        return False
    if matches(name, DOUBLES) and "doubles" not in whole:
        return False
    return marked or name.partition("/")[0] in whole or matches(name, TESTS)


def worker(name: str) -> str:
    """Return the name of the worker of pytest-xdist that runs a test: mostly, the folder's."""
    if matches(name, ENGINES):
        return "engines"
    folder, _, test = name.partition("/")
    return f"{folder}-conformance" if folder in TWO_WORKERS and "conformance" in test else folder
