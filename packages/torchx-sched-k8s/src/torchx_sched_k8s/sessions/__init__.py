"""Commands and ports inside the pods of an app."""
