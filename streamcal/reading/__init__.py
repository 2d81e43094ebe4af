"""What comes in, read by one set of rules for the command and the monitor.

A table, in this order: ``roles`` (which column is what), ``cells`` (what a cell means), ``formats`` and ``arrow`` (text ->
events), ``tables`` (a file or a pipe -> batches of events), ``rewritten`` (a table written again with one more column).
What grows, for both: ``lines`` (pieces -> lines), ``rotation`` (one follower of files), ``waiting`` (until when).
"""


class SourceError(Exception):
    """Input that cannot be read as asked, and waiting would not help; its text is one line for the user."""
