"""docs/metrics.md lists every metric as the daemon describes it."""

import re

import yaml
from clockgated.config import Config, parse
from clockgated.metrics import families_clock, families_node
from clockgated.metrics.family import Family
from support.tools import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text()


def row(one: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.name}` | {one.kind.value} | {labels} | {one.help} |"


def test_the_page_has_a_row_for_every_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `clockgate_.*$", PAGE, re.MULTILINE)
    assert rows == [row(one) for one in (*families_clock.ALL, *families_node.ALL)]


def test_the_page_names_the_usual_settings() -> None:
    settings = Config()
    assert f'address = "{settings.metrics.address}"' in PAGE
    assert f"`[node] look_interval_s`, {settings.node.look_interval_s:g} s" in PAGE


def test_the_settings_on_the_page_are_valid_and_the_usual_ones() -> None:
    (block,) = re.findall(r"^```\n(\[metrics\].*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert parse(block.encode(), "metrics.md").metrics == Config().metrics


def test_the_scrape_settings_name_the_job_of_the_alert_and_the_usual_address() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    rules = yaml.safe_load((ROOT / "packaging/prometheus/clockgate.rules.yml").read_text())["groups"][0]["rules"]
    assert f'job="{job["job_name"]}"' in rules[0]["expr"]
    assert job["static_configs"][0]["targets"] == [str(Config().metrics.address)]
