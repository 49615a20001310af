"""What the games say about the strengths together, and its inverse: their covariance, whole or by parts.

The negative Hessian of the log likelihood is the Laplacian of who met whom, each pairing with its weight; the prior
adds to the diagonal. One parameter more, the worth of the first side, stands last where it is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from palus.ratings.games import Cells
from palus.types import F64, I64

_TOLERANCE = 1e-6
"""Of a solution: the steps of a fit grow small themselves, and errors with them."""
_ROWS = 500


@dataclass(frozen=True)
class Dense:
    """The whole matrix [size, size]."""

    matrix: F64

    @property
    def variance(self) -> F64:
        """[size]."""
        return np.diag(self.matrix)

    def solve(self, right: F64) -> F64:
        """The covariance times a vector."""
        return np.asarray(self.matrix @ right)

    def gap(self, first: I64, second: I64) -> F64:
        """Variance of t_first - t_second, of each pairing."""
        variance = self.variance
        return np.maximum(variance[first] + variance[second] - 2.0 * self.matrix[first, second], 0.0)

    def moments(self, n: int) -> tuple[float, float]:
        """Trace, and sum of squares, of the covariance of the first n around their mean."""
        centred = self.matrix[:n, :n] - self.matrix[:n, :n].mean(axis=0)
        return float(np.trace(centred)), float(np.square(centred).sum())

    def widened(self, moves: F64, by: float) -> Dense:
        """The covariance plus `by` times moves moves^T."""
        return Dense(self.matrix + by * np.outer(moves, moves))


@dataclass(frozen=True)
class Sparse:
    """The same by parts: solutions by conjugate gradients, each variance with all other parameters held.

    weight: [C] of each cell of `cells`. precision: [size] of the prior. Source: Hestenes and Stiefel, Methods of
    conjugate gradients for solving linear systems, 1952; preconditioned by the diagonal.
    """

    weight: F64
    cells: Cells
    n: int
    precision: F64
    moves: F64 | None = None
    by: float = 0.0

    @cached_property
    def _diagonal(self) -> F64:
        diagonal = self.precision.copy()
        diagonal[: self.n] += np.bincount(self.cells.first, self.weight, self.n)
        diagonal[: self.n] += np.bincount(self.cells.second, self.weight, self.n)
        if len(diagonal) > self.n:
            diagonal[-1] += self.weight.sum()
        return diagonal

    @cached_property
    def _met(self) -> Any:
        from scipy.sparse import csr_array

        of, pairings = self.cells.pairings
        weight = np.bincount(of, self.weight, pairings.shape[1])
        rows, columns, pairing = self.cells.rows
        starts = np.searchsorted(rows, np.arange(self.n + 1))
        return csr_array((weight[pairing], columns, starts), shape=(self.n, self.n))

    @cached_property
    def variance(self) -> F64:
        held: F64 = 1.0 / self._diagonal
        return held if self.moves is None else held + self.by * np.square(self.moves)

    def solve(self, right: F64) -> F64:
        from scipy.sparse.linalg import LinearOperator, cg  # slow to import, needed by few

        n, size, diagonal, met = self.n, len(self.precision), self._diagonal, self._met
        sides = np.bincount(self.cells.first, self.weight, n) - np.bincount(self.cells.second, self.weight, n)

        def times(x: F64) -> F64:
            product = diagonal * x
            product[:n] -= met @ x[:n]
            if size > n:
                product[:n] += sides * x[n]
                product[n] += sides @ x[:n]
            return product

        operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
        scaled = LinearOperator((size, size), matvec=lambda x: x / diagonal, dtype=np.float64)
        found, _ = cg(operator, right, rtol=_TOLERANCE, maxiter=2000, M=scaled)
        return np.asarray(found)

    def gap(self, first: I64, second: I64) -> F64:
        return np.asarray(self.variance[first] + self.variance[second])

    def moments(self, n: int) -> tuple[float, float]:
        variance = self.variance[:n] * (1.0 - 1.0 / n)
        return float(variance.sum()), float(np.square(variance).sum())

    def widened(self, moves: F64, by: float) -> Sparse:
        return replace(self, moves=moves, by=by)


Inverse = Dense | Sparse
"""Covariance of the parameters [size]."""


def dense(weight: F64, cells: Cells, n: int, precision: F64) -> F64:
    """Information and prior as a matrix [size, size]. weight: [C] of each cell."""
    size = len(precision)
    information = np.zeros((size, size))
    met = np.bincount(cells.first * n + cells.second, weight, n * n).reshape(n, n)
    information[:n, :n] = -met - met.T
    as_first, as_second = np.bincount(cells.first, weight, n), np.bincount(cells.second, weight, n)
    information[np.arange(n), np.arange(n)] += as_first + as_second
    if size > n:
        information[n, :n] = information[:n, n] = as_first - as_second
        information[n, n] = weight.sum()
    return information + np.diag(precision)


def invert(matrix: F64) -> Dense:
    """The inverse of `dense`."""
    inverse = np.linalg.inv(matrix)
    return Dense(0.5 * (inverse + inverse.T))


def whole(sparse: Sparse) -> F64:
    """[n, n] covariance of the strengths that a sparse inverse stands for, in one matrix from start to end.

    By Cholesky's decomposition, in float64. The side's worth is taken for known: mirrored pairs tell it by themselves.
    """
    from scipy.linalg import lapack

    cells, n = sparse.cells, sparse.n
    matrix = np.zeros((n, n), order="F")
    matrix[cells.first, cells.second] -= sparse.weight  # every ordered pairing has one cell
    matrix[cells.second, cells.first] -= sparse.weight
    matrix[np.arange(n), np.arange(n)] = sparse._diagonal[:n]
    factor, failed = lapack.dpotrf(matrix, lower=True, clean=False, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError(f"the information of {n} players is not positive definite (dpotrf: {failed})")
    covariance, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    for start in range(0, n, _ROWS):  # mirror the lower half
        rows = slice(start, start + _ROWS)
        covariance[rows, start + _ROWS :] = covariance[start + _ROWS :, rows].T
        block = np.tril(covariance[rows, rows])
        covariance[rows, rows] = block + np.tril(block, -1).T
    if sparse.moves is not None:
        for start in range(0, n, _ROWS):
            rows = slice(start, min(start + _ROWS, n))
            covariance[rows] += sparse.by * np.outer(sparse.moves[rows], sparse.moves[:n])
    return np.asarray(covariance)
