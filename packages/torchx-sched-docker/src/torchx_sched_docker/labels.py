"""The labels that identify the containers and networks of an app."""

from __future__ import annotations

#: The release of TorchX that created the container or the network.
LABEL_VERSION = "torchx.pytorch.org/version"
#: The app's id.
LABEL_APP_ID = "torchx.pytorch.org/app-id"
#: The app's name (``AppDef.name``).
LABEL_APP_NAME = "torchx.pytorch.org/app-name"
#: The role's name.
LABEL_ROLE_NAME = "torchx.pytorch.org/role-name"
#: The index of the replica in its role.
LABEL_REPLICA_ID = "torchx.pytorch.org/replica-id"
#: How many arguments before the replica's command belong to the options setup and time.
LABEL_PREFIX_ARGS = "torchx.pytorch.org/prefix-args"
#: The time limit of the container, in seconds.
LABEL_TIME_LIMIT = "torchx.pytorch.org/time-limit"
#: Set if the success of the role ends the app.
LABEL_ENDS_APP = "torchx.pytorch.org/ends-app"
#: The index of the role in its app.
LABEL_ROLE_INDEX = "torchx.pytorch.org/role-index"
#: The role's ``max_retries``; set if the container starts its program again (option ``requeue``).
LABEL_REQUEUE = "torchx.pytorch.org/requeue"
