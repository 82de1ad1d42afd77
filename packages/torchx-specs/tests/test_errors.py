"""Tests of errors: base classes, messages and exit codes."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from torchx_specs import errors
from torchx_specs.errors import (
    BackendError,
    CapacityError,
    ComponentArgumentError,
    ConfigError,
    InvalidRunConfigException,
    NamedResourceNotFoundError,
    RequestError,
    TorchXError,
    UnknownAppException,
    UnknownSchedulerException,
    WorkspaceError,
    nearest,
)

ALL = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, TorchXError)]


@pytest.mark.parametrize("error", ALL)
def test_every_error_derives_from_torchxerror_with_an_exit_code(error: type[TorchXError]) -> None:
    assert error.exit_code in (1, 2, 3)
    assert error.__doc__
    assert error.__name__ in ("TorchXError",) or error.__mro__[1] is not Exception


def test_exit_codes() -> None:
    codes = {error: error.exit_code for error in ALL if error.exit_code != 2}
    assert codes == {
        UnknownAppException: 1,
        BackendError: 3,
        CapacityError: 3,
    }


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (RequestError("x"), ValueError),
        (ConfigError("x"), ValueError),
        (NamedResourceNotFoundError("x"), KeyError),
        (ComponentArgumentError("x", "p"), ValueError),
        (BackendError("x"), RuntimeError),
        (InvalidRunConfigException("x", "k", {}), ValueError),
    ],
)
def test_errors_derive_from_builtins(error: TorchXError, builtin: type[Exception]) -> None:
    assert isinstance(error, builtin)
    assert str(error).startswith("x")


def test_request_error_lists_all_problems() -> None:
    error = RequestError(["one is wrong", "two is wrong"])
    assert error.problems == ("one is wrong", "two is wrong")
    assert str(error) == "one is wrong; two is wrong"
    assert RequestError("alone").problems == ("alone",)


def test_an_unknown_scheduler_names_the_nearest_and_all() -> None:
    error = UnknownSchedulerException("kubernets", ["slurm", "kubernetes"])
    assert str(error) == (
        "unknown scheduler 'kubernets'; did you mean 'kubernetes'?"
        " installed schedulers: kubernetes, slurm"
    )
    assert str(UnknownSchedulerException("x")) == "unknown scheduler 'x'"
    assert error.scheduler_backend == "kubernets"


def test_secrets_of_a_configuration_are_masked() -> None:
    error = InvalidRunConfigException("wrong", "k", {"password": "hunter2", "queue": "q"})
    assert "hunter2" not in str(error)
    assert "'queue': 'q'" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        RequestError(["a", "b"]),
        WorkspaceError("x"),
        NamedResourceNotFoundError("x"),
        UnknownAppException("a://b/c"),
        UnknownSchedulerException("x", ["y"]),
        InvalidRunConfigException("wrong", "k", {"a": 1}),
        ComponentArgumentError("x", "p"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_can_be_pickled(error: TorchXError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


@pytest.mark.parametrize(
    ("name", "candidates", "hint"),
    [
        ("gpu.smal", ["gpu.small", "cpu.small"], " did you mean 'gpu.small'?"),
        ("JOB-QUEUE", ["job_queue"], " did you mean 'job_queue'?"),
        ("zzz", ["job_queue"], ""),
        ("x", [], ""),
    ],
)
def test_nearest_ignores_case_and_separators(name: str, candidates: list[str], hint: str) -> None:
    assert nearest(name, candidates) == hint
