import torchx.specs as specs


def trainer(name: str = "test app", resource: str = "gpu.small") -> specs.AppDef:
    """Train a model.

    Args:
        name: The name of the app.
        resource: A named resource.
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
