"""The TorchX scheduler for HTCondor."""
