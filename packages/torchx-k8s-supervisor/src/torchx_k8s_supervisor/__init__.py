"""End or restart a whole app that consists of plain Kubernetes Jobs.

An app has a supervisor if it has several roles (unless ``fail_together`` is False), or if it is
restarted as a whole. The supervisor is a Job of one pod, which has the app's name and owns all
other objects of the app. When a role fails for good, the supervisor ends the roles that still run.
With ``retry_policy=APPLICATION`` the supervisor first restarts the app as often as ``max_retries``
allows: it deletes the Jobs of all roles and creates them again. With the option ``requeue``, it
restarts the app by the rules of ``docs/resilience.md``, and reads from the pods why they ended.

A Role in the request gives the supervisor its rights: ``get`` and ``patch`` of the app's Jobs. For
a supervisor that restarts the app, the Role also allows ``delete`` of these Jobs, ``get`` of the
app's config map, and ``create`` of Jobs; with ``requeue``, also ``list``, ``watch`` and ``patch``
of pods. The user who submits the app needs the rights to create, get and delete ServiceAccounts,
Roles and RoleBindings, and ConfigMaps if the app is restarted. With the option
``restarts_service_account``, the request contains no account, Role and RoleBinding.
"""
