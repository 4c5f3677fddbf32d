"""Numbers with their nouns, for messages. Imports nothing of Tandem; every package may import it."""


def counted(number: int, noun: str) -> str:
    """`1 replica`, `2 replicas`, `1,000 tokens`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
