"""Create the objects of an app, and mark unfinished submissions."""
