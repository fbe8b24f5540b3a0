"""A page as tests look at it: its text, its links, its sections, and the data of its plots."""

import json
from html.parser import HTMLParser
from typing import Any

SILENT = ("script", "style")
ADDRESSES = ("src", "href", "srcset", "action", "data", "poster", "background")


class Markup(HTMLParser):
    """What is in a page. `text` leaves scripts and styles out and folds white space."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[tuple[str, str]] = []
        """(tag, address) of everything that points anywhere."""
        self.figures: list[dict[str, Any]] = []
        self.meta: dict[str, str] = {}
        self._stack: list[str] = []
        self._words: list[str] = []
        self._json = False
        self.feed(page)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        if (name := of.get("id")) is not None:
            self.ids.append(name)
        self.addresses += [(tag, value) for name, value in attrs if name in ADDRESSES and value]
        if tag == "meta":
            self.meta[of.get("http-equiv") or of.get("name") or ""] = of.get("content") or ""
        if tag in SILENT:
            self._stack.append(tag)
            self._json = of.get("id") == "figures"

    def handle_endtag(self, tag: str) -> None:
        if self._stack and self._stack[-1] == tag:
            self._stack.pop()
            self._json = False

    def handle_data(self, data: str) -> None:
        if self._json:
            self.figures = json.loads(data)
        if not self._stack:
            self._words.append(data)

    @property
    def links(self) -> list[str]:
        """Where its anchors within the page lead to."""
        return [address[1:] for tag, address in self.addresses if tag == "a" and address.startswith("#")]

    def figure(self, name: str) -> dict[str, Any]:
        return next(figure for figure in self.figures if figure["name"] == name)
