"""The components that come with TorchX; each is a function that returns an ``AppDef``.

* ``dist`` — distributed PyTorch: ``dist.ddp``, ``dist.torchrun``, ``dist.spmd``.
* ``utils`` — everyday jobs: ``utils.echo``, ``.sh``, ``.python``, ``.binary``, ``.touch``,
  ``.copy``, ``.booth``, ``.hydra``.
* ``serve`` — ``serve.torchserve`` registers a model.
* ``metrics`` — ``metrics.tensorboard`` shows what a training wrote.
* ``train``, ``interpret`` — how to run such apps with the components above.

Call one, or run it as ``torchx run utils.echo --msg hello``. They only describe jobs: nothing here
imports torch, a scheduler or a library beside ``torchx_specs``.
"""
