"""Import the data model of the peer, upstream's TorchX, and create an app."""

from torchx import specs

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
