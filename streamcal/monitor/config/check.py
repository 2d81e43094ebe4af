"""What is wrong with a configuration file, for `streamcal check`."""

from __future__ import annotations

import os

from streamcal.monitor.config.config import ConfigError, load


def check(path: str | os.PathLike[str]) -> list[str]:
    """What is wrong with the file, a line of text per mistake in the order of the file; empty when it is right.

    Each begins with its line, as in ``line 7: unknown key rules.gap.abov; did you mean "above"? Allowed: ...``, where it has
    one. Between the keys of a table, and from a rule to what it names, is looked once each of its keys is right: correcting
    one mistake may show another. A file that cannot be read is one mistake. Nothing that the file names is opened.

    >>> check("no such file.toml")
    ['no such file.toml cannot be read: No such file or directory']
    """
    try:
        load(path)
    except ConfigError as error:
        return [str(finding) for finding in error.findings]
    except OSError as error:
        return [f"{os.fspath(path)} cannot be read: {error.strerror or error}"]
    return []
