"""What comes in, read by one set of rules for the command and the monitor.

A table, in this order: ``roles`` (which column is what), ``cells`` (what a cell means), ``formats`` and ``arrow`` (text ->
events), ``tables`` (a file or a pipe -> batches of events), ``rewritten`` (a table written again with one more column).
What grows, for both: ``lines`` (pieces -> lines), ``rotation`` (one follower of files), ``waiting`` (until when).
What others wrote, for eyes: ``shown``.
"""


class SourceError(Exception):
    """Input that cannot be read as asked, and waiting would not help; each of its arguments is one line for the user.

    ``code``: the exit code of the command. ``where``: the file that it is about, where the text does not say so.
    """

    code = 2
    where = ""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class AwayError(SourceError):
    """A source that is not there: what it is to hold may come later."""
