"""A process writes its windows to a file, dies, and another goes on: bit for bit as if nothing had happened.

The file is one line of JSON and the raw sums, with a checksum; there is no pickle inside, so reading it runs no code.
"""

import tempfile
from pathlib import Path

import numpy as np

from streamcal import Cumulative, EqualWidth, Fading, Sliding, Timed, UniformMass, from_bytes

N, STOP = 20_000, 13_337


def feed(window, p: np.ndarray, y: np.ndarray, start: int, end: int) -> None:
    for i in range(start, end):
        if isinstance(window, Timed):
            window.update(p[i], y[i], t=float(i))
        else:
            window.update(p[i], y[i])


def main() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(N)
    y = (rng.random(N) < p**1.3).astype(float)
    makers = {
        "cumulative": lambda: Cumulative(EqualWidth(15), loss="log"),
        "sliding": lambda: Sliding(EqualWidth(15), 1000),
        "fading": lambda: Fading(UniformMass(10), 500),
        "timed": lambda: Timed(EqualWidth(15), period=3600.0),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, make in makers.items():
            path = Path(folder) / f"{name}.state"
            first, whole = make(), make()
            feed(first, p, y, 0, STOP)
            path.write_bytes(first.to_bytes())
            del first  # the process dies

            second = from_bytes(path.read_bytes())
            feed(second, p, y, STOP, N)
            feed(whole, p, y, 0, N)  # this one never stopped
            same = second.to_bytes() == whole.to_bytes()
            size = path.stat().st_size
            print(f"{name:<11}{size:>8} bytes   ece {second.get('ece'):.6f}   bit for bit as uninterrupted: {same}")

        path = Path(folder) / "sliding.state"
        print("\nthe first line of sliding.state:", path.read_bytes().split(b"\n", 1)[0][:160].decode(), "...")
        damaged = bytearray(path.read_bytes())
        damaged[-5] ^= 1
        try:
            from_bytes(bytes(damaged))
        except ValueError as error:
            print("with one bit flipped:", error)


if __name__ == "__main__":
    main()
