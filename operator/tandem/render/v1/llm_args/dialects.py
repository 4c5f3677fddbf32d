"""The schema of each dialect."""

from collections.abc import Mapping

from tandem.api.decoding import Dialect
from tandem.render.v1.llm_args import v1_2, v1_3, v1_4
from tandem.render.v1.llm_args.base import Schema

SCHEMAS: Mapping[Dialect, Schema] = {
    Dialect.V1_2: v1_2.SCHEMA,
    Dialect.V1_3: v1_3.SCHEMA,
    Dialect.V1_4: v1_4.SCHEMA,
}
"""By `Profile.llm_args`."""
