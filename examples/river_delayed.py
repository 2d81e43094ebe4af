"""Labels that come late: River asks for a forecast when an event comes, and shows its label hours afterwards.

By then the classifier has changed. A recalibrator must learn from the score that was served, not from what the classifier
would say now: RecalibratedClassifier remembers it for each event that waits for its label (memory=0: it does not). Here an
event comes every minute, and what the features mean is drawn anew every 2,500 minutes. Raw and recalibrated forecasts of
one run stand side by side.
"""

import datetime as dt
import math
import random

from river import compose, evaluate, linear_model, metrics

from streamcal import OnlinePlatt
from streamcal.river import ECE, RecalibratedClassifier, compare

START = dt.datetime(2024, 1, 1)
DELAYS = {"at once": dt.timedelta(0), "an hour": dt.timedelta(hours=1), "16 hours": dt.timedelta(hours=16)}


def stream(events=15_000, features=6):
    rng = random.Random(1)
    for minute in range(events):
        if minute % 2500 == 0:
            drawn = [rng.gauss(0, 1) for _ in range(features)]
            steepness = 2 / math.hypot(*drawn)
        x = [rng.gauss(0, 1) for _ in range(features)]
        odds = steepness * sum(a * b for a, b in zip(drawn, x, strict=True))
        yield (
            {"at": START + dt.timedelta(minutes=minute), **dict(enumerate(x))},
            rng.random() < 1 / (1 + math.exp(-odds)),
        )


def model(recalibrator=None, memory=10_000):
    return RecalibratedClassifier(compose.Discard("at") | linear_model.LogisticRegression(), recalibrator, memory)


def main() -> None:
    print("ECE and log loss\nlabels come         raw    Platt, on served scores    Platt, predicted again")
    for name, delay in DELAYS.items():
        served, again = (compare(model(OnlinePlatt(), m), stream(), "at", delay) for m in (10_000, 0))
        three = (served["before"], served["after"], again["after"])
        print(
            f"{name:<12}" + "{:>14}{:>21}{:>26}".format(*(f"{one['ece']:.3f} {one['log_loss']:.3f}" for one in three))
        )

    metric, default = metrics.LogLoss() + ECE(), model()
    evaluate.progressive_val_score(stream(), default, metric, moment="at", delay=DELAYS["16 hours"])
    print("\nthe default in River's progressive validation, 16 hours: " + str(metric).replace("\n", ", "))
    counts = default.report()["counts"]
    print(
        f"labels learned with the score that was served: {counts['served']:,}, predicted again: {counts['repredicted']}"
    )


if __name__ == "__main__":
    main()
