"""Describes how to train a model.

There is no component for training. A training program is a script, which other components run:

* On one machine: ``torchx run utils.python --script train.py -- --lr 0.1``
* Distributed PyTorch: ``torchx run dist.ddp -j 2x4 --script train.py -- --lr 0.1``, see
  :mod:`torchx_components.dist`

To change the defaults, write your own component in a file, for example one that calls ``dist.ddp``,
and run it with ``torchx run train_component.py:train``.
"""
