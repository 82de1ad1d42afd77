"""Find the version in which a cluster serves the API of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchx_sched_k8s.cluster.errors import ApiError, RefusedRequestError
from torchx_specs.errors import BackendError

#: Maps API groups of operators to the versions that this package can use. The first version is
#: preferred. TorchX uses only fields of Kueue's Workloads that both versions have.
VERSIONS = {
    "kueue.x-k8s.io": ("v1beta1", "v1beta2"),
    "jobset.x-k8s.io": ("v1alpha2",),
    "batch.volcano.sh": ("v1alpha1",),
    "workload.codeflare.dev": ("v1beta1",),
}
#: Texts in a server's response to a request for an unknown path. The response for a missing object
#: contains none of these texts.
_UNKNOWN_PATH = ("page not found", "could not find the requested resource")


class UnservedVersionError(RefusedRequestError):
    """The cluster serves an API only in versions that this package cannot use."""


class ApiVersions:
    """The versions in which one cluster serves the APIs of operators.

    The versions of an API group are read when the cluster first answers that it does not know a
    path of the group.

    Args:
        get: Returns the JSON object at a path of the API.
    """

    def __init__(self, get: Callable[[str], dict[str, Any]]) -> None:
        self._get = get
        self._found: dict[str, str] = {}

    def path(self, path: str) -> str:
        """Return a path with the version that the cluster serves; unchanged if none was read."""
        parts = path.split("/", 4)
        if len(parts) == 5 and parts[2] in self._found:
            parts[3] = self._found[parts[2]]
        return "/".join(parts)

    def another_path(self, path: str, error: ApiError) -> str | None:
        """Return the path to try after a response with status 404.

        Args:
            path: Path of the request.
            error: The error of the request.

        Returns:
            The path with another version; None if there is no other version to try, for example
            because the object or the whole API is missing.

        Raises:
            UnservedVersionError: The cluster serves the API only in other versions.
        """
        parts = path.split("/", 4)
        if len(parts) < 5 or not any(text in error.message for text in _UNKNOWN_PATH):
            return None
        group, version = parts[2:4]
        if group not in VERSIONS:
            return None
        try:
            found = self._get(f"/apis/{group}")
        except BackendError:
            return None
        served = [str(one.get("version")) for one in found.get("versions") or ()]
        known = [one for one in VERSIONS[group] if one in served]
        if version in served or not served:
            return None
        if not known:
            raise UnservedVersionError(
                f"{error}: this cluster serves {group} as {', '.join(served)}, and this release of"
                f" torchx-sched-k8s supports {', '.join(VERSIONS[group])}; upgrade one of the two",
                error.status,
                error.reason,
                error.message,
            ) from error
        self._found[group] = known[0]
        return self.path(path)
