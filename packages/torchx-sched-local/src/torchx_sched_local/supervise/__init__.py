"""Starting, watching and ending the processes of an app."""
