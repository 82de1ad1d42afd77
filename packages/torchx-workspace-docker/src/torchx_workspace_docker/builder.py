"""The workspace type ``docker``: adds the files of a workspace to an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torchx_kit.workspace import FileDigests, WorkspaceFile, tree_digest, workspace_files
from torchx_kit.workspace.builder import (
    BuilderOutput,
    Built,
    BuiltReference,
    WorkspaceBuilder,
    add_file_options,
    file_options,
)
from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE, TORCHX_IGNORE
from torchx_specs.errors import RequestError, WorkspaceError
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace import Workspace

if TYPE_CHECKING:
    from docker.client import DockerClient


#: The ignore files; if rules of both match a path, the last file decides.
IGNORE_FILES = (".dockerignore", TORCHX_IGNORE)
#: The repository of images that stay on this machine.
LOCAL_REPOSITORY = "torchx-workspace"
#: Version of the images: increase it when a change of TorchX changes the image of the same inputs.
_FORMAT = "1"
_DEFAULT_MAX_MB = 2048
_MB = 1 << 20
#: How many of the largest folders the error for a large workspace lists.
_NAMED_FOLDERS = 3


@dataclass(frozen=True)
class Plan:
    """The contents of a planned image; :meth:`DockerBuilder.plan` returns them for the build.

    Args:
        base: The image that the workspace is added to.
        files: The files of the workspace, ordered by path.
        tree: The digest of all files together (:func:`torchx_kit.workspace.tree_digest`).
        has_dockerfile: Whether the workspace has a ``Dockerfile.torchx``.
        digests: Cache of the digests of the single files.
    """

    base: str
    files: tuple[WorkspaceFile, ...]
    tree: str
    has_dockerfile: bool
    digests: FileDigests = field(default_factory=FileDigests, compare=False, repr=False)


def check_unchanged(plan: Plan) -> None:
    """Check that the workspace has not changed since it was planned.

    Raises:
        WorkspaceError: The workspace has changed.
    """
    if tree_digest(plan.files, plan.digests) != plan.tree:
        raise WorkspaceError("the workspace has changed since it was planned; submit again")


class DockerBuilder(WorkspaceBuilder):
    """Adds a workspace to an image.

    If the job runs in this machine's Docker Engine, that engine builds the image. For other jobs,
    the image is built in the repository ``image_repo`` of a registry, without an engine; but if the
    workspace has a ``Dockerfile.torchx``, the engine builds the image and pushes it.

    Args:
        docker_client: The client to use; None creates one from the environment (``DOCKER_HOST``).
    """

    output: ClassVar[BuilderOutput] = "image"

    def __init__(self, docker_client: DockerClient | None = None) -> None:
        self._client = docker_client

    def opts(self) -> runopts:
        """Return the options for images: ``image_repo``, ``quiet`` and others."""
        opts = runopts()
        opts.add(
            "image_repo",
            type_=str,
            help="(jobs elsewhere) push images with the workspace to this repository."
            " Example: image_repo=example.com/your/container",
        )
        opts.add(
            "quiet", type_=bool, default=False, help="show no progress of pulls, builds and pushes"
        )
        opts.add(
            "image_max_mb",
            type_=int,
            default=_DEFAULT_MAX_MB,
            help="refuse a workspace larger than this, in MB; 0 for no limit",
        )
        opts.add(
            "insecure_registries",
            type_=list[str],
            help="use these registries (host:port) without TLS if they have none; registries of"
            " this machine need not be listed",
        )
        add_file_options(opts)
        return opts

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference:
        """Return the plan of an image; its tag is a digest of the base's name and the workspace.

        Raises:
            WorkspaceError: The workspace cannot be read, or is too large.
            RequestError: The job runs on other machines and ``image_repo`` is missing,
                ``image_repo`` is not valid, or the role has no image.
        """
        import hashlib

        repository = cfg.get("image_repo")
        if self.remote and not repository:
            raise RequestError(
                "option image_repo is missing: the job runs elsewhere, and its workspace goes into"
                " an image; name the repository to push the image to"
                " (-cfg image_repo=example.com/your/container), or use --workspace=''"
            )
        if not role_image:
            raise RequestError(
                "the role has no image to which the workspace could be added; set Role.image"
            )
        files = workspace_files(workspace, IGNORE_FILES, **file_options(cfg))
        _check_size(files, cfg)
        digests = FileDigests.for_workspace(workspace)
        tree = tree_digest(files, digests)
        has_dockerfile = any(entry.path == TORCHX_DOCKERFILE for entry in files)
        digest = hashlib.sha256()
        for part in (_FORMAT, role_image, str(workspace) if has_dockerfile else "", tree):
            digest.update(b"%d %s\n" % (len(part.encode()), part.encode()))
        for entry in files:
            digest.update(b"%o " % (entry.mode & 0o777))
        return BuiltReference(
            f"{_repository(repository)}:{digest.hexdigest()}",
            workspace,
            Plan(role_image, tuple(files), tree, has_dockerfile, digests),
        )

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Build the image unless it exists and was built from the current base image.

        Raises:
            WorkspaceError: The build failed, or the workspace has changed since it was planned.
            BackendError: The engine or the registry does not answer.
        """
        details = plan.details
        if not isinstance(details, Plan):
            raise WorkspaceError(f"{plan.image} was not planned by {type(self).__name__}")
        details.digests.save()  # plan() does not save them, because a dry run writes no file.
        if self.remote and not details.has_dockerfile:
            from torchx_workspace_docker.registry.build import build_in_registry

            return Built(build_in_registry(plan.image, details, cfg), ready=True)
        from torchx_workspace_docker.engine.build import build_in_engine

        return Built(build_in_engine(plan, details, cfg, self._client), ready=not self.remote)

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Push an image that the engine built from a ``Dockerfile.torchx``.

        Raises:
            WorkspaceError: The registry refuses the image.
            BackendError: The engine does not answer.
        """
        from torchx_workspace_docker.engine.build import push_from_engine

        return Built(push_from_engine(plan.image, cfg), ready=True)


def _repository(value: CfgVal) -> str:
    repository = str(value or LOCAL_REPOSITORY)
    _, _, last = repository.rpartition("/")
    if ":" in last or "@" in repository or repository != repository.lower() or " " in repository:
        raise RequestError(
            f"option image_repo={repository}: must be a repository in lower case and without a tag,"
            " e.g. example.com/your/container"
        )
    return repository


def _check_size(files: list[WorkspaceFile], cfg: Mapping[str, CfgVal]) -> None:
    limit = cfg.get("image_max_mb")
    max_mb = int(limit) if isinstance(limit, (int, str)) else _DEFAULT_MAX_MB
    total = sum(entry.size for entry in files)
    if max_mb <= 0 or total <= max_mb * _MB:
        return
    sizes: dict[str, int] = {}
    for entry in files:
        top, separator, _ = entry.path.partition("/")
        name = f"{top}/" if separator else top
        sizes[name] = sizes.get(name, 0) + entry.size
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_NAMED_FOLDERS]
    names = ", ".join(f"{name} {size / _MB:.0f} MB" for name, size in largest)
    raise WorkspaceError(
        f"the workspace has {total / _MB:.0f} MB, more than image_max_mb={max_mb};"
        f" largest: {names}; exclude files in {TORCHX_IGNORE}, or increase the option"
    )
