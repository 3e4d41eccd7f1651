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


def test_guesses_have_their_share_and_their_work() -> None:
    lines = Metrics(generated_tokens=40, drafted=30, accepted=10).text().splitlines()
    for line in (
        "partc_drafted_tokens_total 30",
        "partc_accepted_tokens_total 10",
        "partc_drafted_share 0.25",
        "partc_rows_per_token 1.5",
    ):
        assert line in lines
    none = Metrics().text().splitlines()
    assert "partc_drafted_share 0.0" in none
    assert "partc_rows_per_token 1.0" in none
