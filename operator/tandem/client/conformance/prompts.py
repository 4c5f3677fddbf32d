"""The prompts of conformance: the project's own texts, so that a report has no data of the user. Pure."""

from collections.abc import Iterator

PROMPTS = (
    "def fibonacci(n):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import json\n\ndef read_settings(path):\n    with open(path) as file:\n",
    "def is_prime(number):\n    if number < 2:\n        return False\n",
    "The three states of water are",
    "import unittest\n\nclass TestParser(unittest.TestCase):\n    def test_empty(self):\n",
    "def merge(left, right):\n    result = []\n    i = j = 0\n",
    "To make bread, mix flour, water, salt and yeast. Then",
    "for row in range(10):\n    for column in range(10):\n",
    "def count_words(text):\n    counts = {}\n    for word in text.split():\n",
    "try:\n    value = int(text)\nexcept ValueError:\n",
    "Once upon a time there was a lighthouse keeper who",
    "def binary_search(items, wanted):\n    low, high = 0, len(items) - 1\n",
    "SELECT name, count(*) FROM orders WHERE",
    "class Node:\n    def __init__(self, value, next=None):\n",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)
"""As many as the most rows at once."""


def long_text(first: int, characters: int) -> str:
    """A text that does not repeat itself, of so many characters; `first` gives it a beginning of its own."""
    text, numbers = "", _numbers(first)
    while len(text) < characters:
        a, b, c = (next(numbers) for _ in range(3))
        text += f"def step_{a}(value, other):\n    total = value * {b} + other\n    return total - {c}\n\n\n"
    return text[:characters]


def _numbers(seed: int) -> Iterator[int]:
    """The numerical recipes' linear congruential generator: the same numbers on each machine."""
    while True:
        seed = (1664525 * seed + 1013904223) % 2**32
        yield seed >> 22
