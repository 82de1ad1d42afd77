"""Import path of the command-line tool in older TorchX releases."""
