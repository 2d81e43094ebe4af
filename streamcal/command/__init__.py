"""`streamcal`: one file a command, nothing but options, reading, report."""
