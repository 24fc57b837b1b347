"""`ContractViolation`: what is raised for a dataset that breaks its contract. Imported without what finds it, so that
reading and listing a store need neither pandera nor polars.
"""

import pyarrow as pa

FAILURE_CASES = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False, metadata={"meaning": "the column that the rule is about"}),
        pa.field("rule", pa.string(), nullable=False, metadata={"meaning": "what should be true"}),
        pa.field("row", pa.int64(), metadata={"meaning": "position in the dataset; null: not about rows"}),
        pa.field("id", pa.string(), metadata={"meaning": "the row's key columns"}),
        pa.field("found", pa.string(), metadata={"meaning": "the row's values in the columns concerned"}),
    ]
)
"""One row per failing row and rule."""


class ContractViolation(ValueError):  # noqa: N818 (the name says what happened)
    """A dataset breaks its contract.

    Attributes:
        kind: The dataset kind.
        message: A few lines: dataset, columns, rules, numbers of failing rows, the first of them, what to do.
        failure_cases: Schema `FAILURE_CASES`; at most 1000 rows per rule and batch.
    """

    def __init__(self, kind: str, message: str, failure_cases: pa.Table) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.failure_cases = failure_cases
