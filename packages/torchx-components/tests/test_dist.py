"""Tests of the jobs that the components in ``dist`` return.

Unless a test says otherwise, the expected values are those of torchx-nightly 2026.10.26.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import string
import subprocess
import warnings
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchx_specs as specs
from torchx_components import dist
from torchx_components.images import IMAGE
from torchx_specs.errors import NamedResourceNotFoundError, TorchXError

RENDEZVOUS_HERE = "localhost:0"
RENDEZVOUS_AT_RANK0 = (
    "$$([ ${replica_id} = 0 ] && echo localhost || echo $${${rank0_env}:=localhost}):29500"
)


@pytest.fixture(autouse=True)
def no_loglevel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGLEVEL", raising=False)


def command(
    program: str,
    *,
    endpoint: str = RENDEZVOUS_HERE,
    nnodes: str = "1",
    nproc: int = 2,
    backend: str = "c10d",
    conf: str = "",
    tee: int = 3,
    rank: str = "",
) -> str:
    return (
        f"torchrun --rdzv_backend {backend} {conf}--rdzv_endpoint {endpoint}"
        f" --rdzv_id '${{app_id}}' --nnodes {nnodes} --nproc_per_node {nproc} --tee {tee}"
        f" --role '' {rank}{program}"
    )


def described(app: specs.AppDef) -> dict[str, Any]:
    assert len(app.roles) == 1
    return asdict(app)


def expected(
    name: str,
    line: str,
    *,
    role: str | None = None,
    experiment: str = "default-experiment",
    run: str | None = None,
    env: dict[str, str] | None = None,
    nodes: tuple[int, int] = (1, 1),
    port: int = 29500,
    resource: specs.Resource | None = None,
    metadata: dict[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return a job with one role as a dict; ``fields`` override fields of the role."""
    return asdict(
        specs.AppDef(
            name=name,
            metadata=metadata or {},
            roles=[
                specs.Role(
                    **{
                        "name": role or name,
                        "image": IMAGE,
                        "entrypoint": "bash",
                        "args": ["-c", line],
                        "min_replicas": nodes[0],
                        "num_replicas": nodes[1],
                        "env": {
                            "TORCHX_TRACKING_EXPERIMENT_NAME": experiment,
                            "TORCHX_TRACKING_RUN_NAME": run or name,
                            "LOGLEVEL": "WARNING",
                            **(env or {}),
                        },
                        "port_map": {"c10d": port},
                        "resource": resource or specs.Resource(cpu=2, gpu=0, memMB=1024),
                        **fields,
                    }
                )
            ],
        )
    )


DEBUG = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}

SAME_IN_DDP_AND_TORCHRUN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"script": "train.py"},
        expected("train", command("train.py")),
    ),
    (
        {"m": "pkg.mod.train"},
        expected("train", command("-m pkg.mod.train")),
    ),
    (
        {"script": "a/b/my_train.py", "name": "exp/run"},
        expected("run", command("a/b/my_train.py"), role="my_train", experiment="exp"),
    ),
    (
        {"script": "t.py", "name": "exp/"},
        expected("t", command("t.py"), experiment="exp"),
    ),
    (
        {"script": "t.py", "name": "/run"},
        expected("run", command("t.py"), role="t"),
    ),
    (
        {"script": "t.py", "name": "run"},
        expected("run", command("t.py"), role="t"),
    ),
    (
        {"script": "t.py", "name": "a/b/c"},
        expected("b/c", command("t.py"), role="t", experiment="a"),
    ),
    (
        {"m": "a.b", "name": ""},
        expected("b", command("-m a.b")),
    ),
    (
        {"script": "t.py", "j": "2x2"},
        expected("t", command("t.py", endpoint=RENDEZVOUS_AT_RANK0, nnodes="2"), nodes=(2, 2)),
    ),
    (
        {"script": "t.py", "j": "1:4x8"},
        expected(
            "t",
            command("t.py", endpoint=RENDEZVOUS_AT_RANK0, nnodes="1:4", nproc=8),
            nodes=(1, 4),
        ),
    ),
    (
        {"script": "t.py", "j": "1:1x1"},
        expected("t", command("t.py", nnodes="1:1", nproc=1)),
    ),
    (
        {"script": "t.py", "j": "3"},
        expected("t", command("t.py", nproc=3)),
    ),
    (
        {"script": "t.py", "h": "gpu.small", "j": "2x1"},
        expected(
            "t",
            command("t.py", endpoint=RENDEZVOUS_AT_RANK0, nnodes="2", nproc=1),
            nodes=(2, 2),
            resource=specs.resource(h="gpu.small"),
        ),
    ),
    (
        {
            "script": "t.py",
            "cpu": 8,
            "gpu": 2,
            "memMB": 99,
            "max_retries": 3,
            "rdzv_port": 1234,
            "rdzv_backend": "static",
            "j": "2x2",
            "debug": True,
            "tee": 0,
            "env": {
                "A": "b",
                "LOGLEVEL": "DEBUG",
                "TORCHX_TRACKING_RUN_NAME": "mine",
                "NCCL_DESYNC_DEBUG": "0",
            },
        },
        expected(
            "t",
            command(
                "t.py",
                endpoint="$${${rank0_env}:=localhost}:1234",
                nnodes="2",
                backend="static",
                tee=0,
                rank="--node_rank '${replica_id}' ",
            ),
            nodes=(2, 2),
            port=1234,
            max_retries=3,
            resource=specs.Resource(cpu=8, gpu=2, memMB=99),
            env={"A": "b", "LOGLEVEL": "DEBUG", **DEBUG},
        ),
    ),
    (
        {"script": "t.py", "mounts": ["type=bind", "src=/a", "dst=/b", "readonly"]},
        expected("t", command("t.py"), mounts=[specs.BindMount("/a", "/b", True)]),
    ),
    (
        {"script": "t.py", "rdzv_conf": "timeout=900,a=b c", "metadata": {"a": "b"}},
        expected(
            "t", command("t.py", conf="--rdzv_conf 'timeout=900,a=b c' "), metadata={"a": "b"}
        ),
    ),
    (
        {"script": "t.py", "rdzv_backend": "etcd v2"},
        expected("t", command("t.py", backend="'etcd v2'")),
    ),
    (
        {"script": "./my script.py"},
        expected("my script", command("'./my script.py'")),
    ),
    (
        {"script": "a.b.py", "image": "my/image:1"},
        expected("a.b", command("a.b.py"), image="my/image:1"),
    ),
]
DDP_ONLY = (
    {"script": "t.py", "h": "gpu.large", "j": "2"},
    expected("t", command("t.py"), resource=specs.resource(h="gpu.large")),
)
TORCHRUN_ONLY = [
    (
        {"script": "t.py", "h": "gpu.medium", "j": "3"},
        expected(
            "t",
            command("t.py", endpoint=RENDEZVOUS_AT_RANK0, nnodes="3"),
            nodes=(3, 3),
            resource=specs.resource(h="gpu.medium"),
        ),
    ),
    (  # torchx-nightly has no short form for elastic jobs
        {"script": "t.py", "h": "gpu.medium", "j": "1:3"},
        expected(
            "t",
            command("t.py", endpoint=RENDEZVOUS_AT_RANK0, nnodes="1:3"),
            nodes=(1, 3),
            resource=specs.resource(h="gpu.medium"),
        ),
    ),
]
SPMD = [
    (
        {"script": "t.py"},
        expected("t", command("t.py", nproc=1), resource=specs.resource(h="gpu.small")),
    ),
    (
        {"m": "a.b", "j": "2"},
        expected(
            "b",
            command("-m a.b", endpoint=RENDEZVOUS_AT_RANK0, nnodes="2", nproc=1),
            nodes=(2, 2),
            resource=specs.resource(h="gpu.small"),
        ),
    ),
    (
        {"m": "a.b", "h": "cpu.small"},
        expected("b", command("-m a.b", nproc=1), resource=specs.resource(h="cpu.small")),
    ),
    (
        {
            "m": "a.b",
            "h": "gpu.large",
            "j": "2",
            "debug": True,
            "env": {"X": "y"},
            "max_retries": 2,
            "name": "e/r",
            "mounts": ["type=volume", "src=v", "dst=/x"],
            "metadata": {"k": "v"},
        },
        expected(
            "r",
            command("-m a.b", endpoint=RENDEZVOUS_AT_RANK0, nnodes="2", nproc=4),
            role="b",
            experiment="e",
            nodes=(2, 2),
            resource=specs.resource(h="gpu.large"),
            env={"X": "y", **DEBUG},
            max_retries=2,
            mounts=[specs.VolumeMount("v", "/x")],
            metadata={"k": "v"},
        ),
    ),
    (  # in torchx-nightly, spmd cannot be elastic
        {"m": "a.b", "j": "1:4x1"},
        expected(
            "b",
            command("-m a.b", endpoint=RENDEZVOUS_AT_RANK0, nnodes="1:4", nproc=1),
            nodes=(1, 4),
            resource=specs.resource(h="gpu.small"),
        ),
    ),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("arguments", "job"), SAME_IN_DDP_AND_TORCHRUN)
@pytest.mark.parametrize("component", [dist.ddp, dist.torchrun])
def test_component_returns_this_job(
    component: Any, arguments: dict[str, Any], job: dict[str, Any]
) -> None:
    before = json.dumps(arguments)
    assert described(component(**arguments)) == job
    assert json.dumps(arguments) == before  # the caller's objects are not changed


@pytest.mark.filterwarnings("error")
def test_ddp_reads_a_single_number_as_processes() -> None:
    arguments, job = DDP_ONLY
    assert described(dist.ddp(**arguments)) == job


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("arguments", "job"), TORCHRUN_ONLY)
def test_torchrun_reads_a_single_number_as_nodes_with_h(
    arguments: dict[str, Any], job: dict[str, Any]
) -> None:
    assert described(dist.torchrun(**arguments)) == job


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("arguments", "job"), SPMD)
def test_spmd_returns_this_job(arguments: dict[str, Any], job: dict[str, Any]) -> None:
    assert described(dist.spmd(**arguments)) == job


def test_loglevel_of_the_launcher_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLEVEL", "INFO")
    assert dist.ddp(script="t.py").roles[0].env["LOGLEVEL"] == "INFO"
    asked = dist.ddp(script="t.py", env={"LOGLEVEL": "ERROR"})
    assert asked.roles[0].env["LOGLEVEL"] == "ERROR"


VALUES = specs.macros.Values(
    img_root="/img root", app_id="job-1", replica_id="3", rank0_env="RANK0_HOST"
)


def filled_in(app: specs.AppDef) -> specs.Role:
    return VALUES.apply(app.roles[0])


@given(st.lists(st.text(st.sampled_from("$ {}ab'\"\\\n_app_id"), max_size=8), max_size=5))
def test_arguments_reach_the_script(arguments: list[str]) -> None:
    role = filled_in(dist.ddp(*arguments, script="t.py"))
    argv = shlex.split(role.args[1])
    assert argv[argv.index("t.py") + 1 :] == [VALUES.substitute(word) for word in arguments]


@given(st.lists(st.text(st.sampled_from("$ {}ab'\"\\\n"), max_size=8), max_size=5))
def test_arguments_reach_the_script_with_string_template(arguments: list[str]) -> None:
    """Check the arguments after string.Template, with which older plugins substitute macros."""
    role = dist.ddp(*arguments, script="t.py").roles[0]
    line = string.Template(role.args[1]).safe_substitute(VALUES.to_dict())
    argv = shlex.split(line)
    assert argv[argv.index("t.py") + 1 :] == arguments


def test_macros_in_arguments_are_substituted() -> None:
    macros = specs.macros
    role = filled_in(dist.ddp("--out", f"{macros.img_root}/{macros.app_id}", script="t.py"))
    assert shlex.split(role.args[1])[-2:] == ["--out", "/img root/job-1"]


@pytest.mark.parametrize(
    ("replica", "host", "expected"),
    [
        ("0", "192.0.2.7", "localhost:29500"),  # torchrun may not recognize its own address
        ("3", "192.0.2.7", "192.0.2.7:29500"),
        ("3", "", "localhost:29500"),
    ],
)
def test_rank0_meets_itself_at_localhost(replica: str, host: str, expected: str) -> None:
    values = dataclasses.replace(VALUES, replica_id=replica)
    role = values.apply(dist.ddp(script="t.py", j="2x1").roles[0])
    line = role.args[1].replace("torchrun", "printf '%s\\n'", 1)
    done = subprocess.run(
        ["bash", "-c", line], env={"RANK0_HOST": host}, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    assert words[words.index("--rdzv_endpoint") + 1] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of --script and -m must be specified"),
        ({"script": "a", "m": "b"}, "exactly one of --script and -m"),
        ({"script": "t.py", "m": ""}, "exactly one of --script and -m"),
        ({"script": ""}, "No main module or script specified"),
        ({"script": "t.py", "j": "x"}, "Invalid format for -j.*Given: x"),
        ({"script": "t.py", "j": "1x2:3"}, "Invalid format for -j.*Given: 1x2:3"),
        # torchx-nightly accepts these, and torchrun fails on every node.
        ({"script": "t.py", "j": "0x1"}, "must be at least 1"),
        ({"script": "t.py", "j": "4:2x1"}, "exceeds the maximum.*did you mean 2:4x1?"),
        ({"script": "t.py", "rdzv_port": 0}, "--rdzv_port must be from 1 to 65535, got 0"),
        ({"script": "t.py", "rdzv_port": 65536}, "--rdzv_port"),
        ({"script": "t.py", "tee": 4}, "--tee must be from 0 to 3, got 4"),
        ({"script": "t.py", "mounts": ["src=/a"]}, "type must be specified first"),
    ],
)
@pytest.mark.parametrize("component", [dist.ddp, dist.torchrun])
def test_invalid_arguments_are_an_error(
    component: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        component(**arguments)
    assert isinstance(caught.value, TorchXError)


@pytest.mark.parametrize("component", [dist.ddp, dist.torchrun, dist.spmd])
def test_unknown_resource_is_an_error(component: Any) -> None:
    with pytest.raises(NamedResourceNotFoundError, match=r"gpu\.smal"):
        component(script="t.py", h="gpu.smal", j="1x1")


@pytest.mark.parametrize("component", [dist.torchrun, dist.spmd])
def test_processes_default_needs_gpus(component: Any) -> None:
    with pytest.raises(ValueError, match=r"`cpu\.small` is not a GPU instance.*-j 2x8"):
        component(script="t.py", h="cpu.small", j="2")


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        ({"gpu": 2, "j": "1x2"}, False),
        ({"gpu": 2, "j": "1x1"}, False),
        ({"gpu": 2, "j": "1x3"}, True),
        ({"gpu": 0, "j": "1x3"}, False),
        ({"h": "gpu.medium", "j": "2x8"}, True),
    ],
)
def test_more_processes_than_gpus_is_a_warning(arguments: dict[str, Any], warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.ddp(script="t.py", **arguments)
    assert len(caught) == warned
    if caught:
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("j", "parsed"),
    [
        ("1x2", (1, 1, 2, "1")),
        ("2:3x4", (2, 3, 4, "2:3")),
        ("3:3x1", (3, 3, 1, "3:3")),
        ("4", (1, 1, 4, "1")),
        ("01x02", (1, 1, 2, "1")),
    ],
)
def test_parse_nnodes(j: str, parsed: tuple[int, int, int, str]) -> None:
    assert dist.parse_nnodes(j) == parsed


@pytest.mark.parametrize(
    "j",
    [
        "",
        "x2",
        "1:2",
        "a",
        "1x",
        "1:2x",
        "-1x2",
        " 1x2",
        "1x2 ",
        "1x2\n",
        "1.5",
        "１x２",
        "2:1x1",
        "0",
    ],
)
def test_parse_nnodes_rejects_invalid_text(j: str) -> None:
    with pytest.raises(ValueError, match="-j"):
        dist.parse_nnodes(j)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["a", "b c"], "a 'b c'"),
        ([dist._noquote("$X"), "$X"], "$X '$X'"),
        (["", '"', "'"], "'' '\"' ''\"'\"''"),
        ([], ""),
        (["$$", "x"], "'$$' x"),
        (["$$", "${app_id}", dist._noquote("$$")], "'$$$$' '${app_id}' $$"),
    ],
)
def test_args_join_quotes_for_the_shell(argv: list[str], line: str) -> None:
    assert dist._args_join(argv) == line
    assert dist._args_join(iter(argv)) == line


@pytest.mark.parametrize(
    ("script", "m", "name"),
    [
        ("a/b.py", None, "b"),
        ("x.tar.gz", None, "x.tar"),
        ("noext", None, "noext"),
        (".hidden", None, ".hidden"),
        ("folder/", None, "folder"),
        ("s3://x/t.py", None, "t"),
        (None, "a.b", "b"),
        (None, "m", "m"),
    ],
)
def test_get_role_name(script: str | None, m: str | None, name: str) -> None:
    assert dist.get_role_name(script, m) == name


def test_get_role_name_needs_script_or_module() -> None:
    with pytest.raises(ValueError, match="failed to compute role_name"):
        dist.get_role_name(None, None)


def test_debug_sets_the_debug_flags() -> None:
    assert dist._TORCH_DEBUG_FLAGS == DEBUG
