"""Commands and files of the machine that a scheduler works on."""
