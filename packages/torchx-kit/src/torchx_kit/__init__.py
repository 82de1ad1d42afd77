"""What authors of schedulers and workspace builders share."""
