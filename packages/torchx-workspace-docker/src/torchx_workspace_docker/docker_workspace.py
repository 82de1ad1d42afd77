"""Mixin for plugins that were written for upstream's TorchX, which has no workspace builders.

New code uses :class:`torchx_kit.workspace.BuilderWorkspaceMixin` and the workspace type ``docker``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE as TORCHX_DOCKERFILE
from torchx_specs.errors import RequestError, one_line
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.redaction import masked_text
from torchx_specs.workspace import Workspace, WorkspaceMixin
from torchx_workspace_docker.builder import DockerBuilder
from torchx_workspace_docker.engine.build import DEFAULT_DOCKERFILE as DEFAULT_DOCKERFILE
from torchx_workspace_docker.engine.client import connect, engine_errors
from torchx_workspace_docker.image_config import LABEL_VERSION

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_specs.model.app import AppDef, Role


logger = logging.getLogger(__name__)


class MissingRepositoryError(RequestError, KeyError):
    """The option ``image_repo`` is missing."""

    def __str__(self) -> str:  # KeyError would return the repr of the text.
        return "; ".join(self.problems)


class DockerWorkspaceMixin(WorkspaceMixin[dict[str, tuple[str, str]]]):
    """Builds images in a Docker Engine during the dry run, without a separate plan.

    Plugins that were written for upstream's TorchX inherit from this class.

    Args:
        docker_client: The client to use; None creates one from the environment (``DOCKER_HOST``).
    """

    LABEL_VERSION: str = LABEL_VERSION

    _workspace_docker_client: DockerClient | None = None

    def __init__(
        self, *args: Any, docker_client: DockerClient | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._workspace_docker_client = docker_client

    @property
    def _docker_client(self) -> DockerClient:
        client = self._workspace_docker_client = self._workspace_docker_client or connect()
        return client

    def workspace_opts(self) -> runopts:
        """Return the options of :class:`DockerBuilder`, such as ``image_repo`` and ``quiet``."""
        return _builder().opts()

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Build an image with the role's workspace, and set the role's image to the new id.

        Roles with the same image and workspace share one build. A role without a workspace is not
        changed.
        """
        if not role.workspace:
            return
        key = (__name__, role.image, role.workspace)
        if key not in build_cache:
            build_cache[key] = self._build(role.image, role.workspace, cfg)
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Build an image with the files of one folder, and set the role's image to the new id."""
        role.image = self._build(role.image, Workspace({workspace: ""}), cfg)

    def _build(self, image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]) -> str:
        # Use the property, not the attribute, because a subclass may override the property.
        builder = _builder(self._docker_client)
        local = {key: value for key, value in cfg.items() if key != "image_repo"}
        return builder.build(builder.plan(image, workspace, local), local).digest

    def dryrun_push_images(
        self, app: AppDef, cfg: Mapping[str, CfgVal]
    ) -> dict[str, tuple[str, str]]:
        """Replace the image ids of an app's roles with the names under which to push the images.

        Returns:
            Repository and tag of each image, by image id.

        Raises:
            MissingRepositoryError: The option ``image_repo`` is missing.
        """
        images: dict[str, tuple[str, str]] = {}
        for role in app.roles:
            if not role.image.startswith("sha256:"):
                continue
            repository = cfg.get("image_repo")
            if not repository:
                raise MissingRepositoryError(
                    f"option image_repo is missing: it names the repository to which the image of"
                    f" role '{role.name}' is pushed"
                )
            tag = role.image.removeprefix("sha256:")
            images[role.image] = (str(repository), tag)
            role.image = f"{repository}:{tag}"
        return images

    def push_images(self, images_to_push: dict[str, tuple[str, str]]) -> None:
        """Push the images that :meth:`dryrun_push_images` returned.

        Raises:
            WorkspaceError: The engine refuses a request.
            RuntimeError: The push of an image fails.
        """
        for local, (repository, tag) in images_to_push.items():
            logger.info("pushing image %s:%s...", repository, tag)
            with engine_errors(f"push {repository}:{tag}"):
                self._docker_client.api.tag(local, repository, tag=tag, force=True)
                print_push_events(
                    self._docker_client.api.push(repository, tag=tag, stream=True, decode=True)
                )


def print_push_events(events: Iterable[Mapping[str, Any]], stream: TextIO | None = None) -> None:
    """Print the progress of a push, one line for each change.

    Raises:
        RuntimeError: The push has failed.
    """
    stream = stream or sys.stderr
    last: dict[str, str] = {}
    for event in events:
        if "error" in event:
            raise RuntimeError(f"failed to push: {one_line(event['error'])}")
        status, layer = masked_text(str(event.get("status") or "")), str(event.get("id") or "")
        if status and last.get(layer) != status:
            stream.write(f"{layer}: {status}\n" if layer else f"{status}\n")
            last[layer] = status
    stream.flush()


def _builder(client: DockerClient | None = None) -> DockerBuilder:
    builder = DockerBuilder(docker_client=client)
    builder.remote = False
    return builder
