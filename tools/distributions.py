"""The distributions of this repository: one table.

What each one is called, what it stands on, what it needs and what it registers. The project files
are stamped from it by ``tools/packages.py``; the other tools read it to know what there is.

Standard library only: ``tools/bootstrap.py`` reads it before anything is installed. Its name is not
``packages``, which is what pytest calls the folder of that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "packages"
VERSION_FILE = PACKAGES / "torchx-specs" / "src" / "torchx_specs" / "version.py"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")

CLICK = "click>=8.1"
DOCKER = "docker>=7.0"
FSSPEC = "fsspec>=2023.10"
HYDRA = "hydra-core>=1.3"
HYPOTHESIS = "hypothesis>=6.90"
JSONSCHEMA = "jsonschema>=4.17"
PLUGGY = "pluggy>=1.3"
PSUTIL = "psutil>=5.9"
PYTEST = "pytest>=7.4"
PYYAML = "pyyaml>=6.0"
REQUESTS = "requests>=2.26"
URLLIB3 = "urllib3>=1.26"


@dataclass(frozen=True)
class Distribution:
    """One row of the table.

    Attributes:
        name: The distribution's name; siblings are named by it too.
        summary: One line, for the package index.
        floor: The floor of the design it stands on: it imports only from lower ones.
        ours: Siblings that it needs.
        others: Requirements from elsewhere.
        extras: Optional requirements; a sibling is given by its plain name.
        plugin: The module it registers in the ``torchx`` entry-point group.
        scripts: Console scripts.
        entry_points: Further entry points, group by group.
        test: What its own tests need beyond pytest, hypothesis and its own requirements.
        optional: Import names that it uses where they are there, without declaring them: what a
            job's own environment brings along, or who calls (click, in a sub-command).
    """

    name: str
    summary: str
    floor: int
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    extras: dict[str, tuple[str, ...]] = field(default_factory=dict)
    plugin: str | None = None
    scripts: dict[str, str] = field(default_factory=dict)
    entry_points: dict[str, dict[str, str]] = field(default_factory=dict)
    test: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The import name."""
        return self.name.replace("-", "_")

    @property
    def folder(self) -> Path:
        return PACKAGES / self.name

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.module

    @property
    def exists(self) -> bool:
        """Whether there is code for it yet; only then is it a member of the workspace."""
        return any(self.source.glob("**/*.py"))


DISTRIBUTIONS = (
    Distribution(
        "torchx-specs",
        "The TorchX data model and plugin contract: what a job is, and how to extend it",
        floor=0,
        others=(PLUGGY,),
        extras={"yaml": (PYYAML,), "fsspec": (FSSPEC,), "all": (PYYAML, FSSPEC)},
        test=(PYYAML, FSSPEC, JSONSCHEMA),
    ),
    Distribution(
        "torchx-kit",
        "What authors of TorchX schedulers and workspace builders share",
        floor=1,
        ours=("torchx-specs",),
        extras={"fsspec": (FSSPEC,)},
        plugin="torchx_kit.plugin",
        test=(PYYAML, FSSPEC),
    ),
    Distribution(
        "torchx-runner",
        "The TorchX runner: finds a component, settles its workspace, hands it to a scheduler",
        floor=3,
        ours=("torchx-specs",),
    ),
    Distribution(
        "torchx-cli",
        "The torchx command",
        floor=4,
        ours=("torchx-specs", "torchx-runner"),
        others=(CLICK, "rich>=13.0", PYYAML),
        plugin="torchx_cli.plugin",
        scripts={"torchx": "torchx_cli.main:main"},
    ),
    Distribution(
        "torchx-components",
        "The components that come with TorchX: dist, utils, serve, metrics, interpret",
        floor=2,
        ours=("torchx-specs",),
        extras={"hydra": (HYDRA,)},
        plugin="torchx_components.plugin",
        test=(HYDRA,),
    ),
    Distribution(
        "torchx-apps",
        "The programs that TorchX components start, and helpers for code inside a job",
        floor=0,
        others=(FSSPEC,),
        optional=("torch",),
    ),
    Distribution(
        "torchx-tracker",
        "Experiment tracking from inside a TorchX job",
        floor=3,
        ours=("torchx-specs",),
        plugin="torchx_tracker.plugin",
        test=(CLICK, PYYAML),
        optional=("click",),
    ),
    Distribution(
        "torchx-tracker-fsspec",
        "TorchX tracker that writes to any fsspec file system",
        floor=2,
        ours=("torchx-specs",),
        others=(FSSPEC,),
        plugin="torchx_tracker_fsspec.plugin",
    ),
    Distribution(
        "torchx-tracker-mlflow",
        "TorchX tracker for MLflow",
        floor=2,
        ours=("torchx-specs",),
        others=("mlflow-skinny>=2.9",),
        plugin="torchx_tracker_mlflow.plugin",
    ),
    Distribution(
        "torchx-sched-local",
        "TorchX scheduler for this machine: durable local jobs (local_cwd)",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        others=(f"{PSUTIL}; sys_platform != 'linux'",),
        plugin="torchx_sched_local.plugin",
        test=(PSUTIL,),
    ),
    Distribution(
        "torchx-sched-docker",
        "TorchX scheduler for Docker Engine (local_docker)",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        # requests and urllib3 are the docker library's own; their errors come through it.
        others=(DOCKER, PYYAML, REQUESTS, URLLIB3),
        plugin="torchx_sched_docker.plugin",
    ),
    Distribution(
        "torchx-sched-slurm",
        "TorchX scheduler for Slurm",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        plugin="torchx_sched_slurm.plugin",
    ),
    Distribution(
        "torchx-sched-lsf",
        "TorchX scheduler for IBM Spectrum LSF and compatible systems",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        plugin="torchx_sched_lsf.plugin",
    ),
    Distribution(
        "torchx-sched-k8s",
        "TorchX schedulers for Kubernetes (kubernetes, kubernetes_mcad)",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        # urllib3 is the kubernetes library's own; its errors come through it.
        others=("kubernetes>=28.1", PYYAML, URLLIB3),
        plugin="torchx_sched_k8s.plugin",
        test=("kubernetes-validate>=1.32",),
    ),
    Distribution(
        "torchx-sched-aws",
        "TorchX schedulers for AWS Batch and SageMaker",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        others=("boto3>=1.34", PYYAML),
        plugin="torchx_sched_aws.plugin",
    ),
    Distribution(
        "torchx-workspace-docker",
        "TorchX workspace builder for container images, with a Docker daemon or without",
        floor=2,
        ours=("torchx-specs", "torchx-kit"),
        others=(URLLIB3,),
        extras={"docker": (DOCKER, REQUESTS)},
        plugin="torchx_workspace_docker.plugin",
        optional=("boto3", "botocore"),
    ),
    Distribution(
        "torchx-resources-aws",
        "TorchX named resources for AWS instance types (aws_*)",
        floor=2,
        ours=("torchx-specs",),
        plugin="torchx_resources_aws.plugin",
    ),
    Distribution(
        "torchx-notebook",
        "TorchX magics for IPython and Jupyter",
        floor=4,
        ours=("torchx-specs", "torchx-runner"),
        others=("ipython>=8.0", FSSPEC),
        test=("ipykernel>=6.20", "nbclient>=0.8", "nbformat>=5.7"),
    ),
    Distribution(
        "torchx-testing",
        "Conformance suites for TorchX schedulers, trackers and plugins, as a pytest plugin",
        floor=5,
        ours=("torchx-specs", "torchx-runner"),
        others=(PYTEST, HYPOTHESIS),
        optional=("torch",),
        entry_points={"pytest11": {"torchx_testing": "torchx_testing.plugin"}},
    ),
    Distribution(
        "torchx",
        "Launch jobs on any scheduler: the torchx command and library, drop-in",
        floor=5,
        ours=(
            "torchx-specs",
            "torchx-kit",
            "torchx-runner",
            "torchx-cli",
            "torchx-components",
            "torchx-apps",
            "torchx-tracker",
            "torchx-tracker-fsspec",
            "torchx-resources-aws",
            "torchx-sched-local",
            "torchx-sched-docker",
            "torchx-sched-slurm",
            "torchx-sched-lsf",
            "torchx-workspace-docker",
        ),
        # The last three are for clients that use them without declaring them, because upstream's
        # releases brought them along: NeMo-Run filelock and importlib-metadata, Ax tabulate.
        others=(CLICK, "filelock", "importlib-metadata", "tabulate"),
        extras={
            "kubernetes": ("torchx-sched-k8s",),
            "aws": ("torchx-sched-aws",),
            "mlflow": ("torchx-tracker-mlflow",),
            "notebook": ("torchx-notebook",),
            "all": (
                "torchx-sched-k8s",
                "torchx-sched-aws",
                "torchx-tracker-mlflow",
                "torchx-notebook",
            ),
        },
        plugin="torchx.bridges.plugin",
        # Faces of what may be installed beside it; each says what to install where it isn't.
        optional=("torchx_testing",),
    ),
)

BY_NAME = {distribution.name: distribution for distribution in DISTRIBUTIONS}

# Members of the workspace from the start, code or no code.
FOUNDATION = frozenset(
    {
        "torchx",
        "torchx-apps",
        "torchx-cli",
        "torchx-components",
        "torchx-kit",
        "torchx-resources-aws",
        "torchx-runner",
        "torchx-sched-local",
        "torchx-specs",
        "torchx-testing",
        "torchx-tracker",
        "torchx-tracker-fsspec",
    }
)


def version() -> str:
    """The version of every distribution, from the one place that has it."""
    match = re.search(r'^__version__ = "([^"]+)"$', VERSION_FILE.read_text("utf-8"), re.M)
    if match is None:
        raise SystemExit(f'{VERSION_FILE}: no line `__version__ = "..."`')
    return match.group(1)


def members() -> list[Distribution]:
    """The distributions that are in the workspace, in the table's order."""
    return [d for d in DISTRIBUTIONS if d.name in FOUNDATION or d.exists]
