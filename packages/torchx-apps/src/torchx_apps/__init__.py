"""Programs that TorchX components run in jobs, and helpers for code in jobs.

Programs, which run as ``python -m torchx_apps.<name>`` and have ``parse_args(argv)`` and
``main(argv)``:

* ``copy``: copies files and directories between fsspec URLs.
* ``booth``: evaluates the Booth function, a small example for hyper-parameter search.
* ``process_monitor``: runs a program, and ends it after a timeout or when a file exists.
* ``serve``: registers a model archive with TorchServe.

Helpers:

* ``distributed``: ranks, devices and the process group of a torchrun job.
* ``results``: stores and reads results by key at an fsspec URL.

An image needs this distribution and fsspec, but no other part of TorchX. torch is used if it is
installed; importing these modules does not import it.
"""
