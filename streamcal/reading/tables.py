"""Tables as streams: files, pipes and growing files -> batches of events, in any format.

A table knows its columns before its first batch, never holds more than a few blocks, and hands out empty batches
while it waits, so that whoever reads it can look at the clock.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from streamcal.reading import SourceError
from streamcal.reading.cells import EventBatch
from streamcal.reading.formats import FORMATS, HOPELESS, Csv, Format, TextFormat, known, sniff
from streamcal.reading.lines import BOM, Long, Pipe
from streamcal.reading.rotation import Follower
from streamcal.reading.waiting import Patience

BLOCK = 8 << 20  # bytes of a file read at once: more is no faster, and a few blocks are in memory at a time
BLANK = BOM + b"\r\n\t "


def open_source(
    path: str,
    form: str | None = None,
    *,
    follow: bool = False,
    patience: Patience | None = None,
    block: int = BLOCK,
    arrow: bool = True,
) -> Format:
    """A file, a named pipe, or - for standard input. `form` is the name of a format, else the first bytes decide.

    `follow` waits for more at the end of a file. `arrow=False` leaves out the fast path of CSV: same batches, slower.
    """
    known(form)
    patience = patience or Patience()
    try:
        piped = path == "-" or _is_pipe(path)
        if not piped:
            with open(path, "rb") as file:
                kind = FORMATS[form or sniff(file.read(4096))]
            if not issubclass(kind, TextFormat):
                return kind(path)
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None
    follow = follow and not piped
    read = _piped if piped else _followed if follow else _file
    pieces = read(path, block, patience)
    head = b""
    for piece in pieces:
        head += piece
        if b"\n" in head.lstrip(BLANK):
            break
    kind = text_format(head, form)
    source = Csv(head, arrow) if kind is Csv else kind(head)
    rest = itertools.chain([head[source.taken :]], pieces)
    source.take_from(rest, lambda: not follow and not patience.stop.asked)
    return source


def text_format(head: bytes, form: str | None) -> type[TextFormat]:
    """The format of a text that begins like this; SourceError if it is none."""
    if not head.strip(BLANK):
        raise SourceError("empty: there is nothing to read")
    kind = FORMATS[form or sniff(head)]
    if not issubclass(kind, TextFormat):
        raise SourceError(f"{kind.__name__} cannot be read from a pipe; give the file")
    if b"\0" in head:
        raise SourceError("not a text file; give CSV, JSON Lines or Parquet")
    return kind


def _is_pipe(path: str) -> bool:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise SourceError("is a directory; give a file")
    return not stat.S_ISREG(mode)


def _file(path: str, size: int, patience: Patience) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(size), b"")


def _followed(path: str, size: int, patience: Patience) -> Iterator[bytes]:
    """The lines that are in a file and those that come, through rotation and cuts; b"" while none does."""
    follower = Follower(path, longest=HOPELESS, chunk=size)
    follower.begin()
    begun = 0
    try:
        while not patience.stop.asked:
            ready = follower.wait(patience.poll, patience.stop)
            lines = None if follower.file is None else follower.file.lines
            if lines is not None and begun != (begun := lines.begun):
                patience.fed()  # a line that grows is something that comes
            if lines is not None and ready:
                first, taken = lines.line + 1, lines.take()
                whole = [line for line in taken if isinstance(line, bytes)]
                if len(whole) < len(taken):
                    raise _hopeless(next(i for i, line in enumerate(taken, first) if isinstance(line, Long)))
                yield b"\n".join([*whole, b""])
                patience.fed()
            elif begun > HOPELESS and lines is not None:
                raise _hopeless(lines.line + 1)
            elif patience.over or follower.ended:
                break
            else:
                yield b""
        if follower.file is not None:
            yield follower.file.lines.unended  # no event yet; but a header may have columns
    finally:
        follower.close()


def _hopeless(line: int) -> SourceError:
    return SourceError(f"line {line} is longer than {HOPELESS >> 20} MB; is this text?")


def _piped(path: str, size: int, patience: Patience) -> Iterator[bytes]:
    """What a pipe has, at once, in pieces of at most about `size`; b"" while it is silent."""
    pipe = Pipe(path)
    pipe.start()
    while not patience.stop.asked:
        if not (data := pipe.more(patience.poll)):
            if data is None or patience.over:
                return
            yield b""
            continue
        parts = [data]
        rest: bytes | None = data
        while rest and sum(map(len, parts)) < size:
            if rest := pipe.more(0):
                parts.append(rest)
        yield b"".join(parts)
        if rest is None:
            return
        patience.fed()


def ahead(batches: Iterator[EventBatch]) -> Iterator[EventBatch]:
    """The same batches; a thread reads the next one while the last is counted: neither side needs the interpreter."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch
