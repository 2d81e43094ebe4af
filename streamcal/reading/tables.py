"""Tables as streams: files, pipes and growing files -> batches of events, in any format.

A table knows its columns before its first batch, never holds more than a few blocks, and hands out empty batches
while it waits, so that whoever reads it can look at the clock.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from streamcal.reading import SourceError
from streamcal.reading.cells import EventBatch
from streamcal.reading.formats import FORMATS, Csv, Format, TextFormat, hopeless, known, sniff
from streamcal.reading.lines import BOM, Long, Pipe
from streamcal.reading.packed import kind_of, unpacked
from streamcal.reading.records import HOPELESS
from streamcal.reading.rotation import Follower
from streamcal.reading.waiting import Patience

BLOCK = 8 << 20  # bytes of a file read at once: more is no faster, and a few blocks are in memory at a time
SNIFFED = 1 << 16  # bytes in which a NUL says that a file is no text
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
    patience = patience or Patience()
    kind, head, pieces = opened(path, form, follow=follow, patience=patience, block=block)
    if not issubclass(kind, TextFormat):
        return kind(path)
    source = Csv(head, arrow) if kind is Csv else kind(head)
    rest = itertools.chain([head[source.taken :]], pieces)
    grows = follow and path != "-" and not _is_pipe(path)
    source.take_from(rest, lambda: not grows and not patience.stop.asked)
    return source


def opened(
    path: str, form: str | None, *, follow: bool = False, patience: Patience | None = None, block: int = BLOCK
) -> tuple[type[Format], bytes, Iterator[bytes]]:
    """The format of a file, a named pipe or -, what it begins with (its header at least), and the pieces that follow.

    Of a format that is no text only the format: it reads its file at its own pace.
    """
    known(form)
    patience = patience or Patience()
    try:
        piped = path == "-" or _is_pipe(path)
        start = b""
        if not piped:
            with open(path, "rb") as file:
                start = file.read(4096)
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None
    if start and kind_of(start) is None and not issubclass(kind := FORMATS[form or sniff(start)], TextFormat):
        return kind, start, iter(())
    grows = follow and kind_of(start) in (None, "gzip")  # the follower reads gzip; other packed files do not grow
    read = _piped if piped else _followed if grows else _file
    pieces = unpacked(read(path, block, patience))
    begun = _until(pieces, lambda found: bool(found.strip(BLANK)))
    text = text_format(begun, form)
    pieces = text.lines_of(itertools.chain([begun], pieces), lambda: not patience.stop.asked)
    return text, _until(pieces, lambda found: b"\n" in found.lstrip(BLANK)), pieces


def _until(pieces: Iterator[bytes], is_enough: Callable[[bytes], bool]) -> bytes:
    """As many pieces as are enough, together. SourceError if they are no text: a header has an end."""
    parts: list[bytes] = []
    size, is_blank = 0, True
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        # blank pieces, and those without the end that is looked for, are not looked through again and again
        if piece and is_enough(b"x" + piece if not is_blank else piece):
            break
        is_blank = is_blank and not piece.strip(BLANK)
        if size > HOPELESS:
            raise hopeless(1)
    return b"".join(parts)


def text_format(head: bytes, form: str | None) -> type[TextFormat]:
    """The format of a text that begins like this; SourceError if it is none."""
    if not head.strip(BLANK):
        raise SourceError("empty: there is nothing to read")
    kind = FORMATS[form or sniff(head)]
    if not issubclass(kind, TextFormat):
        raise SourceError(f"{kind.__name__} cannot be read from a pipe or a packed file; give the file")
    if b"\0" in head[:SNIFFED]:
        raise SourceError("not a text file; give CSV, JSON, JSON Lines, Parquet or Arrow (text as UTF-8)")
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
                    raise hopeless(next(i for i, line in enumerate(taken, first) if isinstance(line, Long)))
                yield b"\n".join([*whole, b""])
                patience.fed()
            elif begun > HOPELESS and lines is not None:
                raise hopeless(lines.line + 1)
            elif patience.over or follower.ended:
                break
            else:
                yield b""
        if follower.file is not None:
            yield follower.file.lines.unended  # no event yet; but a header may have columns
    finally:
        follower.close()


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
