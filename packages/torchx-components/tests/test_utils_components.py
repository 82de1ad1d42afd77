"""Tests of the jobs that the components in ``utils``, ``serve`` and ``metrics`` return.

Unless a test says otherwise, the expected values are those of torchx-nightly 2026.10.26 (serve and
metrics: 0.7.0).
"""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from typing import Any

import pytest

import torchx_specs as specs
from torchx_components import app_programs, metrics, serve, utils
from torchx_components.images import IMAGE
from torchx_specs.errors import TorchXError


@pytest.fixture(autouse=True)
def with_facade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installed torchx distribution, whose modules the jobs then run."""
    monkeypatch.setattr(app_programs, "_has_facade", lambda: True)
    monkeypatch.delenv("LOGLEVEL", raising=False)


def job(name: str, entrypoint: str, args: str | list[str], **fields: Any) -> dict[str, Any]:
    """Return a job of one role; ``fields`` override fields of the role."""
    role = {
        "name": name,
        "image": IMAGE,
        "entrypoint": entrypoint,
        "args": args.split() if isinstance(args, str) else args,
        "resource": specs.Resource(cpu=1, gpu=0, memMB=1024),
        **fields,
    }
    return asdict(specs.AppDef(name=name, roles=[specs.Role(**role)]))


def renamed(described: dict[str, Any], name: str) -> dict[str, Any]:
    return {**described, "name": name}


GPU_SMALL = specs.resource(h="gpu.small")
LOG = {"LOGLEVEL": "WARNING"}
PYTHON = "torchx_utils_python"
BINARY = "torchx_utils_binary"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: utils.echo(), job("echo", "echo", ["hello world"])),
        (
            lambda: utils.echo("x y", num_replicas=3, image="i"),
            job("echo", "echo", ["x y"], num_replicas=3, image="i"),
        ),
        (lambda: utils.touch("f"), job("touch", "touch", ["f"])),
        (
            lambda: utils.sh("echo", "$HOME", "a b", ";", "ls"),
            job("sh", "sh", ["-c", "echo '$HOME' 'a b' ';' ls"], env=LOG),
        ),
        (lambda: utils.sh(), job("sh", "sh", ["-c", ""], env=LOG)),
        (
            lambda: utils.sh(
                "a",
                image="i",
                num_replicas=2,
                cpu=3,
                gpu=1,
                memMB=5,
                env={"A": "1"},
                max_retries=2,
                mounts=["type=bind", "src=/a", "dst=/b"],
            ),
            job(
                "sh",
                "sh",
                ["-c", "exec a"],
                image="i",
                num_replicas=2,
                resource=specs.Resource(cpu=3, gpu=1, memMB=5),
                env={"A": "1", **LOG},
                max_retries=2,
                mounts=[specs.BindMount("/a", "/b")],
            ),
        ),
        (
            lambda: utils.sh("a", h="gpu.small"),
            job("sh", "sh", ["-c", "exec a"], resource=GPU_SMALL, env=LOG),
        ),
        (  # torchx-nightly adds quotes that no shell removes
            lambda: utils.sh("a b", "$X", "-c", entrypoint="bash"),
            job("sh", "bash", ["a b", "$X", "-c"], env=LOG),
        ),
        (
            lambda: utils.python("a b", "-x", m="mod.x"),
            renamed(
                job(
                    "python",
                    "python",
                    ["-m", "mod.x", "a b", "-x"],
                    env={"HYDRA_MAIN_MODULE": "mod.x"},
                ),
                PYTHON,
            ),
        ),
        (
            lambda: utils.python("z", c="print(1)"),
            renamed(job("python", "python", ["-c", "print(1)", "z"]), PYTHON),
        ),
        (
            lambda: utils.python(
                "z", script="s.py", name="n", cpu=2, gpu=1, memMB=8, num_replicas=2, image="i"
            ),
            renamed(
                job(
                    "python",
                    "python",
                    ["s.py", "z"],
                    num_replicas=2,
                    image="i",
                    resource=specs.Resource(cpu=2, gpu=1, memMB=8),
                ),
                "n",
            ),
        ),
        (  # torchx-nightly has no env and max_retries
            lambda: utils.python(
                m="a", h="gpu.small", env={"B": "c", "HYDRA_MAIN_MODULE": "mine"}, max_retries=4
            ),
            renamed(
                job(
                    "python",
                    "python",
                    ["-m", "a"],
                    resource=GPU_SMALL,
                    env={"B": "c", "HYDRA_MAIN_MODULE": "mine"},
                    max_retries=4,
                ),
                PYTHON,
            ),
        ),
        (
            lambda: utils.binary("a", "b c", entrypoint="/x"),
            renamed(job("binary", "/x", ["a", "b c"], image="<NONE>"), BINARY),
        ),
        (
            lambda: utils.binary(entrypoint="/x", name="n", num_replicas=2, h="gpu.small"),
            renamed(
                job("binary", "/x", [], image="<NONE>", num_replicas=2, resource=GPU_SMALL), "n"
            ),
        ),
        (
            lambda: utils.copy("a", "b"),
            job(
                "torchx-utils-copy",
                "python",
                ["-m", "torchx.apps.utils.copy_main", "--src", "a", "--dst", "b"],
            ),
        ),
        (
            lambda: utils.copy("a", "b", image="i", mounts=["type=volume", "src=v", "dst=/x"]),
            job(
                "torchx-utils-copy",
                "python",
                ["-m", "torchx.apps.utils.copy_main", "--src", "a", "--dst", "b"],
                image="i",
                mounts=[specs.VolumeMount("v", "/x")],
            ),
        ),
        (
            lambda: utils.booth(1.0, 2.5),
            job(
                "torchx-utils-booth",
                "python",
                "-m torchx.apps.utils.booth_main --x1 1.0 --x2 2.5 --trial_idx 0"
                " --tracker_base /tmp/torchx-util-booth",
            ),
        ),
        (
            lambda: utils.booth(1, 2, trial_idx=3, tracker_base="t", image="i"),
            job(
                "torchx-utils-booth",
                "python",
                "-m torchx.apps.utils.booth_main --x1 1 --x2 2 --trial_idx 3 --tracker_base t",
                image="i",
            ),
        ),
        (
            lambda: serve.torchserve("m", "http://x"),
            renamed(
                job(
                    "worker",
                    "python",
                    "-m torchx.apps.serve.serve --model_path m --management_api http://x",
                    port_map={"model-download": 8222},
                ),
                "torchx-torchserve",
            ),
        ),
        (  # torchx-nightly passes None as the text "None"
            lambda: serve.torchserve(
                "m",
                "http://x",
                image="i",
                params={"model_name": "a", "batch_size": 3, "port": "81", "handler": None},  # type: ignore[dict-item]
                dryrun=True,
            ),
            renamed(
                job(
                    "worker",
                    "python",
                    "-m torchx.apps.serve.serve --model_path m --management_api http://x"
                    " --model_name a --batch_size 3 --port 81 --dryrun",
                    port_map={"model-download": 81},
                    image="i",
                ),
                "torchx-torchserve",
            ),
        ),
        (  # in torchx-nightly, the job has no resource, which some schedulers reject
            lambda: metrics.tensorboard("logs"),
            job(
                "tensorboard",
                "python",
                [
                    *("-m", "torchx.apps.utils.process_monitor", "--timeout", "3600"),
                    *("--start_on_file", "", "--exit_on_file", "", "--"),
                    *("tensorboard", "--bind_all", "--port", "6006", "--logdir", "logs"),
                ],
                port_map={"http": 6006},
            ),
        ),
        (
            lambda: metrics.tensorboard(
                "logs", image="i", timeout=2.5, port=1, start_on_file="a", exit_on_file="b"
            ),
            job(
                "tensorboard",
                "python",
                "-m torchx.apps.utils.process_monitor --timeout 2.5 --start_on_file a"
                " --exit_on_file b -- tensorboard --bind_all --port 1 --logdir logs",
                port_map={"http": 1},
                image="i",
            ),
        ),
    ],
)
def test_component_returns_this_job(call: Any, expected: dict[str, Any]) -> None:
    assert asdict(call()) == expected


def test_env_of_the_caller_is_not_changed() -> None:
    env = {"A": "b"}
    utils.sh("x", env=env)
    utils.python(m="x", env=env)
    assert env == {"A": "b"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: utils.python(), "exactly one of `-m`, `-c` and `--script`"),
        (lambda: utils.python(m="a", c="b"), "exactly one of `-m`, `-c` and `--script`"),
        (lambda: utils.python(m="", c="b"), "exactly one of `-m`, `-c` and `--script`"),
        (
            lambda: serve.torchserve("m", "http://x", params={"modelname": "a"}),
            "--params: unknown parameter 'modelname'; did you mean 'model_name'?",
        ),
        (lambda: serve.torchserve("m", "x", params={"port": "http"}), "--params: port"),
        (lambda: serve.torchserve("m", "x", params={"port": "0"}), "--params: port"),
        (lambda: utils.sh("x", h="gpu.tiny"), "gpu.tiny"),
        (lambda: utils.sh("x", mounts=["dst=/a"]), "type must be specified first"),
    ],
)
def test_invalid_arguments_are_an_error(call: Any, message: str) -> None:
    with pytest.raises(TorchXError) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "args",
    [
        ["printf", "%s|", "a b", "$HOME", "$$", "`id`", "'", "", "\n", "*"],
        ["printf", "%s|", "$$", "${app_id}", "$${app_id}", "$HOME"],
    ],
)
def test_sh_passes_arguments_unchanged(args: list[str]) -> None:
    values = specs.macros.Values("", "job-1", "0")
    role = values.apply(utils.sh(*args).roles[0])
    done = subprocess.run([role.entrypoint, *role.args], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{values.substitute(arg)}|" for arg in args[2:])


@pytest.mark.parametrize(
    ("program", "in_facade", "own"),
    [
        ("copy", "torchx.apps.utils.copy_main", "torchx_apps.copy"),
        ("booth", "torchx.apps.utils.booth_main", "torchx_apps.booth"),
        ("process_monitor", "torchx.apps.utils.process_monitor", "torchx_apps.process_monitor"),
        ("serve", "torchx.apps.serve.serve", "torchx_apps.serve"),
    ],
)
def test_program_module_depends_on_the_facade(
    program: str, in_facade: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app_programs.program_module(program) == in_facade
    monkeypatch.setattr(app_programs, "_has_facade", lambda: False)
    assert app_programs.program_module(program) == own
