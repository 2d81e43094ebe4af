"""A monitor beside a model: labels come days later, one country drifts, an alert names it; then a restart, and a replay.
Without Python: `streamcal watch --config streamcal.toml` reads predictions and labels from files, Kafka or Redis.
"""

import tempfile

import numpy as np

from streamcal.monitor import Monitor, parse
from streamcal.monitor.replay import replay

DAY = 86_400.0
CONFIG = """
state = "{0}/state.db"
audit = "{0}/audit.jsonl"
record = "{0}/taken.jsonl"
sinks.file = {{ type = "file", path = "{0}/alerts.jsonl" }}
models.churn = {{}}
segments.fields = ["country"]
windows.week = {{ time = "7d", panes = 28 }}
detectors.drift = {{ arl = 1_000_000 }}
rules.drift = {{ alarm = "drift", segments = "each" }}
rules.gap = {{ metric = "k1", window = "week", segments = "each", above = 0.05, level = 0.999 }}
"""


def events(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A thousand predictions on each of 40 days; from day 20 on those for ch are too low."""
    country = rng.choice(["at", "be", "ch", "dk"], (40, 1000), p=[0.4, 0.3, 0.2, 0.1])
    p = rng.beta(2, 5, (40, 1000))
    truth = np.where((country == "ch") & (np.arange(40)[:, None] >= 20), np.minimum(1.6 * p, 1.0), p)
    return np.arange(40_000).reshape(40, 1000), p, rng.random((40, 1000)) < truth, country


def a_day(monitor: Monitor, day: int, ids: np.ndarray, p: np.ndarray, y: np.ndarray, country: np.ndarray) -> None:
    alerts = monitor.advance(day * DAY)
    if day < 40:
        alerts += monitor.predict_many(ids[day], p[day], t=day * DAY, segment={"country": country[day]})
    if day >= 3:  # a label takes three days
        alerts += monitor.label_many(ids[day - 3], y[day - 3], t=day * DAY)
    print(*(f"day {day}: {alert['text']}\n" for alert in alerts), sep="", end="")


def main() -> None:
    stream = events(np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        config = parse(CONFIG.format(folder))
        for start, stop in ((0, 25), (25, 43)):  # two processes, as it were: the second goes on where the first was
            with Monitor(config) as monitor:
                for day in range(start, stop):
                    a_day(monitor, day, *stream)
                counters = monitor.status()["models"][0]["predictions"]
            print(f"day {stop}: {counters['joined']} joined, {counters['pending']} pending")
        with open(f"{folder}/taken.jsonl", "rb") as taken, open(f"{folder}/audit.jsonl", "rb") as audit:
            found = replay(config, taken, audit)
        print(f"replayed {found.events:,} events:", found.difference or "the same decisions")


if __name__ == "__main__":
    main()
