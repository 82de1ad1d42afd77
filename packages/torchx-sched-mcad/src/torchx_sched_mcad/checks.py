"""Checks of MCAD and of the user's rights, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_sched_k8s.checks import VERBS, Operator, Right, check_groups, check_listed_rights

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_MCAD = Operator(
    "AppWrapper",
    "workload.codeflare.dev",
    "kubernetes_mcad",
    "https://github.com/project-codeflare/appwrapper",
    ("v1beta1",),
)
_RIGHTS = (
    Right(_MCAD.group, "appwrappers", VERBS),
    Right("", "services", ("create", "delete")),
)


def check_mcad(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the cluster has the API that ``kubernetes_mcad`` needs.

    Args:
        cfg: The options of ``kubernetes_mcad``.
    """
    yield from check_groups(cfg, {_MCAD: True})


def check_mcad_rights(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the user has the rights that jobs need, in the namespace of the options.

    Args:
        cfg: The options of ``kubernetes_mcad``.
    """
    yield from check_listed_rights(cfg, _RIGHTS)
