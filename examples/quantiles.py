"""Forecasts of quantiles: is the outcome below the forecast .1, .5 and .9 of the time, and wherever the forecast lies?

Demand is lognormal, and its spread grows with its size. One forecaster knows that; the other takes one spread for all,
learned from past errors. Coverage over all is nearly right for both. q1 looks row by row, and tells them apart.
"""

from statistics import NormalDist

import numpy as np

from streamcal import Cumulative, Quantile, UniformMass

LEVELS = (0.1, 0.5, 0.9)
N = 40_000


def demand(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Known size, known spread of the logarithm, and the outcome."""
    size = rng.uniform(1.0, 4.0, N)
    spread = 0.1 + 0.15 * size
    return size, spread, np.exp(size + spread * rng.normal(size=N))


def main() -> None:
    size, spread, y = demand(np.random.default_rng(0))
    z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    knowing = np.exp(size[:, None] + spread[:, None] * z)
    half = N // 2  # the first half is the past
    error = np.log(y[:half]) - size[:half]
    plain = np.exp(size[:, None] + np.quantile(error, LEVELS))

    for name, v in (("one that knows the spread", knowing), ("one spread for all", plain)):
        window = Cumulative(UniformMass(15), claim=Quantile(LEVELS), loss="pinball")
        window.update_many(v[half:], y[half:])  # shape (n, 3): one key per level
        print(f"\n{name}, {N - half} events")
        print(f"{'level':>7}{'coverage':>10}{'q1':>9}{'null to':>9}{'pinball':>9}   interval of k2")
        for level, report in zip(LEVELS, window.report()["keys"], strict=True):
            metrics = {k: m["value"] for k, m in report["metrics"].items()}
            low, high = report["metrics"]["k2_debiased"]["interval"]
            null = report["metrics"]["q1"]["null"][1]
            print(
                f"{level:>7}{metrics['coverage']:>10.3f}{metrics['q1']:>9.4f}{null:>9.4f}{metrics['pinball_loss']:>9.3f}"
                f"   [{low:+.5f}, {high:+.5f}]  {'off' if low > 0 else 'calibrated as far as these can tell'}"
            )
    bins = window.snapshot()[2].reliability()
    print("\nthe second forecaster's smallest and largest .9 forecasts:")
    for r in (bins[0], bins[-1]):
        print(
            f"  v up to {r['hi']:7.2f}: outcome below it {r['mean_y']:.3f} of the time [{r['low']:.3f}, {r['high']:.3f}]"
        )


if __name__ == "__main__":
    main()
