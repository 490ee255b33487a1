"""Reports in a real browser: they show, search, sort, change their theme, and fetch nothing."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from edgectl.reports import CoverageSummary, ReportData, history_page, report_page, with_shares
from edgectl_runner.contract import LoadPlan
from support.benchmarks import benchmark_of, latencies, run_of, trace

LAYERS = with_shares(
    [(f"features.{i}.conv", "convolution" if i % 2 else "linear", 1_000_000 * i, 4000 * i, 0.1 * i)
     for i in range(1, 31)],
    whole_ms=48.0,
)  # fmt: skip
EVIL = '<script>document.title = "owned"</script><img src="http://192.0.2.1/x.png">'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    hot = tuple(
        replace(p, throttle_flags=4 if 10 < p.time_s < 14 else 0, temperature_celsius=60 + p.time_s)
        for p in trace(30.0)
    )
    report = replace(
        benchmark_of(
            run_of(latencies(1024)),
            run_of(latencies(400, mean_ms=80.0), points=hot, threads=1),
            run_of(latencies(100, mean_ms=240.0), plan=LoadPlan(scenario="multi_stream")),
            emulated=True,
        ),
        model=EVIL,
    )
    data = ReportData(
        benchmark=report,
        layers=LAYERS,
        quantization={"report": {"against_float": {"mean_sqnr_db": 31.25}}},
        coverage=CoverageSummary(
            operations={"tosa": 30, "fallback": 1}, macs=100, integer_macs=80,
            fallbacks=(("head", "aten.erf", "no such operation"),),
        ),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("page") / "out.html"
    path.write_text(report_page(data), encoding="utf-8")
    return path


@pytest.fixture
def opened(chromium, page):
    chromium.get_log("performance")
    chromium.get(page.as_uri())
    return chromium


def _shown_rows(driver) -> list[str]:
    rows = driver.find_elements(By.CSS_SELECTOR, "#layers tbody tr")
    return [row.find_element(By.TAG_NAME, "td").text for row in rows if row.is_displayed()]


def test_it_fetches_nothing_and_complains_of_nothing(opened, page):
    asked = set()
    for entry in opened.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    assert {url for url in asked if not url.endswith("favicon.ico")} == {page.as_uri()}
    assert [e for e in opened.get_log("browser") if "favicon" not in e["message"]] == []


def test_names_from_a_model_are_text_and_never_run(opened):
    assert opened.title.startswith("<script>")
    assert opened.find_element(By.TAG_NAME, "h1").text == EVIL


def test_it_says_that_it_is_emulated_and_which_runs_are_invalid(opened):
    assert "Emulated" in opened.find_element(By.ID, "emulated").text
    invalid = opened.find_element(By.ID, "invalid").text
    assert "SingleStream, 1 thread: the board was throttled" in invalid
    assert "4 threads" not in invalid


def test_every_part_is_there(opened):
    headings = [h.text for h in opened.find_elements(By.TAG_NAME, "h2")]
    assert headings == [
        "Runs", "1. SingleStream, 4 threads", "2. SingleStream, 1 thread",
        "3. MultiStream, 4 threads", "Layers", "Accuracy", "Coverage", "Provenance",
    ]  # fmt: skip
    for chart in opened.find_elements(By.TAG_NAME, "svg"):
        assert chart.size["width"] > 600
        assert chart.size["height"] > 100
    text = opened.find_element(By.TAG_NAME, "main").text
    for word in ("temperature, C", "p99", "needs 662 queries", "31.25", "aten.erf", "Cortex-A72"):
        assert word in text, word
    assert opened.find_elements(By.CSS_SELECTOR, "rect.band"), "the throttled span is marked"


def test_layers_can_be_searched_and_sorted(opened):
    assert len(_shown_rows(opened)) == 30
    box = opened.find_element(By.CSS_SELECTOR, "input[type=search]")
    box.send_keys("features.1 linear")
    assert sorted(_shown_rows(opened)) == [f"features.{i}.conv" for i in (10, 12, 14, 16, 18)]
    assert opened.find_element(By.ID, "layers-count").text == "5 of 30"
    box.clear()
    box.send_keys(" ")
    heads = opened.find_elements(By.CSS_SELECTOR, "#layers th")
    heads[2].click()
    assert _shown_rows(opened)[:2] == ["features.30.conv", "features.29.conv"]
    heads[2].click()
    assert _shown_rows(opened)[0] == "features.1.conv"


def _brightness(driver) -> float:
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("L")
    return float(np.median(np.asarray(picture)))


def test_light_and_dark_by_system_and_by_button(opened):
    for scheme, button in (("dark", "light"), ("light", "dark")):
        opened.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        opened.refresh()
        assert (_brightness(opened) < 60) == (scheme == "dark")
        opened.find_element(By.ID, "theme").click()
        assert (_brightness(opened) < 60) == (button == "dark")


def test_nothing_sticks_out_on_a_telephone(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    opened.refresh()
    try:
        width = opened.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_runs_over_time_show_a_point_for_each(chromium, tmp_path):
    reports = [
        benchmark_of(
            run_of(latencies(200, seed=day), stable=day != 3),
            created=f"2026-12-0{day}T10:00:00+00:00",
        )
        for day in range(1, 6)
    ]
    path = tmp_path / "history.html"
    path.write_text(history_page("mobilenet", reports), encoding="utf-8")
    chromium.get(path.as_uri())
    assert len(chromium.find_elements(By.CSS_SELECTOR, "circle.point")) == 5
    assert len(chromium.find_elements(By.CSS_SELECTOR, "circle.point.bad")) == 1
