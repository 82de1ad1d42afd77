"""Image providers, which map images to folders for schedulers without containers."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping

from torchx_sched_local.request import ReplicaParam
from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.options.run_options import CfgVal


class ImageProvider(ABC):
    """Resolves the image of a role to a folder, and returns how to start the role's replicas.

    The scheduler creates a provider for each request.

    Args:
        cfg: The options.
    """

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cfg = cfg

    def fetch_role(self, role: Role) -> str:
        """Return the folder (``img_root``) of a role's image; an override may change the role."""
        return self.fetch(role.image)

    @abstractmethod
    def fetch(self, image: str) -> str:
        """Return the folder (``img_root``) of an image.

        Raises:
            ValueError: There is no such image.
        """

    def get_replica_param(
        self,
        img_root: str,
        role: Role,
        stdout: str | None = None,
        stderr: str | None = None,
        combined: str | None = None,
    ) -> ReplicaParam:
        """Return how to start a replica.

        Args:
            img_root: The folder of the image.
            role: The role, with the macros of this replica substituted.
            stdout: Path of the file for standard output.
            stderr: Path of the file for standard error.
            combined: Path of the file for both streams.
        """
        return ReplicaParam(
            [self.get_entrypoint(img_root, role), *role.args],
            role.env,
            stdout,
            stderr,
            combined,
            self.get_cwd(role.image),
        )

    def get_cwd(self, image: str) -> str | None:
        """Return the replicas' working directory; None means the directory of this process."""
        return None

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Return the path of the role's program: by default, the entrypoint in the image folder."""
        return os.path.join(img_root, role.entrypoint)


class LocalDirectoryImageProvider(ImageProvider):
    """Uses the image as the path of a folder, which becomes the replicas' working directory."""

    def fetch(self, image: str) -> str:
        """Return the image, which is the path of a folder.

        Raises:
            RequestError: The image is not a folder.
        """
        if not os.path.isdir(image):
            raise RequestError(
                f"image '{image}' is not a folder; set Role.image to the path of a folder"
            )
        return image

    def get_cwd(self, image: str) -> str | None:
        """Return the image, which is the path of a folder."""
        return image

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Return the entrypoint as it is: absolute, on the PATH, or relative to the image."""
        return role.entrypoint


class CWDImageProvider(ImageProvider):
    """Ignores the image and uses the working directory of this process."""

    def fetch(self, image: str) -> str:
        """Return the working directory of this process.

        Raises:
            RequestError: The working directory was deleted.
        """
        try:
            return os.getcwd()
        except FileNotFoundError:
            raise RequestError("the working directory was deleted; change to another one") from None

    def get_cwd(self, image: str) -> str | None:
        """Return the working directory of this process.

        Raises:
            RequestError: The working directory was deleted.
        """
        return self.fetch(image)

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Return the entrypoint as it is: absolute, on the PATH, or in the working directory."""
        return role.entrypoint
