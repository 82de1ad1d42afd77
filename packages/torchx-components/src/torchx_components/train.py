"""How to train a model.

There is no component for training as such: a training is a script, and the components run it.

* On one machine: ``torchx run utils.python --script train.py -- --lr 0.1``
* Distributed PyTorch: ``torchx run dist.ddp -j 2x4 --script train.py -- --lr 0.1``, see
  :mod:`torchx_components.dist`

Copy the component nearest to your needs into a file of your own once you want other defaults, and
run it as ``torchx run train_component.py:train``.
"""
