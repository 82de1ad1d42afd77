from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import torchx_resources_aws as aws
import torchx_specs as specs
from torchx_resources_aws import plugin
from torchx_specs.plugins.manager import PluginManager, set_manager

UPSTREAM = json.loads(Path(__file__).with_name("upstream_aws.json").read_text("utf-8"))["resources"]
ALL = sorted(aws.NAMED_RESOURCES)


@pytest.fixture(autouse=True)
def only_this_plugin() -> None:
    manager = PluginManager(discover=False)
    manager.register(plugin, "aws")
    set_manager(manager)


@pytest.fixture(autouse=True, scope="module")
def afterwards() -> object:
    yield
    set_manager(None)


@pytest.mark.parametrize("name", sorted(UPSTREAM))
def test_resources_equal_those_of_earlier_releases(name: str) -> None:
    made = specs.resource(h=name)
    got = [made.cpu, made.gpu, made.memMB, made.capabilities, made.devices, made.tags]
    assert got == UPSTREAM[name]


@pytest.mark.parametrize("name", ALL)
def test_every_resource_is_registered(name: str) -> None:
    made = specs.resource(h=name)
    assert made.get_resource_name() == name
    assert made.cpu > 0
    assert made.memMB > 0
    assert all(count > 0 for count in made.devices.values())
    assert name.startswith(f"aws_{made.capabilities[aws.K8S_ITYPE]}")
    assert made is not specs.resource(h=name)


@pytest.mark.parametrize(
    ("name", "cpu", "gpu", "memory", "devices"),
    [
        # AWS's pages of instance types have these vCPUs, GPUs, memory in GiB, and devices.
        ("aws_p5.4xlarge", 16, 1, 256, {aws.EFA_DEVICE: 1}),
        ("aws_g6.12xlarge", 48, 4, 192, {aws.EFA_DEVICE: 1}),
        ("aws_g6f.xlarge", 4, 1, 16, {}),
        ("aws_trn1n.32xlarge", 128, 0, 512, {aws.EFA_DEVICE: 16, aws.NEURON_DEVICE: 16}),
        ("aws_trn2.48xlarge", 192, 0, 2048, {aws.EFA_DEVICE: 16, aws.NEURON_DEVICE: 16}),
        ("aws_inf1.24xlarge", 96, 0, 192, {aws.EFA_DEVICE: 1, aws.NEURON_DEVICE: 16}),
        ("aws_hpc7a.96xlarge", 192, 0, 768, {aws.EFA_DEVICE: 2}),
        ("aws_m7i.48xlarge", 192, 0, 768, {}),
        ("aws_c7i.2xlarge", 8, 0, 16, {}),
        ("aws_r7i.2xlarge", 8, 0, 64, {}),
    ],
)
def test_resource_of_a_newer_instance_type(
    name: str, cpu: int, gpu: int, memory: int, devices: dict[str, int]
) -> None:
    made = specs.resource(h=name)
    assert (made.cpu, made.gpu, made.devices) == (cpu, gpu, devices)
    assert made.memMB == int(memory * 1024 * aws.MEM_TAX)


def test_part_has_a_share_of_everything() -> None:
    whole = specs.resource(h="aws_p5.48xlarge")
    quarter = specs.resource(h="aws_p5.48xlarge_2")
    assert (quarter.cpu, quarter.gpu) == (whole.cpu // 4, 2)
    assert quarter.memMB == whole.memMB // 4
    assert quarter.devices == {aws.EFA_DEVICE: 8}
    assert quarter.capabilities == whole.capabilities
    assert quarter.is_fractional()
    assert not whole.is_fractional()


def test_all_gpus_are_the_whole_instance() -> None:
    whole, named = specs.resource(h="aws_p5.48xlarge"), specs.resource(h="aws_p5.48xlarge_8")
    assert not named.is_fractional()
    assert (named.cpu, named.gpu, named.memMB) == (whole.cpu, whole.gpu, whole.memMB)
    assert named.devices == whole.devices


def test_device_with_a_share_below_one_is_left_out() -> None:
    assert specs.resource(h="aws_g5.48xlarge").devices == {aws.EFA_DEVICE: 1}
    assert specs.resource(h="aws_g5.48xlarge_4").devices == {}


def test_parts_do_not_exceed_the_instance() -> None:
    for name in ALL:
        base, _, gpus = name.partition("_")[2].partition("_")
        if gpus:
            whole, one = aws.instance(base), aws.part(base, int(gpus))
            times = whole.gpu // one.gpu
            assert times * one.cpu <= whole.cpu
            assert times * one.memMB <= whole.memMB
            assert all(times * n <= whole.devices[device] for device, n in one.devices.items())


def test_instance_with_at_most_one_gpu_has_no_parts() -> None:
    assert not [name for name in ALL if name.startswith(("aws_p3.2xlarge_", "aws_trn1.32xlarge_"))]


@pytest.mark.parametrize("gpus", [0, 9, -1])
def test_too_many_gpus_are_an_error(gpus: int) -> None:
    with pytest.raises(ValueError, match="has 8 GPUs"):
        aws.part("p5.48xlarge", gpus)


def test_each_resource_is_a_function_of_the_module() -> None:
    assert aws.aws_p6_b200_48xlarge().gpu == 8
    assert aws.aws_p5_48xlarge_2().gpu == 2
    assert "aws_t3_medium" in dir(aws)
    assert len([name for name in dir(aws) if name.startswith("aws_")]) == len(ALL)
    with pytest.raises(AttributeError, match="aws_nope"):
        aws.aws_nope  # noqa: B018


def test_instance_type_from_resource() -> None:
    assert aws.instance_type_from_resource(specs.resource(h="aws_t3.medium")) == "t3.medium"
    with pytest.warns(UserWarning, match="has no instance type"):
        assert aws.instance_type_from_resource(specs.Resource(1, 0, 1)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aws.instance_type_from_resource(specs.resource(h="aws_t3.medium"))


def test_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(KeyError, match=r"aws_p5\.48xlarge"):
        specs.resource(h="aws_p5.48xlrge")


def test_listing_loads_few_modules() -> None:
    code = (
        "import sys\n"
        "from torchx_resources_aws import plugin\n"
        "assert len(list(plugin.torchx_named_resources())) > 300\n"
        "print([m for m in ('pluggy', 'json', 'csv', 'pathlib', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_plugin_does_not_import_the_table() -> None:
    code = (
        "import sys, torchx_resources_aws.plugin\n"
        "print([m for m in sys.modules if m.startswith('torchx_resources_aws.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['torchx_resources_aws.plugin']"
