"""Component arguments: from the command line to typed values.

- :mod:`.converters` has the table of types, with a converter that parses and checks each type
- :mod:`.signature` reads a component's parameters
- :mod:`.parser` parses the command line, and combines it with values from configuration
- :mod:`.materialize` calls the component
- :mod:`.help` writes the text of ``--help``
- :mod:`.docstrings` parses the docstring of a component
"""
