"""The one exception for what a person can mend: a wrong option, file or line."""


class InputError(ValueError):
    """Input that cannot be used.

    The message is one line: the file, line or option, what is wrong with it, and what to do.
    Commands print it and end with exit code 2; a traceback would only hide it.
    """
