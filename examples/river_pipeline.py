"""A River pipeline, recalibrated, with a drift alarm: a wrapper around it, one more metric, and a detector fed like a metric.

Naive Bayes takes each class for a round cloud; the two of this data are bananas. On a stream whose class balance changes half-way
(7 of 10 positives stay away from then on) the plain pipeline and the recalibrated one forecast the same events. The detector asks
whether the claims are true, and if they are, alarms once in 5,000 events at most, however the events change. The recipe:
recalibrate first; a plain pipeline that starts anew at every alarm can be worse than one that is left alone. To start anew as
well, learn the events of report()["window"]: it counts those that the detector took (a prediction that says nothing is refused).
"""

import random

from river import datasets, metrics, naive_bayes, preprocessing

from streamcal.river import ECE, CalibrationDriftDetector, RecalibratedClassifier


def stream():
    rng = random.Random(0)
    for lap in range(2):
        rows = list(datasets.Bananas())
        rng.shuffle(rows)
        yield from (row for row in rows if not (lap and row[1] and rng.random() < 0.7))


def pipeline():
    return preprocessing.StandardScaler() | naive_bayes.GaussianNB()


def run(name, make, restart=False):
    model = make()
    detector, metric, events = CalibrationDriftDetector(arl=5_000, tolerance=0.02), metrics.LogLoss() + ECE(), []
    print(name)
    for i, (x, y) in enumerate(stream()):
        said = model.predict_proba_one(x)
        metric.update(y, said)
        detector.update(y, said)
        model.learn_one(x, y)
        if said:
            events.append((x, y))
        if detector.drift_detected:
            report = detector.report()
            if detector.n_detections <= 3:
                print(f"  alarm at {i}: {report['text']}")
            if restart:
                model = make()
                for one in events[report["window"][0] :]:
                    model.learn_one(*one)
    print("  " + str(metric).replace("\n", "   "), f"  alarms: {detector.n_detections}")


def main() -> None:
    run("plain", pipeline)
    run("recalibrated", lambda: RecalibratedClassifier(pipeline()))
    run("recalibrated, started anew at every alarm", lambda: RecalibratedClassifier(pipeline()), restart=True)


if __name__ == "__main__":
    main()
