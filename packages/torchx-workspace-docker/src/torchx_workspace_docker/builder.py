"""The workspace type ``docker``: an image with the workspace's files added to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torchx_kit.workspace import FileDigests, tree_digest, workspace_files
from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE, TORCHX_IGNORE
from torchx_specs.errors import RequestError, WorkspaceError
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace import Built, BuiltReference, Workspace, WorkspaceBuilder
from torchx_specs.workspace.builder import BuilderOutput

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_kit.workspace import WorkspaceFile

#: Rules of both files count, those of TorchX last.
IGNORE_FILES = (".dockerignore", TORCHX_IGNORE)
#: The repository of images that stay on this machine.
LOCAL_REPOSITORY = "torchx-workspace"
#: Changed whenever the same input gives another image.
_FORMAT = "1"
_LARGE_FOLDERS = 3
_MB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """What :meth:`DockerBuilder.plan` found out.

    Args:
        base: the image the workspace is added to
        files: what is added
        tree: digest of the files
        has_dockerfile: the workspace says by itself how it is built
        digests: of the single files
    """

    base: str
    files: tuple[WorkspaceFile, ...]
    tree: str
    has_dockerfile: bool
    digests: FileDigests = field(default_factory=FileDigests, compare=False, repr=False)


class DockerBuilder(WorkspaceBuilder):
    """Adds a workspace to an image.

    For a job of this machine's Docker Engine the image is made there. For a job elsewhere it is
    made without an engine, in the registry that ``image_repo`` names; only a workspace with a
    ``Dockerfile.torchx`` needs an engine then.

    Args:
        docker_client: a client to use instead of one made from the environment
    """

    output: ClassVar[BuilderOutput] = "image"

    def __init__(self, docker_client: DockerClient | None = None) -> None:
        self._client = docker_client

    def opts(self) -> runopts:
        """Returns ``image_repo``, ``quiet`` and what else there is to say about images."""
        opts = runopts()
        opts.add(
            "image_repo",
            type_=str,
            help="(jobs elsewhere) the repository that images with the workspace are pushed to,"
            " e.g. example.com/your/container",
        )
        opts.add("quiet", type_=bool, default=False, help="shows no progress of builds and pushes")
        opts.add(
            "image_max_mb",
            type_=int,
            default=2048,
            help="largest workspace to add to an image, in MB; 0 for any",
        )
        opts.add(
            "insecure_registries",
            type_=list[str],
            help="registries (host:port) that may be spoken to without TLS, as this machine's own"
            " always may",
        )
        return opts

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference:
        """Returns the image's name, which depends on everything that goes into it.

        Raises:
            WorkspaceError: the workspace cannot be read, or is too large
            RequestError: the job runs elsewhere, and no option says where the image goes
        """
        import hashlib

        repository = cfg.get("image_repo")
        if self.remote and not repository:
            raise RequestError(
                "the workspace goes into an image, and the job runs elsewhere: say where to push it"
                " (option image_repo, e.g. -cfg image_repo=example.com/your/container), or give no"
                " workspace"
            )
        if not role_image:
            raise RequestError("the role has no image for the workspace to be added to")
        files = workspace_files(workspace, IGNORE_FILES)
        _check_size(files, cfg)
        digests = FileDigests.of(workspace)
        tree = tree_digest(files, digests, just_found=True)
        digest = hashlib.sha256()
        for part in (_FORMAT, role_image, str(workspace) if _dockerfile(files) else "", tree):
            digest.update(b"%d %s\n" % (len(part.encode()), part.encode()))
        for entry in files:
            digest.update(b"%o " % (entry.mode & 0o777))
        return BuiltReference(
            f"{_repository(repository)}:{digest.hexdigest()}",
            workspace,
            Plan(role_image, tuple(files), tree, _dockerfile(files), digests),
        )

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Makes the image, unless it is there and its base is still the same."""
        details = plan.details
        if not isinstance(details, Plan):
            raise WorkspaceError(f"{plan.image} was planned by another builder")
        details.digests.save()  # not while planning: a dry run leaves no file
        if self.remote and not details.has_dockerfile:
            from torchx_workspace_docker.registry.build import build_in_registry

            digest = build_in_registry(plan.image, details, cfg)
            return Built(digest, ready=True)
        from torchx_workspace_docker.engine.build import build_in_engine

        return Built(build_in_engine(plan, details, cfg, self._client), ready=not self.remote)

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Pushes what the engine made from a ``Dockerfile.torchx``."""
        from torchx_workspace_docker.engine.build import push_from_engine

        return Built(push_from_engine(plan.image, cfg), ready=True)


def check_unchanged(plan: Plan) -> None:
    """Checks that the workspace is what was planned.

    Raises:
        WorkspaceError: it is not
    """
    if tree_digest(plan.files, plan.digests) != plan.tree:
        raise WorkspaceError("the workspace has changed since it was planned; submit again")


def _repository(given: CfgVal) -> str:
    repository = str(given or LOCAL_REPOSITORY)
    _, _, last = repository.rpartition("/")
    if ":" in last or "@" in repository or repository != repository.lower() or " " in repository:
        raise RequestError(
            f"option image_repo={repository}: give a repository in lower case and without a tag,"
            " e.g. example.com/your/container"
        )
    return repository


def _dockerfile(files: list[WorkspaceFile]) -> bool:
    return any(entry.path == TORCHX_DOCKERFILE for entry in files)


def _check_size(files: list[WorkspaceFile], cfg: Mapping[str, CfgVal]) -> None:
    limit = cfg.get("image_max_mb")
    most = int(limit) if isinstance(limit, (int, str)) else 2048
    total = sum(entry.size for entry in files)
    if most <= 0 or total <= most * _MB:
        return
    sizes: dict[str, int] = {}
    for entry in files:
        top, below, _ = entry.path.partition("/")
        name = f"{top}/" if below else top
        sizes[name] = sizes.get(name, 0) + entry.size
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_LARGE_FOLDERS]
    named = ", ".join(f"{name} {size / _MB:.0f} MB" for name, size in largest)
    raise WorkspaceError(
        f"the workspace has {total / _MB:.0f} MB, more than image_max_mb={most}; largest: {named};"
        f" leave things out by {TORCHX_IGNORE}, or raise the option"
    )


def log() -> logging.Logger:
    """Returns where the progress of builds is told."""
    return logging.getLogger("torchx_workspace_docker")
