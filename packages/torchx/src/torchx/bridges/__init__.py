"""Registers plugins for older TorchX releases with the hooks of :mod:`torchx_specs.hookspecs`."""
