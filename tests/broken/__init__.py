"""Wrong dispatchers: each changes one thing of the product, in one small file, and each is caught.

A file has one function, `apply(put)`; `put(target, name, value)` is `setattr`, or a monkeypatch that takes it back.
`table.py` names for each the invariant of the simulation that turns red; its unbroken twin is green on the same
schedule. What is caught nowhere is not known to be checked: every invariant has its wrong dispatcher.
"""

from collections.abc import Callable

Put = Callable[[object, str, object], None]
