"""Headless Chromium for the pages' tests."""

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from shutil import which


class Browser:
    """One window. Pages come from files; motion is reduced, so that a step is shown at once."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(flag)
        options.binary_location = which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(which("chromedriver")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def open(self, path, width=1280, height=900, scheme="light", motion="reduce"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]})
        self.driver.get("about:blank")  # else a changed fragment would keep the page
        self.driver.get(f"file://{path}")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def keys(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def click(self, selector):
        """A click by the page's own events, also on parts of a picture."""
        self.run("document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self):
        """What the page has asked for beside itself."""
        return self.run("return performance.getEntriesByType('resource').map(r => r.name)"
                        ".filter(name => !name.startsWith('data:'))")
