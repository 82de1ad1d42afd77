import torchx.specs as specs


def trainer(name: str = "test app", resource: str = "gpu.small") -> specs.AppDef:
    """Trains.

    Args:
        name: of the app
        resource: a named resource
    """
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name="trainer",
                image="i",
                entrypoint="echo",
                args=["trained", name],
                resource=specs.resource(h=resource),
            )
        ],
    )
