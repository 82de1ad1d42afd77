"""Programs that TorchX components start inside a job, and helpers for the code that runs there.

Programs (each is ``python -m torchx_apps.<name>`` and has ``parse_args(argv)`` and ``main(argv)``):

* ``copy`` — files and folders between fsspec locations.
* ``booth`` — evaluates the Booth function; something small to try a hyper-parameter search on.
* ``process_monitor`` — runs a program until a time or a file ends it.
* ``serve`` — registers a model archive with TorchServe.

Helpers:

* ``distributed`` — ranks, devices and the process group of a job that torchrun started.
* ``results`` — keyed results on any fsspec location.
* ``cuda`` — whether this process can use a GPU.

An image needs this distribution and fsspec, nothing else of TorchX. torch is used where it is
installed and never required at import.
"""
