"""How to explain a model's results.

There is no component for interpretation as such: an analysis, for example with Captum, is a
script, and ``utils.python`` runs it::

    torchx run utils.python --script interpret.py -- --load_path s3://bucket/model.pt \\
        --output_path s3://bucket/attributions
"""
