"""Requests of aws_sagemaker, checked against botocore's model."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob, configured_region
from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler, create_scheduler
from torchx_specs import (
    AppDef,
    BindMount,
    RetryPolicy,
    Role,
    macros,
)
from torchx_specs.errors import RequestError
from torchx_specs.overlays import DEL, set_overlay

Request = Callable[..., AWSSageMakerJob]
ROLE = "arn:aws:iam::123456789012:role/service-role/Trainer"
CFG: dict[str, Any] = {
    "role": ROLE,
    "instance_type": "ml.m5.large",
    "output_path": "s3://bucket/out",
    "user": "me",
}


@pytest.fixture
def scheduler() -> AWSSageMakerScheduler:
    return create_scheduler("test", unknown="ignored")


@pytest.fixture
def request_of(
    scheduler: AWSSageMakerScheduler, validate: Callable[[str, str, Mapping[str, Any]], None]
) -> Request:
    """Return a function that makes the request for a role and checks it against the model."""

    def make(role: Role | None = None, app: AppDef | None = None, **cfg: Any) -> AWSSageMakerJob:
        app = app or AppDef("app", [role or command()])
        job: AWSSageMakerJob = scheduler.submit_dryrun(app, {**CFG, **cfg}).request
        validate("sagemaker", "CreateTrainingJob", job.job_def)
        return job

    return make


@pytest.fixture
def error_of(scheduler: AWSSageMakerScheduler) -> Callable[..., str]:
    """Return a function that makes an invalid request and returns the text of the error."""

    def error_text(*roles: Role, app: AppDef | None = None, **cfg: Any) -> str:
        app = app or AppDef("app", list(roles or [command()]))
        with pytest.raises(RequestError) as caught:
            scheduler.submit_dryrun(app, {**CFG, **cfg})
        return str(caught.value)

    return error_text


def command(**fields: Any) -> Role:
    return Role(**{"name": "r", "image": "i:1", "entrypoint": "echo", "args": ["hi"], **fields})


def script(*args: str, **fields: Any) -> Role:
    """Return a role without an entrypoint, whose first argument is the script."""
    return command(args=list(args), **{"entrypoint": "", **fields})


def test_command_is_entrypoint_and_arguments(request_of: Request) -> None:
    job = request_of(command(env={"A": "b"}))
    name = job.job_name
    assert name.startswith("app-")
    assert job.images_to_push == {}
    assert job.job_def == {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "i:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["echo"],
            "ContainerArguments": ["hi"],
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86_400},
        "Tags": job.job_def["Tags"],
        "Environment": {
            "TORCHX_JOB_ID": name,
            "TORCHX_ROLE_NAME": "r",
            "TORCHX_REPLICA_ID": "0",
            "TORCHX_RANK0_HOST": "localhost",
            "A": "b",
        },
    }
    tags = {tag["Key"]: tag["Value"] for tag in job.job_def["Tags"]}
    assert tags["torchx.pytorch.org/app-name"] == "app"
    assert tags["torchx.pytorch.org/user"] == "me"


def test_instances_know_their_index(request_of: Request) -> None:
    algorithm = request_of(command(num_replicas=2)).job_def["AlgorithmSpecification"]
    script = "".join(algorithm["ContainerArguments"])
    assert script.endswith('exec env TORCHX_REPLICA_ID="$__torchx_k" echo hi')


def test_every_option_has_its_field(request_of: Request) -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:credentials"
    job = request_of(
        instance_count=4,
        keep_alive_period_in_seconds=60,
        volume_size=100,
        volume_kms_key="volume-key",
        max_run=600,
        input_mode="FastFile",
        output_kms_key="output-key",
        base_job_name="base",
        tags=[{"Key": "team", "Value": "vision"}],
        subnets=["subnet-1", "subnet-2"],
        security_group_ids=["sg-1"],
        model_uri="s3://bucket/model",
        model_channel_name="pretrained",
        metric_definitions=[{"Name": "loss", "Regex": "loss=(.*?);"}],
        encrypt_inter_container_traffic=True,
        checkpoint_s3_uri="s3://bucket/checkpoints",
        checkpoint_local_path="/opt/ml/kept",
        debugger_hook_config=True,
        enable_sagemaker_metrics=True,
        enable_network_isolation=True,
        disable_profiler=True,
        environment={"A": "b"},
        max_retry_attempts=3,
        hyperparameters={"lr": "0.1"},
        training_repository_access_mode="Vpc",
        training_repository_credentials_provider_arn=arn,
        disable_output_compression=True,
        enable_infra_check=True,
    )
    found = job.job_def
    assert job.job_name.startswith("base-")
    assert found["ResourceConfig"] == {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 4,
        "VolumeSizeInGB": 100,
        "VolumeKmsKeyId": "volume-key",
        "KeepAlivePeriodInSeconds": 60,
    }
    assert found["StoppingCondition"] == {"MaxRuntimeInSeconds": 600}
    assert found["OutputDataConfig"] == {
        "S3OutputPath": "s3://bucket/out",
        "KmsKeyId": "output-key",
        "CompressionType": "NONE",
    }
    assert {"Key": "team", "Value": "vision"} in found["Tags"]
    assert found["VpcConfig"] == {
        "SecurityGroupIds": ["sg-1"],
        "Subnets": ["subnet-1", "subnet-2"],
    }
    (channel,) = found["InputDataConfig"]
    assert channel["ChannelName"] == "pretrained"
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/model"
    algorithm = found["AlgorithmSpecification"]
    assert algorithm["TrainingInputMode"] == "FastFile"
    assert algorithm["MetricDefinitions"] == [{"Name": "loss", "Regex": "loss=(.*?);"}]
    assert algorithm["EnableSageMakerMetricsTimeSeries"] is True
    assert algorithm["TrainingImageConfig"] == {
        "TrainingRepositoryAccessMode": "Vpc",
        "TrainingRepositoryAuthConfig": {"TrainingRepositoryCredentialsProviderArn": arn},
    }
    assert found["EnableInterContainerTrafficEncryption"] is True
    assert found["EnableNetworkIsolation"] is True
    assert found["CheckpointConfig"] == {
        "S3Uri": "s3://bucket/checkpoints",
        "LocalPath": "/opt/ml/kept",
    }
    assert found["DebugHookConfig"] == {"S3OutputPath": "s3://bucket/out"}
    assert found["ProfilerConfig"] == {"DisableProfiler": True}
    assert found["Environment"]["A"] == "b"
    assert found["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert found["HyperParameters"] == {"lr": "0.1"}
    assert found["InfraCheckConfig"] == {"EnableInfraCheck": True}


# Options that the test above leaves out, because other tests cover them.
_WITHOUT_FIELD = {
    *("user", "launch", "source_dir", "git_config", "container_log_level", "code_location"),
    *(
        "time",
        "dependencies",
        "role",
        "instance_type",
        "output_path",
        "use_spot_instances",
        "max_wait",
    ),
}


def test_every_option_is_covered_by_the_test_above() -> None:
    body = inspect.getsource(test_every_option_has_its_field)
    options = set(AWSSageMakerOpts.as_runopts()._opts)
    assert {name for name in options if f"        {name}=" not in body} == _WITHOUT_FIELD


@pytest.mark.parametrize(
    ("cfg", "expected"),
    [
        ({}, {"MaxRuntimeInSeconds": 86_400, "MaxWaitTimeInSeconds": 86_400}),
        ({"time": "1m"}, {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}),
        ({"max_run": 60}, {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}),
        (
            {"max_run": 60, "max_wait": 90},
            {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90},
        ),
        ({"max_wait": 3600}, {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 3600}),
    ],
)
def test_spot_instances_have_a_maximum_wait_time(
    request_of: Request, cfg: dict[str, Any], expected: dict[str, int]
) -> None:
    found = request_of(use_spot_instances=True, **cfg).job_def
    assert found["EnableManagedSpotTraining"] is True
    assert found["StoppingCondition"] == expected


def test_options_can_be_given_as_text(
    scheduler: AWSSageMakerScheduler, request_of: Request
) -> None:
    cfg = scheduler.run_opts().cfg_from_str(
        "tags=team:vision;cost:a b,environment=A:b;C:d,subnets=s-1;s-2,security_group_ids=g"
    )
    found = request_of(**cfg).job_def
    assert {"Key": "cost", "Value": "a b"} in found["Tags"]
    assert found["Environment"]["C"] == "d"
    assert found["VpcConfig"]["Subnets"] == ["s-1", "s-2"]
    text = '[{"Name": "loss", "Regex": "loss=(.*);"}]'
    found = request_of(metric_definitions=text).job_def
    assert found["AlgorithmSpecification"]["MetricDefinitions"][0]["Regex"] == "loss=(.*);"


def test_overlays_set_any_field(request_of: Request) -> None:
    app = AppDef("app", [command()])
    set_overlay(
        app,
        "aws_sagemaker",
        "CreateTrainingJob",
        {
            "ExperimentConfig": {"ExperimentName": "e"},
            "ResourceConfig": {
                "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/a"
            },
            DEL("StoppingCondition"): None,
        },
    )
    set_overlay(
        app.roles[0],
        "aws_sagemaker",
        "CreateTrainingJob",
        {"AlgorithmSpecification": {"TrainingInputMode": "Pipe"}},
    )
    found = request_of(app=app).job_def
    assert found["ExperimentConfig"] == {"ExperimentName": "e"}
    assert found["ResourceConfig"]["TrainingPlanArn"].endswith("training-plan/a")
    assert found["ResourceConfig"]["InstanceCount"] == 1
    assert "StoppingCondition" not in found
    assert found["AlgorithmSpecification"]["TrainingInputMode"] == "Pipe"


def test_metadata_becomes_tags(request_of: Request) -> None:
    app = AppDef("app", [command()], {"team": "vision", "odd": "a,b"})
    tags = {tag["Key"]: tag["Value"] for tag in request_of(app=app).job_def["Tags"]}
    assert (tags["team"], tags["odd"]) == ("vision", "a_b")


def test_max_retries_become_a_retry_strategy(request_of: Request) -> None:
    found = request_of(command(max_retries=2)).job_def
    assert found["RetryStrategy"] == {"MaximumRetryAttempts": 2}


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("trainer", "trainer-"),
        ("exp/run", "run-"),
        ("exp/", "exp-"),
        ("a b_c", "a-b-c-"),
        ("x" * 80, "x" * 30),
    ],
)
def test_job_name_is_made_from_the_app_name(request_of: Request, name: str, prefix: str) -> None:
    job = request_of(app=AppDef(name, [command()]))
    assert job.job_name.startswith(prefix)
    assert len(job.job_name) <= 63


def test_default_output_path_is_the_account_bucket(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    found = request_of(output_path=None).job_def
    assert found["OutputDataConfig"]["S3OutputPath"] == "s3://sagemaker-eu-west-1-123456789012/"


def test_region_is_read_from_the_sdk_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configured_region() == ""
    config = tmp_path / ".aws" / "config"
    config.parent.mkdir()
    config.write_text("[default]\nregion = us-west-2\n[profile work]\nregion=eu-north-1\n")
    assert configured_region() == "us-west-2"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert configured_region() == "eu-north-1"
    from boto3.session import Session

    assert Session().region_name == "eu-north-1"
    config.write_text("no ini file")
    assert configured_region() == ""


def test_script_becomes_hyperparameters(request_of: Request) -> None:
    job = request_of(
        script("train.py", "--lr", "0.1", "--name=a b", "--neg", "-1"),
        hyperparameters={"lr": "1", "seed": "7"},
        container_log_level=10,
    )
    assert "ContainerEntrypoint" not in job.job_def["AlgorithmSpecification"]
    assert job.job_def["HyperParameters"] == {
        "lr": '"0.1"',
        "seed": '"7"',
        "name": '"a b"',
        "neg": '"-1"',
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"/opt/ml/code"',
        "sagemaker_container_log_level": "10",
        "sagemaker_job_name": f'"{job.job_name}"',
        "sagemaker_torch_distributed_enabled": "true",
    }


def test_module_with_source_in_s3(request_of: Request) -> None:
    job = request_of(script("-m", "pkg.train", "--a", "b"), source_dir="s3://b/source.tar.gz")
    found = job.job_def["HyperParameters"]
    assert found["sagemaker_program"] == '"-m pkg.train"'
    assert found["sagemaker_submit_directory"] == '"s3://b/source.tar.gz"'


@pytest.mark.parametrize(
    "args", [["train.py", "positional"], ["train.py", "--flag"], ["-c", "print()"], ["-m"]]
)
def test_other_arguments_run_as_a_command(
    request_of: Request, error_of: Callable[..., str], args: list[str]
) -> None:
    role = script(*args, entrypoint="python")
    algorithm = request_of(role).job_def["AlgorithmSpecification"]
    assert algorithm["ContainerEntrypoint"] == ["python"]
    assert algorithm["ContainerArguments"] == args
    assert "launch=script" in error_of(script(*args), launch="script")


def test_launch_command_runs_a_script_as_a_command(request_of: Request) -> None:
    role = script("--lr", "1", entrypoint="train.py")
    algorithm = request_of(role, launch="command").job_def["AlgorithmSpecification"]
    assert algorithm["ContainerEntrypoint"] == ["train.py"]


def test_script_as_entrypoint_becomes_hyperparameters(request_of: Request) -> None:
    found = request_of(script("--lr", "1", entrypoint="train.py")).job_def["HyperParameters"]
    assert (found["sagemaker_program"], found["lr"]) == ('"train.py"', '"1"')


def test_launch_script_ignores_the_program_of_the_entrypoint(request_of: Request) -> None:
    role = script("train.py", entrypoint="python")
    found = request_of(role, launch="script").job_def["HyperParameters"]
    assert found["sagemaker_program"] == '"train.py"'


# Implementations of sh in common images; those that are not installed here are left out.
SHELLS = [["sh"], *([*s] for s in (["bash"], ["busybox", "sh"]) if shutil.which(s[0]))]


def unpacked(
    job: AWSSageMakerJob,
    *,
    index: int = 0,
    tmp: Path | None = None,
    shell: Sequence[str] = ("sh",),
) -> list[str]:
    """Run the command of a container and return the arguments that the program receives."""
    algorithm = job.job_def["AlgorithmSpecification"]
    argv = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", ())]
    if argv[0] == "sh":
        argv[:1] = shell
    env = {"PATH": "/usr/bin:/bin", **job.job_def["Environment"]}
    if tmp is not None:
        folder = tmp / "input" / "config"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "resourceconfig.json").write_text(f'{{"current_host": "algo-{index + 1}"}}')
        env["SAGEMAKER_BASE_DIR"] = str(tmp)
    done = subprocess.run(argv, env=env, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def printing(*argv: str, **fields: Any) -> Role:
    args = ["-c", r'for w; do printf "%s\0" "$w"; done', "sh", *argv]
    return command(entrypoint="sh", args=args, **fields)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    "argv",
    [
        ["x" * 257],
        ["a\nb\r", "\u2028\u0085"],
        ["'" * 300, '"' * 300, "\\" * 300, "$HOME `id` \\n %s \\0101" * 20],
        ["", " ", "\t", "\u00e9\u4e2d\U0001f600" * 100],
        ["w"] * 250,
    ],
)
def test_arguments_beyond_the_limits_arrive(
    request_of: Request, argv: list[str], shell: list[str]
) -> None:
    job = request_of(printing(*argv))
    algorithm = job.job_def["AlgorithmSpecification"]
    sent = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
    assert all(len(argument) <= 256 and len(argument.splitlines()) <= 1 for argument in sent)
    assert len(algorithm["ContainerEntrypoint"]) <= 100
    assert len(algorithm["ContainerArguments"]) <= 100
    assert unpacked(job, shell=shell) == argv


def test_long_variables_and_the_replica_index_arrive(request_of: Request, tmp_path: Path) -> None:
    env = {"LONG": "it's\n" * 200, "K": f"<{macros.replica_id}>"}
    args = ["-c", r'printf "%s\0" "$1" "$K" "$LONG"', "sh", macros.replica_id]
    job = request_of(command(entrypoint="sh", args=args, env=env, num_replicas=12))
    assert "LONG" not in job.job_def["Environment"]
    for shell in SHELLS:
        for k in (0, 11):
            found = unpacked(job, index=k, tmp=tmp_path, shell=shell)
            assert found == [str(k), f"<{k}>", env["LONG"]]


def test_unusual_variable_names_arrive(request_of: Request) -> None:
    job = request_of(command(entrypoint="env", args=["-0"], env={"odd.name": "v"}))
    assert "odd.name" not in job.job_def["Environment"]
    assert "odd.name=v" in unpacked(job)


def test_more_than_a_hundred_variables_arrive(request_of: Request) -> None:
    env = {f"V{i}": str(i) for i in range(150)}
    role = command(entrypoint="env", args=["-0"], env=env)
    job = request_of(role)
    assert len(job.job_def["Environment"]) == 100
    found = dict(item.split("=", 1) for item in unpacked(job))
    assert env.items() <= found.items()


def test_printed_request_is_yaml_without_secrets(
    scheduler: AWSSageMakerScheduler,
) -> None:
    env = {"MY_TOKEN": "hush", "LONG_SECRET": "hush" * 200, "PLAIN": "seen"}
    info = scheduler.submit_dryrun(AppDef("app", [command(env=env)]), CFG)
    text = str(info)
    assert "hush" not in text
    printed = yaml.safe_load(text)
    assert printed["job_name"] == info.request.job_name
    assert printed["job_def"]["Environment"]["MY_TOKEN"] == "***"
    assert printed["job_def"]["Environment"]["PLAIN"] == "seen"
    assert printed["job_def"]["Tags"] == info.request.job_def["Tags"]
    assert str(info.request) == text
    assert info.request.job_def["Environment"]["MY_TOKEN"] == "hush"


@pytest.mark.parametrize("padding", [0, 97, 98, 99, 100, 300], ids="{} arguments before".format)
def test_printed_request_has_no_secret_in_arguments_metadata_and_hyperparameters(
    scheduler: AWSSageMakerScheduler, padding: int
) -> None:
    args = ["x"] * padding + ["--hf-token", "hush", "--password=hush", "https://hush@host"]
    app = AppDef("app", [command(args=args)], {"api_key": "hush", "team": "a"})
    info = scheduler.submit_dryrun(app, {**CFG, "hyperparameters": {"hf-token": "hush"}})
    assert "hush" not in str(info)
    assert "hush" in json.dumps(info.request.job_def)
    printed = yaml.safe_load(str(info))
    assert {"Key": "team", "Value": "a"} in printed["job_def"]["Tags"]


def test_printed_request_without_secrets_is_complete(request_of: Request) -> None:
    job = request_of()
    assert yaml.safe_load(str(job))["job_def"] == job.job_def


def test_dry_run_imports_no_sdk() -> None:
    code = f"""
import sys
from torchx_specs import AppDef, Role
from torchx_sched_aws.sagemaker.scheduler import create_scheduler
app = AppDef("a", [Role("r", "i", entrypoint="echo", args=["x" * 300])])
print(create_scheduler("s").submit_dryrun(app, {CFG!r}))
loaded = [m for m in ("boto3", "botocore", "sagemaker") if m in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": ""}, "no image"),
        ({"image": "x" * 300}, "SageMaker allows 255"),
        ({"num_replicas": 0}, "num_replicas is 0"),
        ({"mounts": [BindMount("/a", "/b")]}, "InputDataConfig"),
        ({"max_retries": 31}, "at most 30 times"),
        ({"max_retries": 1, "retry_policy": RetryPolicy.REPLICA}, "only restart the whole job"),
        ({"entrypoint": "<MISSING>"}, "no entrypoint"),
        ({"args": ["\0"]}, "NUL"),
        ({"args": ["\udcff"]}, "not UTF-8"),
        ({"env": {"A": "\udcff"}}, "not UTF-8"),
        ({"env": {"A=B": "c"}}, "not a valid variable name"),
        ({"image": "a b"}, "contains a space"),
        ({"args": ["x" * 60_000]}, "SageMaker allows 50176"),
    ],
)
def test_invalid_role_is_an_error(
    error_of: Callable[..., str], fields: dict[str, Any], message: str
) -> None:
    text = error_of(command(**fields))
    assert message in text
    assert "role 'r'" in text


def test_several_roles_are_an_error(error_of: Callable[..., str]) -> None:
    app = AppDef("app", [command(name="a"), command(name="b")])
    assert "the app has 2 roles (a, b)" in error_of(app=app)


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"role": "arn:aws:s3:::bucket"}, "IAM role"),
        ({"instance_type": "p4d.24xlarge"}, "begin with 'ml.'"),
        ({"launch": "scripts"}, "did you mean 'script'"),
        ({"input_mode": "file"}, "did you mean 'File'"),
        ({"instance_count": 0}, "instance_count=0 is not valid; it must be at least 1"),
        ({"max_retry_attempts": 31}, "at most 30"),
        ({"output_path": "/local"}, "s3://BUCKET/PREFIX"),
        ({"max_wait": 60}, "use_spot_instances"),
        ({"time": "5"}, "option time: '5' is not a time limit"),
        ({"use_spot_instances": True, "max_run": 90, "max_wait": 60}, "includes max_run=90"),
        (
            {"use_spot_instances": True, "keep_alive_period_in_seconds": 9},
            "cannot be used with use_spot_instances",
        ),
        ({"checkpoint_local_path": "/a"}, "requires checkpoint_s3_uri"),
        ({"subnets": ["a"]}, "must be set together"),
        ({"model_channel_name": "a"}, "requires model_uri"),
        ({"git_config": {"repo": "a"}}, "--workspace"),
        ({"dependencies": ["../lib"]}, "../lib: lib"),
        ({"source_dir": "src"}, "--workspace src"),
        ({"tags": "novalue"}, "tags: 'novalue'"),
        ({"tags": "[1"}, "not valid JSON"),
        ({"tags": [{"key": "a"}]}, "named Key and Value"),
        ({"tags": ";".join(f"k{i}:v" for i in range(60))}, "63 tags"),
        ({"metric_definitions": [{"Name": "a"}]}, "named Name and Regex"),
        ({"hyperparameters": {"a": "x" * 2501}}, "2501 characters"),
        ({"hyperparameters": {"a": "x\ny"}}, "line end"),
        ({"hyperparameters": {f"h{i}": "" for i in range(101)}}, "101 hyperparameters"),
        ({"output_path": None}, "output_path is missing"),
        ({"training_repository_access_mode": "VPC"}, "did you mean 'Vpc'"),
    ],
)
def test_invalid_option_is_an_error(
    error_of: Callable[..., str], cfg: dict[str, Any], message: str
) -> None:
    assert message in error_of(**cfg)


def test_all_problems_are_reported_together(error_of: Callable[..., str]) -> None:
    text = error_of(command(image=""), instance_type="x", output_path="y")
    assert all(message in text for message in ("no image", "instance_type", "output_path"))


def test_scripts_reject_replica_index_and_long_variables(error_of: Callable[..., str]) -> None:
    role = script("train.py", "--k", macros.replica_id, env={"L": "x" * 600})
    text = error_of(role)
    assert "cannot be used with launch=script" in text
    assert "environment variables['L'] has 600 characters; SageMaker allows 512" in text


def test_code_location_logs_a_warning(
    request_of: Request, caplog: pytest.LogCaptureFixture
) -> None:
    request_of(code_location="s3://bucket/code")
    assert "code_location is ignored" in caplog.text
