"""Import path of the tracker backends in older TorchX releases."""
