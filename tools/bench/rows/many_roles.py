"""Run `torchx run --dryrun` of a component with many roles: many_roles.py ROLES."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

COMPONENT = '''
import torchx.specs as specs


def many(roles: int) -> specs.AppDef:
    """Make an app with many roles.

    Args:
        roles: The number of roles.
    """
    app = specs.AppDef("bench")
    for number in range(roles):
        role = specs.Role(f"role{number}", image="", entrypoint="true")
        role.args = ["--id", str(number), "token=x"]
        role.env = {"RANK": str(number), "API_TOKEN": "x"}
        role.resource = specs.Resource(cpu=1, gpu=0, memMB=1)
        app.roles.append(role)
    return app
'''

Path("many.py").write_text(COMPONENT)
torchx = str(Path(sys.executable).with_name("torchx"))
subprocess.run(
    [torchx, "run", "--dryrun", "-s", "local_cwd", "many.py:many", "--roles", sys.argv[1]],
    capture_output=True,
    check=True,
)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print({"seconds": used.ru_utime + used.ru_stime})
