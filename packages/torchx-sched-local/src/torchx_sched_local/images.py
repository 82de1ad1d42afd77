"""What an image is to a scheduler without containers: a folder."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping

from torchx_sched_local.request import ReplicaParam
from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.options.run_options import CfgVal


class ImageProvider(ABC):
    """Turns a role's image into a folder, and says how to start the role from there.

    Made anew for each request, with the options as its one argument.
    """

    def fetch_role(self, role: Role) -> str:
        """Returns the folder (``img_root``) of a role's image; may change the role."""
        return self.fetch(role.image)

    @abstractmethod
    def fetch(self, image: str) -> str:
        """Returns the folder (``img_root``) of an image.

        Raises:
            ValueError: the image is none
        """

    def get_replica_param(
        self,
        img_root: str,
        role: Role,
        stdout: str | None = None,
        stderr: str | None = None,
        combined: str | None = None,
    ) -> ReplicaParam:
        """Returns how to start a replica.

        Args:
            img_root: folder of the image
            role: the role, macros substituted for this replica
            stdout: path of the file for its standard output
            stderr: path of the file for its standard error
            combined: path of the file for both
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
        """Returns the working directory, None for that of this process."""
        return None

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the path of the program."""
        return os.path.join(img_root, role.entrypoint)


class LocalDirectoryImageProvider(ImageProvider):
    """Takes the image for the path of a folder, which becomes the working directory."""

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cfg = cfg

    def fetch(self, image: str) -> str:
        """Returns the image itself.

        Raises:
            RequestError: it is no folder
        """
        if not os.path.isdir(image):
            raise RequestError(f"image '{image}' is not a folder")
        return image

    def get_cwd(self, image: str) -> str | None:
        """Returns the image itself."""
        return image

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the role's entrypoint as it is: absolute, on the PATH, or below the image."""
        return role.entrypoint


class CWDImageProvider(ImageProvider):
    """Ignores the image; the image is the working directory of this process."""

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cfg = cfg

    def fetch(self, image: str) -> str:
        """Returns the working directory."""
        return _working_directory()

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory."""
        return _working_directory()

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the role's entrypoint as it is: absolute, on the PATH, or below the directory."""
        return role.entrypoint


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise RequestError("the working directory has been removed; go to another one") from None
