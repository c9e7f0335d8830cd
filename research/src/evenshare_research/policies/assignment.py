"""Min-cost matching: each row gets a different column, and the sum of costs is minimal.

Source: Kuhn, Munkres; by shortest augmenting paths as in Jonker and Volgenant (Computing 38, 1987).
Costs are integers, so the answer is the same on every machine. Ties between matchings are always
broken the same way.
"""

import numpy as np
from numpy.typing import NDArray

NOBODY = -1


def assign(costs: NDArray[np.int64]) -> list[int]:
    """Return the column of each row.

    `costs` has at least as many columns as rows; all costs are >= 0. The sum of any one cost per
    row must stay below 2**62.

    Raises:
        ValueError: there are fewer columns than rows.
    """
    rows, columns = costs.shape
    if columns < rows:
        raise ValueError(f"{rows} rows cannot each have one of {columns} columns")
    row_of = np.full(columns, NOBODY)
    row_price, column_price = np.zeros(rows, np.int64), np.zeros(columns, np.int64)
    for row in range(rows):
        _augment(costs, row, row_of, row_price, column_price)
    column_of = [NOBODY] * rows
    for column, row in enumerate(row_of.tolist()):
        if row != NOBODY:
            column_of[row] = column
    return column_of


def _augment(
    costs: NDArray[np.int64],
    start: int,
    row_of: NDArray[np.int64],
    row_price: NDArray[np.int64],
    column_price: NDArray[np.int64],
) -> None:
    """Match one more row along the shortest path by reduced costs, all of which stay >= 0."""
    columns = costs.shape[1]
    far = np.iinfo(np.int64).max
    distance = np.full(columns, far)
    came_from = np.full(columns, NOBODY)  # the previous column on the path
    is_done = np.zeros(columns, np.bool_)
    row, column, length = start, NOBODY, 0
    while True:
        reached = length + costs[row] - row_price[row] - column_price
        is_nearer = ~is_done & (reached < distance)
        distance[is_nearer], came_from[is_nearer] = reached[is_nearer], column
        # on a tie, the first column is chosen
        column = int(np.argmin(np.where(is_done, far, distance)))
        length = int(distance[column])
        is_done[column] = True
        row = int(row_of[column])
        if row == NOBODY:
            break
    passed = is_done.copy()
    passed[column] = False
    row_price[start] += length
    row_price[row_of[passed]] += length - distance[passed]
    column_price[passed] -= length - distance[passed]
    while column != NOBODY:
        before = int(came_from[column])
        row_of[column] = start if before == NOBODY else row_of[before]
        column = before
