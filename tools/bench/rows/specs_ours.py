"""Import our data model and create an app."""

import torchx_specs as specs

opts = specs.runopts()
opts.add("queue", type_=str, default="main", help="the queue")
specs.AppDef(
    name="bench",
    roles=[
        specs.Role(
            name="role",
            image="image",
            args=[specs.macros.app_id],
            resource=specs.Resource(cpu=1, gpu=0, memMB=1),
        )
    ],
)
