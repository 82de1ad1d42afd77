"""The built-in components; each is a function that returns an ``AppDef``.

* ``dist``: distributed PyTorch (``dist.ddp``, ``dist.torchrun``, ``dist.spmd``).
* ``utils``: common jobs (``utils.echo``, ``.sh``, ``.python``, ``.binary``, ``.touch``, ``.copy``,
  ``.booth``, ``.hydra``).
* ``serve``: ``serve.torchserve`` registers a model.
* ``metrics``: ``metrics.tensorboard`` shows the metrics of a training job.
* ``train``, ``interpret``: how to run training and interpretation programs with these components.

Call a component from Python, or run it with ``torchx run utils.echo --msg hello``. This package
imports only ``torchx_specs``, never torch or a scheduler.
"""
