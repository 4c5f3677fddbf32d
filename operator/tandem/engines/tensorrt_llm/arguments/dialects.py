"""The schema of each dialect."""

from collections.abc import Mapping

from tandem.engines.tensorrt_llm.arguments import v1_2, v1_3, v1_4
from tandem.engines.tensorrt_llm.arguments.base import Schema
from tandem.engines.tensorrt_llm.dialect import Dialect

SCHEMAS: Mapping[Dialect, Schema] = {
    Dialect.V1_2: v1_2.SCHEMA,
    Dialect.V1_3: v1_3.SCHEMA,
    Dialect.V1_4: v1_4.SCHEMA,
}
"""By the dialect of the engine's version."""
