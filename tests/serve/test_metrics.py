from __future__ import annotations

from partc.serve.metrics import Histogram, Metrics


def test_buckets_count_all_below_them() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.add(value)
    assert list(histogram.lines("x")) == [
        'x_bucket{le="0.1"} 2',
        'x_bucket{le="1.0"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 7.65",
        "x_count 4",
    ]


def test_every_sample_follows_its_head() -> None:
    metrics = Metrics()
    metrics.requests["ok"] += 2
    lines = metrics.text().splitlines()
    assert 'partc_requests_total{outcome="ok"} 2' in lines
    heads = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    samples = [line for line in lines if not line.startswith("#")]
    assert all(sample.startswith(tuple(heads)) for sample in samples)
    assert len(heads) == len(set(heads))
