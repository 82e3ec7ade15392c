"""A real browser for tests: Debian's chromium and chromedriver, driven by selenium."""

import base64
import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

# Clicks do not wait for scrolling to end: motion is reduced.
FLAGS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars
    --disable-background-networking --disable-component-update --disable-sync
    --disable-dev-shm-usage --force-prefers-reduced-motion --window-size=1280,900
""".split()
# Figures of the selected observation, and of all of them.
OWN = ("forest", "near", "pp", "pairs", "null")
OTHERS = ("places", "sbc", "coverage", "tarp")
LOCAL_SCHEMES = ("file://", "data:", "blob:", "about:", "chrome")


def unavailable(reason):
    """Skips on a person's machine, and fails where continuous integration runs."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    missing += ["selenium"] * (importlib.util.find_spec("selenium") is None)
    if missing:
        packages = "chromium, chromium-driver and python3-selenium"
        unavailable(f"no {' and no '.join(missing)}: install the Debian packages {packages}")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(120)
    yield driver
    driver.quit()


# What a browser is unless something else is emulated.
USUAL = {"clearDeviceMetricsOverride": {}, "setEmulatedMedia": {"features": []}}
USUAL |= {"setScriptExecutionDisabled": {"value": False}}


class Page:
    """A report that is open in a browser, in which something may be emulated."""

    def __init__(self, driver, path, fragment="", **emulated):
        self.driver = driver
        for name, options in (USUAL | emulated).items():
            driver.execute_cdp_cmd(f"Emulation.{name}", options)
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(path.as_uri() + fragment)
        self.wait("document.documentElement.dataset.ready === 'true'")

    def run(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def wait(self, condition, seconds=120):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(condition))

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    @property
    def heading(self):
        """The visible heading of an observation: its verdict and its label."""
        return self.find("article:not([hidden]) h2").text

    @property
    def figures(self):
        """The numbers of the figures of the selected observation."""
        data = "(document.getElementById(arguments[0]) || {}).data"
        script = f"{data} && JSON.stringify({data}.map(t => [t.x, t.y]))"
        return {key: self.run(script, f"plot-{key}") for key in OWN}

    def errors(self):
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] != "DEBUG"]

    def network_requests(self):
        """Addresses that were asked for, but for the page itself."""
        entries = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        sent = [e for e in entries if e["method"] == "Network.requestWillBeSent"]
        urls = [e["params"]["request"]["url"] for e in sent]
        return [url for url in urls[1:] if not url.startswith(LOCAL_SCHEMES[1:])]


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    folder = Path(os.environ.get("ASSAY_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep(page, path):
    """A picture of the whole page."""
    box = page.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": box[0], "height": box[1], "scale": 1}
    options = {"captureBeyondViewport": True, "clip": clip}
    found = page.driver.execute_cdp_cmd("Page.captureScreenshot", options)
    path.write_bytes(base64.b64decode(found["data"]))
