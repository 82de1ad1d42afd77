"""Starting, supervising and terminating the processes of an app."""
