import pytest

from tandem_serving.control import Control
from tandem_serving.errors import CancelledError


def test_stopping_cancels_the_calls_in_flight_and_no_others() -> None:
    control, cancelled = Control(), []
    with control.track(lambda: cancelled.append("over")):
        pass
    with control.track(lambda: cancelled.append("first")), control.track(lambda: cancelled.append("second")):
        control.check()
        control.stop(CancelledError("enough"))
        assert cancelled == ["first", "second"]
    with pytest.raises(CancelledError, match="enough"):
        control.check()
    with pytest.raises(CancelledError), control.track(lambda: None):
        pytest.fail("no call starts after the end")
