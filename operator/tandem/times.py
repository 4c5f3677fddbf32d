"""Times of Kubernetes, as text: RFC 3339 in UTC."""

from datetime import UTC, datetime


def stamp(at: datetime) -> str:
    """As the API server writes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """What `stamp` wrote, or anybody else: others add parts of seconds."""
    return datetime.fromisoformat(text)


def seconds(since: str, until: str) -> float:
    """From one time to another, which must be of one clock: the present is `tandem.cluster.client.Api.now`, as this
    host's clock may be minutes off."""
    return (moment(until) - moment(since)).total_seconds()
