"""End or restart a whole app that consists of plain Jobs.

No controller of a plain cluster ends or restarts several Jobs together. An app therefore has a
supervisor if it has several roles (unless ``fail_together`` is False), or if it is restarted as a
whole. The supervisor is a Job of one pod, which has the app's name and owns all other objects of
the app. When a role fails for good, the supervisor ends the roles that still run. With
``retry_policy=APPLICATION`` the supervisor first restarts the app as often as ``max_retries``
allows: it deletes the Jobs of all roles and creates them again.

The rest of the package imports only the names below, and only from here; it does not import the
modules of this folder.

==============  ====================  ==============================================================
step            name                  purpose
==============  ====================  ==============================================================
request         is_supervised         Whether an app gets a supervisor.
request         is_restarted          Whether the supervisor restarts the app.
request         supervise             Add the supervisor to an app's Service and Jobs.
request         masked_manifests      Mask the secrets of the config map for display.
submit          find_owner            The supervisor's Job: it owns the other objects.
submit          rights_hint           Remedy if the user may not create the service account.
submit          unsupervised          The app's objects without the supervisor's objects.
status          Supervision           States of the roles, restarts and end of the app.
status          read_missing_jobs     Manifests of Jobs that do not exist during a restart.
status          restart_message       The app's message with the reason of the present restart.
cancel          stop                  End the supervisor before the roles' Jobs.
delete          dependents            Objects that belong to the supervisor.
==============  ====================  ==============================================================

A Role in the request gives the supervisor its rights: ``get`` and ``patch`` of the app's Jobs. For
a supervisor that restarts the app, the Role also allows ``delete`` of these Jobs, ``get`` of the
app's config map, and ``create`` of Jobs. The user who submits the app needs the rights to create,
get and delete ServiceAccounts, Roles and RoleBindings, and ConfigMaps if the app is restarted. With
the option ``restarts_service_account``, the request contains no account, Role and RoleBinding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_sched_k8s.supervisor.lifecycle import dependents as dependents
    from torchx_sched_k8s.supervisor.lifecycle import find_owner as find_owner
    from torchx_sched_k8s.supervisor.lifecycle import rights_hint as rights_hint
    from torchx_sched_k8s.supervisor.lifecycle import stop as stop
    from torchx_sched_k8s.supervisor.lifecycle import unsupervised as unsupervised
    from torchx_sched_k8s.supervisor.objects import is_restarted as is_restarted
    from torchx_sched_k8s.supervisor.objects import is_supervised as is_supervised
    from torchx_sched_k8s.supervisor.objects import masked_manifests as masked_manifests
    from torchx_sched_k8s.supervisor.objects import supervise as supervise
    from torchx_sched_k8s.supervisor.status import Supervision as Supervision
    from torchx_sched_k8s.supervisor.status import read_missing_jobs as read_missing_jobs
    from torchx_sched_k8s.supervisor.status import restart_message as restart_message

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_sched_k8s.supervisor.lifecycle": (
            "dependents",
            "find_owner",
            "rights_hint",
            "stop",
            "unsupervised",
        ),
        "torchx_sched_k8s.supervisor.objects": (
            "is_restarted",
            "is_supervised",
            "masked_manifests",
            "supervise",
        ),
        "torchx_sched_k8s.supervisor.status": (
            "Supervision",
            "read_missing_jobs",
            "restart_message",
        ),
    },
)
