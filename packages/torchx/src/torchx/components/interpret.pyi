# Type stub: the names of the module beside it.
