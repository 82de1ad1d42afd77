"""Container images: the Docker Engine, and the transfer of images."""
