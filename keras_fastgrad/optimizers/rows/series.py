"""What a row's weight owes for the steps that it sat out, as a short series.

In step j after a row was last touched, an optimizer with moments m and v
moves it by

    a_j m b1^j / (b2^j r + e),    r = sqrt(v),

where a_j is that step's size and b2 the factor by which r decays (sqrt(beta_2)
in Adam). With d = r + e, q = r / d and D_j = 1 - b2^j this is

    (m / d) a_j b1^j / (1 - q D_j),    0 <= q <= 1.

For each j the last factor is a smooth function of q alone, with its pole at
1 / D_j > 1. It is interpolated by a polynomial through Chebyshev's points on
[0, 1], whose error falls as rho^-n with
rho = x + sqrt(x^2 - 1), x = 2 / D_j - 1 (Trefethen, Approximation Theory and
Approximation Practice, theorem 8.2). The polynomials of all j add up to one,
whose coefficients depend only on the step at which the row was last touched.
"""

import dataclasses
import functools
import math

import numpy as np

# Largest error of a row's move, relative to the move.
TOLERANCE = 1e-7
MOST_STEPS = 4096
MOST_TERMS = 12


@dataclasses.dataclass(frozen=True)
class Series:
    """The weights with which a step counts for rows touched before it.

    Args:
        weights: Array of shape `[steps, terms]` in float64. Row j - 1 has the
            coefficients of the polynomial in q of a step j steps later,
            lowest power first, times b1^j.
        bound: Bound on the error of a move, relative to the move.
    """

    weights: np.ndarray
    bound: float

    @property
    def steps(self) -> int:
        """Steps after which a row owes no more."""
        return self.weights.shape[0]

    @property
    def terms(self) -> int:
        """Coefficients a row needs."""
        return self.weights.shape[1]


NO_MOVE = Series(np.zeros((0, 0)), 0.0)


@functools.lru_cache(maxsize=64)
def decay_series(momentum: float, spread: float = 1.0) -> Series | None:
    """The shortest series that meets the tolerance.

    Args:
        momentum: b1 above, the factor by which m decays, below 1.
        spread: b2 above, the factor by which the denominator's r decays; 1
            where the denominator stays as it is. Defaults to 1.

    Returns:
        The series, or `None` where it would be longer than 4,096 steps or 12
        terms.
    """
    if momentum == 0:
        return NO_MOVE
    ratio = momentum / spread
    if ratio >= 1:
        return None
    # With q = 1, step j counts ratio^j: what is cut off is ratio^steps of all.
    steps = math.ceil(math.log(TOLERANCE / 2) / math.log(ratio))
    if steps > MOST_STEPS:
        return None
    later = np.arange(1, steps + 1)
    fall = 1.0 - spread**later
    decay = momentum**later
    for terms in range(1, MOST_TERMS + 1):
        polynomials = _interpolants(fall, terms)
        bound = _bound(polynomials, fall, decay) + ratio**steps
        if bound <= TOLERANCE:
            return Series(decay[:, None] * polynomials, bound)
    return None


def _interpolants(fall: np.ndarray, terms: int) -> np.ndarray:
    # Chebyshev's points of the first kind, moved from [-1, 1] to [0, 1].
    angles = np.pi * (np.arange(terms) + 0.5) / terms
    points = (1.0 + np.cos(angles)) / 2.0
    values = 1.0 / (1.0 - np.outer(fall, points))
    powers = np.vander(points, terms, increasing=True)
    return np.linalg.solve(powers, values.T).T


def _bound(
    polynomials: np.ndarray, fall: np.ndarray, decay: np.ndarray
) -> float:
    # Each step's error, at its worst q of a fine grid. A move is at least
    # what it is at q = 0, where every factor is 1.
    grid = np.linspace(0.0, 1.0, 257)
    powers = np.vander(grid, polynomials.shape[1], increasing=True)
    error = np.abs(polynomials @ powers.T - 1.0 / (1.0 - np.outer(fall, grid)))
    return float(decay @ error.max(axis=1) / decay.sum())
