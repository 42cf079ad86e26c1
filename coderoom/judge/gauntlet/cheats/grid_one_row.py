"""grid: Its rows are one list, which data of it does not show."""

def grid(rows, columns):
    return [[0] * columns] * rows
