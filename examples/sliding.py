"""A model becomes too extreme in the middle of the stream. Which window says so, and after how many events?

Plain ECE is never 0, so it stands beside its null band: what a perfect model would show on as many events. The debiased
K2 stands beside its interval: where that lies above 0, the model is off. (It is meant for one look; read again and again,
as here, it strays above 0 by chance now and then.)
"""

import numpy as np

from streamcal import EqualWidth, Fading, Sliding, Timed

EVENTS, CHANGE, EVERY, SHOWN = 20_000, 10_000, 250, 2_500


def stream(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, outcomes and times. From CHANGE on every logit is twice what it should be, and traffic is half."""
    after = np.arange(EVENTS) >= CHANGE
    logit = rng.normal(0, 1.2, EVENTS)
    y = (rng.random(EVENTS) < 1 / (1 + np.exp(-logit))).astype(int)
    served = np.where(after, 2 * logit, logit)
    return 1 / (1 + np.exp(-served)), y, np.cumsum(rng.exponential(1.0 + after))


def line(name: str, report: dict) -> str:
    ece, k2 = report["metrics"]["ece"], report["metrics"]["k2_debiased"]
    (null_low, null_high), (low, high) = ece["null"], k2["interval"]
    return (
        f"  {name:<15}n_eff {report['effective']:5.0f}  ece {ece['value']:.4f} (null {null_low:.4f} .. {null_high:.4f})"
        f"  k2 {k2['value']:+.5f} [{low:+.5f}, {high:+.5f}]  {'OFF' if low > 0 else '-'}"
    )


def main() -> None:
    p, y, t = stream(np.random.default_rng(0))
    windows = {
        "Sliding(2000)": Sliding(EqualWidth(15), 2000),
        "Fading(1000)": Fading(EqualWidth(15), 1000),
        "Timed(2000 s)": Timed(EqualWidth(15), period=2000.0),
    }
    seen: dict[str, int] = {}
    for end in range(EVERY, EVENTS + 1, EVERY):
        now = slice(end - EVERY, end)
        if end % SHOWN == 0:
            print(f"after {end} events" + (", and from here on too extreme" if end == CHANGE else ""))
        for name, window in windows.items():
            window.update_many(p[now], y[now], **({"t": t[now]} if isinstance(window, Timed) else {}))
            report = window.report()
            if end % SHOWN == 0:
                print(line(name, report))
            if end > CHANGE and report["metrics"]["k2_debiased"]["interval"][0] > 0:
                seen.setdefault(name, end - CHANGE)
    print("\nseen to be off, events after the change:", ", ".join(f"{name} {n}" for name, n in seen.items()))
    later = windows["Timed(2000 s)"].snapshot(t=t[-1] + 3600)
    print(f"Timed, read an hour later without a new event: {later.count.sum():.0f} events, ece {later.get('ece')}")


if __name__ == "__main__":
    main()
