"""The client's own rate limiter: a token bucket that refuses instead of queueing for long (Deferred)."""

import asyncio

_ROUNDING_S = 1e-6  # places are sums of fractions: the last of a burst must not be a nanosecond too late


class RateLimiter:
    """`rate` creates a second, `burst` at once; a create that would wait for longer than `max_wait_s` is refused.

    Places are booked in the order of asking, so it is fair and takes O(1) (as golang.org/x/time/rate books
    them). A rate of 0 is unlimited.
    """

    def __init__(self, rate: float, burst: int, max_wait_s: float) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._depth_s = burst * self._interval_s
        self._max_wait_s = max_wait_s
        self._booked_until = float("-inf")

    async def admit(self) -> bool:
        """Wait for a place; False when the wait would be too long, and then nothing is booked."""
        if not self._interval_s:
            return True
        now = asyncio.get_running_loop().time()
        next_place = max(self._booked_until, now - self._depth_s) + self._interval_s
        if next_place - now > self._max_wait_s + _ROUNDING_S:
            return False
        self._booked_until = next_place
        if next_place > now:
            await asyncio.sleep(next_place - now)
        return True
