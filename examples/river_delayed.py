"""Labels that come late: River asks for a forecast when an event comes, and shows its label hours afterwards.

By then the classifier has changed. A recalibrator must learn from the score that was served, not from what the classifier
would say now: RecalibratedClassifier remembers it for each event that waits for its label. Here an event comes every
minute, and its class balance changes half-way; raw and recalibrated forecasts of the same run stand side by side.
"""

import datetime as dt
import random

from river import compose, datasets, evaluate, metrics, naive_bayes, preprocessing

from streamcal.river import ECE, RecalibratedClassifier, compare

START = dt.datetime(2024, 1, 1)
DELAYS = {"at once": dt.timedelta(0), "an hour": dt.timedelta(hours=1), "16 hours": dt.timedelta(hours=16)}


def stream():
    """Bananas twice; in the second half 7 of 10 positives stay away."""
    rng, minute = random.Random(0), 0
    for lap in range(2):
        rows = list(datasets.Bananas())
        rng.shuffle(rows)
        for x, y in rows:
            if not (lap and y and rng.random() < 0.7):
                minute += 1
                yield {**x, "at": START + dt.timedelta(minutes=minute)}, y


def pipeline():
    return RecalibratedClassifier(compose.Discard("at") | preprocessing.StandardScaler() | naive_bayes.GaussianNB())


def main() -> None:
    print(f"{'labels come':<12}{'ECE':>18}{'log loss':>20}{'served scores':>15}")
    for name, delay in DELAYS.items():
        both = compare(pipeline(), stream(), moment="at", delay=delay)
        pairs = [(both["before"][k], both["after"][k]) for k in ("ece", "log_loss")]
        counts = both["model"].report()["counts"]
        share = counts["served"] / (counts["served"] + counts["repredicted"])
        print(f"{name:<12}" + "".join(f"{a:>10.3f} -> {b:.3f}" for a, b in pairs) + f"{share:>14.1%}")

    metric = metrics.LogLoss() + ECE()
    evaluate.progressive_val_score(stream(), pipeline(), metric, moment="at", delay=DELAYS["16 hours"])
    print("\nRiver's progressive validation, 16 hours: " + str(metric).replace("\n", ", "))
    print(f"\n16 hours late\n{both}")


if __name__ == "__main__":
    main()
