"""A River pipeline, recalibrated: a wrapper around it, and the calibration error as one more metric.

Naive Bayes takes each class for a round cloud; the two of this data are bananas. On a stream whose class balance changes half-way
(7 of 10 positives stay away from then on) River's progressive validation scores the plain pipeline and the recalibrated one
with the same metrics. A plain rule looks at the last 500 events every 500: "off" if a test at level .95 rejects that they
come from a calibrated model. (Looking again and again, it is wrong now and then: a rule to look at, not an alarm.)
"""

import random

from river import datasets, evaluate, metrics, naive_bayes, preprocessing

from streamcal.river import ECE, RecalibratedClassifier

WINDOW = 500


def stream():
    rng = random.Random(0)
    for lap in range(2):
        rows = list(datasets.Bananas())
        rng.shuffle(rows)
        yield from (row for row in rows if not (lap and row[1] and rng.random() < 0.7))


def pipeline(recalibrated):
    model = preprocessing.StandardScaler() | naive_bayes.GaussianNB()
    return RecalibratedClassifier(model) if recalibrated else model


def main() -> None:
    print("all events")
    for name in ("plain", "recalibrated"):
        metric = metrics.LogLoss() + metrics.Accuracy() + ECE()
        evaluate.progressive_val_score(stream(), pipeline(name == "recalibrated"), metric)
        print(f"  {name:<14}" + str(metric).replace("\n", "   "))

    print(f"\nlast {WINDOW} events: ECE, and what a perfect model would stay below")
    runs = []
    for recalibrated in (False, True):
        windowed = ECE(window_size=WINDOW)
        steps = evaluate.iter_progressive_val_score(stream(), pipeline(recalibrated), windowed, step=WINDOW)
        runs.append([(step["Step"], windowed.get(), windowed.report()) for step in steps])
    for (step, plain, one), (_, repaired, two) in zip(*runs, strict=True):
        said = [
            f"{value:.3f} {'off' if report['rejected'] else 'ok':<4}"
            for value, report in ((plain, one), (repaired, two))
        ]
        print(
            f"  event {step:>6}   plain {said[0]}  recalibrated {said[1]}  null to {one['metrics']['ece']['null'][1]:.3f}"
        )


if __name__ == "__main__":
    main()
