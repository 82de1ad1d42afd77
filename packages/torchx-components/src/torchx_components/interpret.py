r"""Describes how to explain the results of a model.

There is no component for this. Write a script, for example with Captum, and run it with
``utils.python``::

    torchx run utils.python --script interpret.py -- --load_path s3://bucket/model.pt \
        --output_path s3://bucket/attributions
"""
