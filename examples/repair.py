"""A model drifts twice. What does online recalibration do, and can it do harm? Every forecast is made before its outcome.

A Guard mixes the raw forecast with recalibrators; it is never more than ln 4 = 1.39 nats worse than any of the four, summed
over the whole stream. OnlinePatching says in words which levels were wrong, since when, and when they recovered.
"""

import math

import numpy as np

from streamcal import Grid, Guard, OnlinePatching, Sliding, ece

EVENTS = 90_000
STAGES = ("calibrated", "level .7 comes true half the time", "calibrated again")


def stream(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts on 0, .1, ..., 1; in the middle third the level .7 is off by .2."""
    p, third = rng.integers(0, 11, EVENTS) / 10, np.arange(EVENTS) // (EVENTS // 3)
    truth = np.where((third == 1) & np.isclose(p, 0.7), 0.5, p)
    return p, (rng.random(EVENTS) < truth).astype(float)


def log_loss(q: np.ndarray, y: np.ndarray) -> float:
    inner = np.clip(q, 1e-15, 1 - 1e-15)
    return float(-(y * np.log(inner) + (1 - y) * np.log1p(-inner)).sum())


def main() -> None:
    p, y = stream(np.random.default_rng(7))
    guard = Guard()
    patching = OnlinePatching(m=10, alpha=2e-4, window=Sliding(Grid(10), 6000))
    made = {"raw": p, "guard": guard.run(p, y), "patching": patching.run(p, y)}

    print(f"{'':<36}" + "".join(f"{name:>12}" for name in made))
    for i, stage in enumerate(STAGES):
        part = slice(i * EVENTS // 3 + 5000, (i + 1) * EVENTS // 3)
        print(f"ECE, {stage:<31}" + "".join(f"{ece(q[part], y[part]):12.4f}" for q in made.values()))
    excess = log_loss(made["guard"], y) - log_loss(p, y)
    print(f"\nguard: {excess:+.1f} nats over the raw forecast in all, at most {math.log(4):.2f} was promised")
    for name, weight in guard.weights.items():
        print(f"  {weight:6.1%} {name}")
    print("\npatching:")
    for patch in patching.history():
        print(f"  {patch}")
    print(f"  still patched: {patching.patches or 'nothing'}")


if __name__ == "__main__":
    main()
