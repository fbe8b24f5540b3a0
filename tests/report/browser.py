"""A real browser for the report's tests: headless Chromium, spoken to over its DevTools protocol.

    async with Browser.open(chromium, profile) as browser:
        page = await browser.visit(path, width=1280, dark=False)
        await page.value("document.title")
        page.troubles          # errors on the console and requests that left the file

Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
START_DEADLINE_S = 90.0
"""Chromium takes two seconds on an idle machine, and much longer beside a control plane on two cores."""
DEADLINE_S = 60.0
LOCAL = ("file:", "data:", "blob:")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--remote-debugging-port=0",
)

Json = dict[str, Any]


def find_chromium() -> str | None:
    """The browser of RIDEOUT_CHROMIUM, else the first that is on the PATH."""
    return os.environ.get("RIDEOUT_CHROMIUM") or next((at for name in NAMES if (at := shutil.which(name))), None)


@dataclass
class Page:
    """One tab. `troubles` are what a reader's browser would complain of, or what left the page."""

    browser: "Browser"
    session: str
    troubles: list[str] = field(default_factory=list)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, **params: Any) -> Json:
        return await self.browser.call(method, params, self.session)

    async def value(self, expression: str) -> Any:
        """Evaluate; a promise is awaited. Raises AssertionError for what the script throws."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, what: str) -> None:
        """Wait, within the page, until the expression holds; fails with what was waited for."""
        look = f"const look = () => ({expression}) ? done(true) : setTimeout(look, 30); look();"
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self.value(f"new Promise((done) => {{ {look} }})")
        except TimeoutError:
            raise AssertionError(f"not within {DEADLINE_S:g} s: {what}; troubles: {self.troubles}") from None

    async def draw_everything(self) -> None:
        """Scroll through the page, as a reader does: pictures are drawn when they come near."""
        waiting = "document.querySelector('.canvas:not(.drawn):not(details:not([open]) *)')"
        step = f"(() => {{ const next = {waiting}; if (next) next.scrollIntoView(); return !next; }})()"
        await self.until(step, "every picture drawn")

    async def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, selector: str) -> None:
        """A real click of the mouse at the middle of the element."""
        spot = await self.value(
            f"(() => {{ const it = document.querySelector({selector!r}); it.scrollIntoView({{block: 'center'}});"
            " const box = it.getBoundingClientRect();"
            " return [box.x + Math.min(box.width / 2, 30), box.y + box.height / 2]; })()"
        )
        where = {"x": spot[0], "y": spot[1], "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    async def colours(self, scheme: str) -> None:
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def notice(self, method: str, params: Json) -> None:
        if method == "Page.loadEventFired":
            self.loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.troubles.append(f"exception: {params['exceptionDetails']}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.troubles.append(f"console {params['type']}: {params['args']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.troubles.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(LOCAL):
            self.troubles.append(f"request: {params['request']['url']}")


@dataclass
class Browser:
    """A Chromium that was started for the tests and is ended with them."""

    socket: aiohttp.ClientWebSocketResponse
    pages: dict[str, Page] = field(default_factory=dict)
    _answers: dict[int, "asyncio.Future[Json]"] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @classmethod
    @asynccontextmanager
    async def open(cls, chromium: str, profile: Path) -> AsyncIterator["Browser"]:
        """Start a browser with a new, empty profile; end it, and all that it started, when the block is left."""
        process = await asyncio.create_subprocess_exec(
            chromium,
            *FLAGS,
            f"--user-data-dir={profile}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            address = await _address(process, profile / "DevToolsActivePort")
            async with (
                aiohttp.ClientSession(trust_env=False) as http,
                http.ws_connect(address, max_msg_size=0) as socket,
            ):
                browser = cls(socket)
                reader = asyncio.create_task(browser._read())
                try:
                    yield browser
                finally:
                    reader.cancel()
                    await asyncio.gather(reader, return_exceptions=True)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), DEADLINE_S)

    async def visit(self, path: Path, *, width: int, dark: bool = False) -> Page:
        """Open a file in a new tab and wait until it has been read."""
        target = (await self.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
        session = (await self.call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        await page.colours("dark" if dark else "light")
        await page.call("Page.navigate", url=path.as_uri())
        await asyncio.wait_for(page.loaded.wait(), DEADLINE_S)
        await page.until("document.documentElement.dataset.ready === 'true'", "the page's script ran")
        return page

    async def call(self, method: str, params: Json | None = None, session: str | None = None) -> Json:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message: Json = {"id": number, "method": method, "params": params or {}}
        await self.socket.send_json(message | ({"sessionId": session} if session else {}))
        return await asyncio.wait_for(answer, DEADLINE_S + 5)

    async def _read(self) -> None:
        async for message in self.socket:
            told = message.json()
            if (waiting := self._answers.pop(told.get("id"), None)) is not None:
                if "error" in told:
                    waiting.set_exception(AssertionError(told["error"]))
                else:
                    waiting.set_result(told["result"])
            elif (page := self.pages.get(told.get("sessionId", ""))) is not None:
                page.notice(told["method"], told["params"])


async def _address(process: asyncio.subprocess.Process, port_file: Path) -> str:
    """Where the browser listens: it writes port and path into its profile once it does."""
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            while True:
                assert process.returncode is None, f"the browser ended at once with {process.returncode}"
                lines = port_file.read_text().split() if port_file.exists() else []
                if len(lines) == 2:
                    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the browser did not listen within {START_DEADLINE_S:g} s") from None
