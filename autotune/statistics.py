"""The median and its order-statistic interval. Hardly anything is imported: a cold look-up pays for every module."""

from __future__ import annotations

from collections.abc import Sequence

NAN = float("nan")


def median(samples: Sequence[float]) -> float:
    """Return the median, the mean of the middle two for an even number of samples; NaN where there is none."""
    if not samples:
        return NAN
    ordered = sorted(samples)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval between two order statistics that covers the median with at least `confidence`.

    The number of samples below the median is binomial(n, 1/2), whatever the distribution, so the k-th smallest
    and the k-th largest enclose it with probability 1 - 2 * P(B < k). Fewer than 6 samples cannot reach 95 %:
    their range is returned. NaNs where there is no sample. Same unit as the samples.

    Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    n = len(samples)
    if n == 0:
        return NAN, NAN
    ordered = sorted(samples)
    rank = interval_rank(n, confidence)
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def interval_rank(n: int, confidence: float = 0.95) -> int:
    """Return the 0-based rank of the interval's lower end among `n` samples; the upper is `n - 1 - rank`."""
    # Integers throughout: 2**n leaves the floats at n = 1024.
    allowed = round((1.0 - confidence) * 1_000_000) << n
    term, below, rank = 1, 0, -1
    while rank + 1 < (n + 1) // 2:
        below += term
        if 2_000_000 * below > allowed:
            break
        rank += 1
        term = term * (n - rank) // (rank + 1)
    return max(0, rank)
