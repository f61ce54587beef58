"""The picture of the dashboard in the docs: python deploy/template/dashboard.py TEMPLATE [--write]

Draws the widgets of LockDashboard where they are, with their titles and what they show. The curves are made up. Fails if the
picture in the docs is another one; with --write it becomes this one.
"""

import html
import json
import math
import pathlib
import re
import sys
import zlib

from expansion import Expansion

PICTURE = pathlib.Path("docs/dashboard.svg")
# Of one unit of the dashboard's grid, in pixels.
WIDTH, HEIGHT = 44, 30
GAP, TITLE, LEGEND = 4, 22, 14
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
GREEN, GREY, INK = "#2ca02c", "#d5dbdb", "#16191f"
POINTS = 48


def widgets(expansion):
    """The widgets of the dashboard. Functions, tables, queues and alarms have their logical names."""
    (dashboard,) = expansion.of_type("AWS::CloudWatch::Dashboard").values()

    def text(body):
        body, own = (body, {}) if isinstance(body, str) else body
        inner = {name: text(one["Fn::Sub"]) for name, one in own.items() if isinstance(one, dict) and "Fn::Sub" in one}
        return re.sub(r"\$\{(?:AWS::)?(\w+)(?:\.\w+)?\}", lambda found: inner.get(found[1], found[1]), body)

    return json.loads(text(dashboard["DashboardBody"]["Fn::Sub"]))["widgets"]


def label(metric, common):
    """What the legend says: the metric, its dimensions but the name, and its statistic if it has one of its own."""
    options = metric[-1] if isinstance(metric[-1], dict) else {}
    names = [one for one in metric if not isinstance(one, dict)]
    if "label" in options:
        return options["label"]
    return " ".join([names[1], *names[5::2], *([options["stat"]] if "stat" in options and options["stat"] != common else [])])


def curve(name, n, left, top, width, height):
    """A made-up curve, the same in each picture. The first is the highest, but a median is below its p99."""
    seed = zlib.crc32(name.encode())
    level, swing = 0.3 if "p50" in name else 0.75 - 0.14 * n, 0.05 + seed % 10 / 100
    points = []
    for point in range(POINTS):
        wave = math.sin(point / 7 + seed % 97) + 0.5 * math.sin(point / 2.3 + seed % 31)
        points.append(f"{left + width * point / (POINTS - 1):.1f},{top + height * (1 - level - swing * wave / 1.5):.1f}")
    return " ".join(points)


def words(left, top, text, size=11, colour=INK):
    return f'<text x="{left}" y="{top}" font-size="{size}" fill="{colour}">{html.escape(text)}</text>'


def alarms(names, left, top, width):
    """A tile for each alarm, five in a row."""
    tile = width / 5
    for n, name in enumerate(names):
        x, y = left + n % 5 * tile, top + n // 5 * 28
        yield f'<rect x="{x:.1f}" y="{y}" width="{tile - 6:.1f}" height="22" fill="white" stroke="{GREEN}"/>'
        yield words(f"{x + 6:.1f}", y + 15, name)


def graph(properties, left, top, width, height):
    metrics = [(label(one, properties["stat"]), COLOURS[n]) for n, one in enumerate(properties["metrics"])]
    columns = 2 if all(len(said) < 22 for said, _ in metrics) else 1
    rows = math.ceil(len(metrics) / columns)
    bottom = top + height - rows * LEGEND - 6
    for n in range(4):
        y = top + (bottom - top) * n / 3
        yield f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="{GREY}"/>'
    unit = properties.get("yAxis", {}).get("left", {}).get("label")
    if unit:
        yield words(left, top + 10, unit, 10)
    for n, (said, colour) in enumerate(metrics):
        points = curve(properties["title"] + said, n, left, top, width, bottom - top)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        x, y = left + n % columns * width // 2, bottom + 6 + n // columns * LEGEND
        yield f'<rect x="{x}" y="{y}" width="9" height="9" fill="{colour}"/>'
        yield words(x + 13, y + 9, said, 10)


def draw(all_of_them):
    lines = []
    for widget in all_of_them:
        x, y = widget["x"] * WIDTH + GAP, widget["y"] * HEIGHT + GAP
        width, height = widget["width"] * WIDTH - 2 * GAP, widget["height"] * HEIGHT - 2 * GAP
        properties = widget["properties"]
        lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="white" stroke="{GREY}"/>')
        lines.append(words(x + 8, y + 16, properties["title"], 10.5))
        inside = x + 8, y + TITLE + 4, width - 16
        lines += alarms(properties["alarms"], *inside) if widget["type"] == "alarm" else graph(properties, *inside, height - TITLE - 8)
    height = max(one["y"] + one["height"] for one in all_of_them) * HEIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * WIDTH} {height}" font-family="sans-serif">\n'
        f'<title>The dashboard of the template</title>\n<rect width="{24 * WIDTH}" height="{height}" fill="#f2f3f3"/>\n'
    )
    return head + "\n".join(lines) + "\n</svg>\n"


def main(path, how=None):
    picture = draw(widgets(Expansion(path, Samples="false", Metrics="function")))
    if how == "--write":
        PICTURE.write_text(picture)
    elif not PICTURE.is_file() or PICTURE.read_text() != picture:
        sys.exit(f"{PICTURE} is not the dashboard of {path}: run python deploy/template/dashboard.py {path} --write")
    print(f"{PICTURE}: {picture.count('<polyline')} curves")


if __name__ == "__main__":
    main(*sys.argv[1:])
