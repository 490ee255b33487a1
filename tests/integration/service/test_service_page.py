"""The page at ``/`` in a real browser: what it shows, and what its form gives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from running_service import AFFINE_REQUEST, RunningService, new_service
from slow_model import picture_bundle
from tiny_bundles import affine_bundle

pytestmark = pytest.mark.slow  # a browser; scripts/test --slow installs one

WAIT_S = 30


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a small model and one that takes pictures."""
    folder = tmp_path_factory.mktemp("pages")
    service = new_service(folder)
    service.install(
        {
            "affine": affine_bundle(folder / "affine.edgectl"),
            "picture": picture_bundle(folder / "picture.edgectl"),
        }
    )
    service.start()
    yield service
    service.stop()


@pytest.fixture
def open_page(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens an address in headless Chromium; screenshots go to $EDGECTL_SCREENSHOTS if set."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browsers = []

    def begin(url: str, *, dark: bool = False, size: tuple[int, int] = (1000, 1500)) -> Any:
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.add_argument(f"--window-size={size[0]},{size[1]}")
        options.add_argument(f"--user-data-dir={tmp_path / f'profile{len(browsers)}'}")
        if dark:
            options.add_argument("--force-dark-mode")
            options.add_argument("--enable-features=WebContentsForceDark:inversion_method/none")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver") or "chromedriver")
        )
        browsers.append(driver)
        if dark:
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
            )
        driver.get(url)
        return driver

    yield begin
    for driver in browsers:
        driver.quit()


def _screenshot(driver: Any, name: str) -> None:
    if folder := os.environ.get("EDGECTL_SCREENSHOTS"):
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))


def _until(driver: Any, holds: Callable[[], Any]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, WAIT_S).until(lambda _: holds())


def _text(driver: Any, identifier: str) -> str:
    text: str = driver.find_element("id", identifier).text
    return text


def test_the_page_shows_the_model_and_counts_requests(
    pages: RunningService, open_page: Callable[..., Any]
) -> None:
    driver = open_page(pages.address)
    _until(driver, lambda: _text(driver, "state") == "serving")
    before = int(_text(driver, "served"))
    for _ in range(25):
        assert pages.ask("POST", "/v2/models/affine/infer", AFFINE_REQUEST).status == 200
    _until(driver, lambda: int(_text(driver, "served")) == before + 25)
    assert _text(driver, "title") == "affine"
    assert pages.models[0].release in _text(driver, "about")
    assert "in: x" in _text(driver, "tensors")
    assert _text(driver, "median").endswith(" ms")
    assert "25 requests" in _text(driver, "chart-text")
    _screenshot(driver, "light")
    assert driver.get_log("browser") == []


def test_numbers_give_the_models_outputs(
    pages: RunningService, open_page: Callable[..., Any]
) -> None:
    driver = open_page(pages.address, dark=True, size=(420, 2200))
    _until(driver, lambda: driver.find_elements("id", "input-0"))
    driver.find_element("id", "input-0").send_keys("3")
    driver.find_element("id", "run").click()
    _until(driver, lambda: "y: 4 x 8 FP32" in _text(driver, "answers"))
    assert _text(driver, "answers").splitlines()[1].split() == ["0", "7"]
    _screenshot(driver, "dark-phone")
    overflow = driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0


def test_what_cannot_be_run_is_said(pages: RunningService, open_page: Callable[..., Any]) -> None:
    driver = open_page(pages.address)
    _until(driver, lambda: driver.find_elements("id", "input-0"))
    driver.find_element("id", "input-0").send_keys("1 2 3")
    driver.find_element("id", "run").click()
    _until(driver, lambda: "32 numbers are wanted, 3 were given" in _text(driver, "problem"))
    _screenshot(driver, "problem")


def test_a_picture_becomes_the_input(
    pages: RunningService, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    from selenium.webdriver.support.ui import Select

    Image.fromarray(np.full((100, 80, 3), (255, 0, 51), np.uint8)).save(tmp_path / "red.png")
    driver = open_page(pages.address)
    _until(driver, lambda: driver.find_elements("id", "input-0"))
    Select(driver.find_element("id", "models")).select_by_visible_text("picture")
    _until(driver, lambda: driver.find_elements("id", "input-0-picture"))
    driver.find_element("id", "input-0-picture").send_keys(str(tmp_path / "red.png"))
    driver.find_element("id", "run").click()
    _until(driver, lambda: "y: 1 x 3 x 224 x 224 FP32" in _text(driver, "answers"))
    # The first channel of the picture is 255, so 1.0; the model adds 1.
    assert _text(driver, "answers").splitlines()[1].split() == ["0", "2"]
    _screenshot(driver, "picture")


def test_the_token_is_asked_for(
    start: Callable[..., RunningService], open_page: Callable[..., Any]
) -> None:
    service = start(token="open sesame")
    driver = open_page(service.address)
    _until(driver, lambda: _text(driver, "state") == "token wanted")
    driver.find_element("id", "token").send_keys("open sesame")
    _screenshot(driver, "token")
    driver.find_element("css selector", "#token-form button").click()
    _until(driver, lambda: _text(driver, "state") == "serving")
