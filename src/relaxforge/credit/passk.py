"""How often k attempts succeed, estimated without bias from n scored attempts of which c succeeded."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Probability that at least one of ``k`` attempts succeeds: ``1 - C(n-c, k) / C(n, k)`` (arXiv 2107.03374).

    ``None`` when fewer than ``k`` attempts were scored: nothing is known then, least of all 1.
    """
    _check(n, c, k)
    return None if n < k else 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Probability that all of ``k`` attempts succeed: ``C(c, k) / C(n, k)`` (pass^k, arXiv 2406.12045).

    ``None`` when fewer than ``k`` attempts were scored.
    """
    _check(n, c, k)
    return None if n < k else comb(c, k) / comb(n, k)


def coverage(n_scored: int, n_attempted: int) -> float | None:
    """Share of attempts that have a score; ``None`` without attempts."""
    if not 0 <= n_scored <= n_attempted:
        raise ValueError(f"{n_scored} scored of {n_attempted} attempted")
    return n_scored / n_attempted if n_attempted else None


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"need 0 <= c <= n and k >= 1, got n={n}, c={c}, k={k}")
