"""What the API server answers to reviews of tokens and rights."""

from typing import Any

from tandem.metrics_server.authentication import AUDIENCE

Right = tuple[str, str, str, str]
"""Verb, resource with its subresource, namespace, name; empty: all."""


class Rights:
    """Answers reviews: the token is the user's name, and what users may do stands in `granted`."""

    def __init__(self, *users: str) -> None:
        self.users = users
        self.granted: set[tuple[str, Right]] = set()
        self.reviews: list[Right] = []

    async def review(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview or a SubjectAccessReview."""
        if kind.kind == "TokenReview":
            known = spec["token"] in self.users
            return {"authenticated": known, "audiences": [AUDIENCE], "user": {"username": spec["token"]}}
        if not (asked := spec.get("resourceAttributes")):
            return {"allowed": False}
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        right = asked["verb"], resource, asked["namespace"], asked["name"]
        self.reviews.append(right)
        return {"allowed": (spec["user"], right) in self.granted}
