"""Segments are keys of one window. Two machines tally half of the stream each; their snapshots add up to the whole.

The model is wrong in two of four countries, in opposite directions. Over all the two errors cancel: only the numbers per
segment show them.
"""

import numpy as np

from streamcal import Cumulative, EqualWidth, Snapshot, from_bytes

COUNTRIES = ("at", "be", "ch", "dk")
TRUE_LOGIT = np.array([0.0, 0.6, -0.6, 0.0])  # what the model does not know of each country


def stream(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, outcomes, and the number of each event's country."""
    rng = np.random.default_rng(seed)
    country = rng.choice(4, n, p=[0.4, 0.25, 0.25, 0.1])
    logit = rng.normal(0, 1, n)
    y = rng.random(n) < 1 / (1 + np.exp(-(logit + TRUE_LOGIT[country])))
    return 1 / (1 + np.exp(-logit)), y.astype(int), country


def machine(p: np.ndarray, y: np.ndarray, country: np.ndarray) -> bytes:
    """What one machine sends home: not its events, only its sums."""
    window = Cumulative(EqualWidth(15), keys=len(COUNTRIES))
    window.update_many(p, y, key=country)
    return window.snapshot().to_bytes()


def row(name: str, s: Snapshot) -> str:
    report = s.report()
    metrics, off = report["metrics"], report["rejected"]  # the tests that tell the events from those of a perfect model
    low, high = metrics["k2_debiased"]["interval"]
    verdict = f"off ({', '.join(off)})" if off else f"calibrated as far as n = {report['count']:,.0f} can tell"
    return (
        f"{name:<5}{s.count.sum():>8.0f}{metrics['pa_ratio']['value']:>9.3f}{metrics['ece']['value']:>9.4f}"
        f"{metrics['ece']['null'][1]:>9.4f}   [{low:+.5f}, {high:+.5f}]  {verdict}"
    )


def main() -> None:
    p, y, country = stream(60_000)
    half = len(p) // 2
    sent = [machine(p[part], y[part], country[part]) for part in (slice(half), slice(half, None))]
    print(f"two machines, {len(sent[0])} bytes each for {half} events each")
    one, two = map(from_bytes, sent)
    sums = one + two

    alone = from_bytes(machine(p, y, country))
    print("sums of both == sums of one machine that saw all:", np.allclose(sums.cells, alone.cells, rtol=1e-12))

    print(f"\n{'':<5}{'events':>8}{'sum p/y':>9}{'ece':>9}{'null to':>9}   interval of k2")
    for key, name in enumerate(COUNTRIES):
        print(row(name, sums[key]))
    print(row("all", sums[0] + sums[1] + sums[2] + sums[3]))


if __name__ == "__main__":
    main()
