"""Quantile regression in River: do the quantiles and intervals cover as often as they say, and at what width?

A linear model learns three quantiles of an approval rating by stochastic gradients. They are far off for hundreds of events:
recalibration adds a tracked offset. Then intervals about an ordinary regression, beside River's own jackknife, also on a
stream whose spread triples half-way. Every forecast is made before its outcome is learned.
"""

import random

from river import conf, datasets, linear_model, optim, preprocessing

from streamcal.river import RecalibratedRegressor


def linear(loss=None):
    return preprocessing.StandardScaler() | linear_model.LinearRegression(loss=loss, intercept_lr=0.1)


def drifting(n=5000):
    rng = random.Random(0)
    for i in range(n):
        x = rng.uniform(-1, 1)
        yield {"x": x}, 5 * x + rng.gauss(0, 1 if i < n // 2 else 3)


def covered(model, dataset):
    """Share of targets within their interval, its mean width and the interval score: width + 20 x distance of a miss."""
    inside = width = score = n = 0
    for x, y in dataset:
        interval = model.predict_one(x, with_interval=True)
        n, inside, width = n + 1, inside + (y in interval), width + interval.width
        score += interval.width + 20 * max(interval.lower - y, y - interval.upper, 0)
        model.learn_one(x, y)
    return inside / n, width / n, score / n


def main() -> None:
    print(f"quantiles, TrumpApproval, T = 1001\n{'level':>7}{'coverage':>19}{'pinball loss':>21}")
    for level in (0.1, 0.5, 0.9):
        model = RecalibratedRegressor(linear(optim.losses.Quantile(level)), level=level)
        for x, y in datasets.TrumpApproval():
            model.learn_one(x, y)
        said = model.report()
        loss = [said[when]["metrics"]["pinball_loss"]["value"] for when in ("before", "after")]
        share = said["coverage"]
        print(f"{level:>7}{share['before']:>10.3f} -> {share['after']:.3f}{loss[0]:>12.3f} -> {loss[1]:.3f}")

    print("\nintervals at .9         coverage   width   score")
    for name, dataset in (("TrumpApproval", datasets.TrumpApproval), ("spread triples", drifting)):
        for kind, model in (
            ("jackknife", conf.RegressionJackknife(linear(), confidence_level=0.9)),
            ("tracked", RecalibratedRegressor(linear(), interval=0.9)),
        ):
            print(f"{name:<15}{kind:<11}{{:>6.3f}}{{:>8.2f}}{{:>8.2f}}".format(*covered(model, dataset())))


if __name__ == "__main__":
    main()
