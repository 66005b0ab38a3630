"""The pages in a real browser, served by `autotune serve`: a search from form to end, errors, restarts, keys."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
pytest.importorskip("fastapi", reason="pip install '.[serve]'")

from autotune.model import DeviceInfo  # noqa: E402
from autotune.pool.lock import DeviceLock  # noqa: E402
from autotune.service import Server as Client  # noqa: E402
from autotune.store import ServerStore  # noqa: E402
from autotune.study import default_choices, find_study, problem_key  # noqa: E402
from tests.commands import STUDY  # noqa: E402
from tests.stored import DEVICE, KEY, ok, put, put_moved  # noqa: E402
from tests.studies import SOURCE  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGES = (
    "/", "/best", "/searches", "/compare", "/trials", "/trials/1", "/problems/1", "/problems/1/learned", "/submit",
    "/admin", "/login", "/problems/2", "/problems/2/learned", "/compare?study=sgemm&by=size", "/trials?study=sgemm",
)  # fmt: skip
LONG = KEY._replace(study="convolution_" * 5, size={"ROWS_" * 8: 4096}, choices={"TYPE_" * 8: "float_" * 8})
"""A problem with the longest possible names; the third one stored."""

LONG_PAGES = ("/searches", "/trials", "/trials/30", "/problems/3", "/problems/3/learned", f"/best?study={LONG.study}")
LONG_MS = 90_000
TALLEST = 280
"""The most pixels of a table's cell: a higher cell means that its column is squeezed to one word a line."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.device,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="apt-get install chromium"),
]


def long(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_" * 8: f"word_{value}_" * 8 if name == "FAST" else value for name, value in configuration.items()}


class Server:
    """`autotune serve` on its own database; `kill` and then `start` keep the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        words = ["serve", "--db", str(self.folder / "a.db"), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "autotune", *words], stderr=subprocess.PIPE, text=True, cwd=self.folder
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"(http://127\.0\.0\.1:(\d+))/login\?token=(\S+)", line):
                self.url, self.port, self.token = found[1], int(found[2]), found[3]
                return
        raise AssertionError("the server has not begun")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with ServerStore.open(str(folder / "a.db")) as store:
        known = [ok({"WPT": n % 4, "WG": 2**n, "FAST": n % 2}, *range(1000 - n, 1010 - n)) for n in range(12)]
        put(store, known, device=DEVICE)
        put_moved(store)
        slow = [ok(long(one.configuration), 900, 901, 902) for one in known]
        put(store, slow, key=LONG, device=DEVICE, environment={"space": "0" * 32})
        for name in ("ann", "bo", "continuous-integration", "dee", "eve", "nightly.benchmarks@build-farm"):
            store.add_token(name, "run", None)
    found = Server(folder)
    yield found
    found.kill(signal.SIGINT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Window:
    """A page in a signed-in browser, and the output of its console."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG_MS)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{self.page.url} {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"{self.page.url} {error}"))
        self.page.goto(f"{server.url}/login?token={server.token}")
        self.url = server.url

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def fits(self, what: str) -> None:
        """Check that the page fits its window and no cell of its tables is too high, all details open."""
        self.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, what
        heights = "[...document.querySelectorAll('td')].map((cell) => cell.getBoundingClientRect().height)"
        assert self.page.evaluate(f"Math.max(0, ...{heights})") <= TALLEST, what


@pytest.fixture
def window(browser: Any, server: Server) -> Iterator[Window]:
    found = Window(browser, server, viewport={"width": 1200, "height": 900})
    yield found
    found.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_quiet_and_fits(browser: Any, server: Server, width: int, scheme: str) -> None:
    """In the colour scheme at loading, and in the other one after the system changes to it."""
    window = Window(browser, server, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in PAGES:
        window.page.emulate_media(color_scheme=scheme)
        window.go(path)
        window.page.wait_for_load_state("networkidle")
        for now in (scheme, "dark" if scheme == "light" else "light"):
            window.page.emulate_media(color_scheme=now)
            window.fits(path)
            assert window.page.locator("h1").count() == 1, path
            paper = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") is (now == "light"), path
    assert window.said == []
    window.context.close()


def test_long_names_fit_a_narrow_screen(browser: Any, server: Server) -> None:
    window = Window(browser, server, viewport={"width": 360, "height": 800})
    for path in (*PAGES, *LONG_PAGES):
        window.go(path)
        window.page.wait_for_load_state("networkidle")
        window.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert window.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
    window.context.close()


@pytest.mark.parametrize(
    "path", ["/", "/best", "/searches", "/compare?study=sgemm", "/trials", "/problems/2", "/admin"]
)
def test_what_one_came_for_is_in_sight_on_a_phone(browser: Any, server: Server, path: str) -> None:
    window = Window(browser, server, viewport={"width": 390, "height": 800})
    window.go(path)
    beyond = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert window.page.evaluate(beyond) == 0
    leads = window.page.locator(".lead").all()
    assert leads
    for lead in leads:
        box, row = (one.bounding_box() for one in (lead, lead.locator("..")))
        assert box["x"] + box["width"] <= 390
        assert box["y"] - row["y"] < 20  # in the first line of its row
    window.context.close()


def test_what_one_came_for_is_in_sight_beside_long_names(window: Window) -> None:
    for path in (f"/best?study={LONG.study}", f"/searches?study={LONG.study}", f"/trials?study={LONG.study}", "/"):
        window.go(path)
        box = window.page.locator(".lead").first.bounding_box()
        assert box["x"] + box["width"] <= 1200, path
    window.go("/problems/3/learned")
    of_values = "[...document.querySelectorAll('[aria-labelledby=values-title] .scroll')]"
    assert window.page.evaluate(f"{of_values}.map((one) => one.scrollWidth - one.clientWidth)") == [0] * 3


def test_many_sizes_are_drawn_on_a_phone(browser: Any, tmp_path: Path) -> None:
    with ServerStore.open(str(tmp_path / "a.db")) as store:
        text = find_study("sgemm")
        for n in range(64, 64 * 41, 64):
            key = problem_key(text, dict.fromkeys("KMN", n), default_choices(text), DEVICE.fingerprint)
            put(store, [ok({"WPT": 1}, n**2)], key=key)
    server = Server(tmp_path)
    try:
        window = Window(browser, server, viewport={"width": 390, "height": 800})
        window.go("/compare?study=sgemm")
        window.page.locator("figure .plot canvas").wait_for()
        assert window.page.locator("tbody tr").count() == 40
        marks = window.page.evaluate("[...autotune.charts][0].plot.axes[0]._values")
        assert len(marks) > 2
        assert all(int(mark) % 64 == 0 for mark in marks)  # sizes, and no numbers in between
        assert window.said == []
        window.context.close()
    finally:
        server.kill(signal.SIGINT)


def test_every_page_is_walked_by_keys(window: Window) -> None:
    for path in PAGES:
        window.go(path)
        window.page.keyboard.press("Tab")
        assert window.page.evaluate("document.activeElement.className") == "skip", path
        reachable = window.page.evaluate(
            "[...document.querySelectorAll("
            "'main a[href], main button:not(:disabled), main input:not([aria-hidden]), main select')]"
            ".filter(e => e.offsetParent !== null && e.tabIndex < 0 && e.role !== 'tab').map(e => e.outerHTML)"
        )
        assert reachable == [], path
    window.go("/problems/1")
    tabs = window.page.locator('[role="tab"]')
    if tabs.count():
        tabs.first.focus()
        window.page.keyboard.press("ArrowRight")
        assert tabs.nth(1).get_attribute("aria-selected") == "true"
        assert (
            tabs.nth(1).get_attribute("aria-pressed") is None
        )  # which no tab may have: a screen reader tells one state


def fill_own(window: Window, **changes: str) -> None:
    """Fill in the form with a study of one's own."""
    window.go("/submit")
    window.page.select_option("#study", "own")
    window.page.locator("#toml").fill(changes.get("toml", STUDY))
    window.page.locator("#kernel").fill(SOURCE)
    window.page.locator("#kernel_name").fill("saxpy.cl")
    for name in ("trials", "timeout"):
        window.page.locator(f"#{name}").fill(changes.get(name, ""))


def test_a_search_is_submitted_watched_to_its_end_and_taken_along(window: Window) -> None:
    page = window.page
    fill_own(window, trials="4")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("6 valid configurations").wait_for()
    page.get_by_role("button", name="Search").click()
    page.locator('[data-state="done"]').wait_for()  # no reload: the page follows the events
    page.locator("figure .plot canvas").wait_for()
    assert page.locator(".status").inner_text().startswith("done")
    data = page.evaluate("JSON.parse(document.getElementById('course').textContent).dots.outcome")
    assert data == ["ok"] * 4 or set(data) <= {"ok", "stopped"}

    marks = page.evaluate("[...autotune.charts][0].plot.axes[0]._splits")
    assert len(marks) > 1
    assert all(mark == int(mark) for mark in marks)

    plot = page.locator("figure .plot")
    plot.focus()
    page.keyboard.press("End")
    assert "trial 4" in page.locator(".readout").inner_text()
    page.get_by_role("button", name="by time").click()
    assert page.get_by_role("button", name="by time").get_attribute("aria-pressed") == "true"
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/*")
    page.get_by_role("heading", name="Samples").wait_for()
    page.go_back()

    page.get_by_role("link", name="What was learned").click()
    page.get_by_role("heading", name="Best per value").wait_for()
    page.locator("#across").select_option(index=1)
    page.locator("table.heat").wait_for()
    page.go_back()
    page.get_by_role("link", name="Best", exact=True).last.click()
    page.get_by_role("tab", name="Header").click()
    assert "#define WPT" in page.locator("#form-header pre").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Report as a file").click()
    assert "Best so far" in Path(download.value.path()).read_text(encoding="utf-8")
    assert window.said == []


def test_the_report_stands_alone(window: Window, tmp_path: Path) -> None:
    with window.page.expect_download() as download:
        window.go("/problems/1")
        window.page.get_by_role("link", name="Report as a file").click()
    path = tmp_path / "report.html"
    download.value.save_as(path)
    requests: list[str] = []
    window.page.on("request", lambda request: requests.append(request.url))
    window.page.goto(path.as_uri())
    window.page.locator("figure .plot canvas").wait_for()
    assert requests == [path.as_uri()]
    window.page.locator("#heat-down").select_option("WG")
    window.page.locator("#heat-across").select_option("FAST")
    assert window.page.locator("[data-pair]:visible").count() == 1
    assert window.said == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_fits(window: Window, tmp_path: Path, width: int) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(window.context.request.get(f"{window.url}/problems/2/report.html").body())
    window.page.set_viewport_size({"width": width, "height": 800})
    window.page.goto(path.as_uri())
    window.page.locator("figure .plot canvas").wait_for()
    window.fits(str(width))


def test_what_is_wrong_is_shown_at_its_line(window: Window) -> None:
    page = window.page
    fill_own(window, toml=STUDY.replace("values = [1, 2, 4]", "values = [1, 2,, 4]"))
    page.get_by_role("button", name="Check").click()
    line = STUDY.split("\n").index("values = [1, 2, 4]") + 1
    page.get_by_role("button", name=f"Go to line {line}").click()
    chosen = page.evaluate(
        "(() => { const e = document.getElementById('toml');"
        " return e.value.slice(e.selectionStart, e.selectionEnd) })()"
    )
    assert chosen == "values = [1, 2,, 4]"
    page.locator("#toml").fill(STUDY)
    page.locator("#timeout").fill("soon")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("is not a duration").wait_for()
    assert [line for line in window.said if "422" not in line] == []


def test_a_search_is_stopped(window: Window) -> None:
    fill_own(window, toml=STUDY.replace("N = 1000", "N = 100000"), timeout="10m", trials="10000")
    window.page.get_by_role("button", name="Search").click()
    window.page.locator('[data-state="running"], [data-state="done"]').first.wait_for()
    window.page.get_by_role("button", name=re.compile("Stop")).click()
    window.page.locator('[data-state="stopped"], [data-state="done"]').first.wait_for()
    assert window.said == []


def searching_for_long(window: Window, state: str) -> str:
    """Submit a search that does not end by itself; return its id as soon as its page shows a state."""
    many = STUDY.replace("N = 1000", "N = 200000").replace("[32, 64, 8192]", str([*range(32, 4032)]))
    fill_own(window, toml=many, timeout="30m", trials="4000")
    window.page.get_by_role("button", name="Search").click()
    window.page.locator(f'[data-state="{state}"]').first.wait_for()
    window.page.wait_for_load_state("load")  # its scripts as well: without them nothing asks again
    return window.page.url.rpartition("/")[2]


def test_pages_recover_by_themselves_after_the_server_was_killed(
    window: Window, server: Server, device: DeviceInfo, request: pytest.FixtureRequest
) -> None:
    lock = DeviceLock(device)  # the search waits for it, and computes nothing
    request.addfinalizer(lock.release)
    running = searching_for_long(window, "running")
    waiting = Window(window.context.browser, server)
    queued = searching_for_long(waiting, "queued")
    home = Window(window.context.browser, server)
    home.go("/")
    server.kill()
    for one in (window, waiting, home):
        one.page.get_by_text("does not answer").wait_for()
    server.start()
    for one in (window, waiting, home):
        one.page.get_by_text("does not answer").wait_for(state="hidden")
    for search, one in ((queued, waiting), (running, window)):
        Client(server.url, server.token, cache=False).stop(search)
        one.page.locator('[data-state="stopped"]').wait_for()
        known = r"ERR_|Failed to load|htmx|EventSource|object Event"
        assert [line for line in one.said if not re.search(known, line)] == []
    waiting.context.close()
    home.context.close()


def test_a_page_looks_by_itself_where_events_are_held_back(window: Window, server: Server) -> None:
    page = window.page
    page.clock.install()
    page.route("**/events", lambda _: None)  # as by a proxy that buffers them
    fill_own(window, trials="2")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**/searches/*")
    page.route("**/live", lambda route: route.fulfill(status=401))
    page.clock.fast_forward(31_000)
    page.get_by_text("signed out").wait_for()
    page.unroute("**/live")
    Client(server.url, server.token, cache=False).wait(page.url.rpartition("/")[2])
    page.clock.fast_forward(31_000)
    page.locator('[data-state="done"]').wait_for()


def test_nobody_runs_anything_without_a_token(browser: Any, server: Server) -> None:
    window = Window(browser, server)
    window.go("/admin")
    window.page.locator("#name").fill("zoe")
    window.page.get_by_role("button", name="Add token").click()
    token = window.page.locator(".made pre").inner_text()
    window.page.get_by_role("button", name="Sign out").click()
    window.go("/submit")
    assert window.page.get_by_role("button", name="Search").is_disabled()
    window.go("/login")
    window.page.locator("#token").fill(token)
    window.page.get_by_role("button", name="Sign in").click()
    window.page.get_by_text("zoe").wait_for()
    assert window.page.get_by_role("link", name="Admin").count() == 0
    window.context.close()
