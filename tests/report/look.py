"""Open the HTML report in a real browser: does anything run over the edge, at 400 and 1,400 pixels and in print?

    python tests/report/look.py --out build/pages MODEL…     (make page-check)

Needs Chromium; without it the script says so and ends with 1. It keeps the screenshots, for you to look at.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

WIDTHS = (400, 1400)
#: How far the page reaches beyond the window, and how many cells of the steps, headings or boxes do.
_PROBE = (
    "<script>parent.postMessage([document.documentElement.scrollWidth - innerWidth, [...document.querySelectorAll("
    "'.steps td, h3, figure, pre, .bar, .scroll')].filter((one) => one.getBoundingClientRect().right > innerWidth"
    " || (one.matches('td, .scroll') && one.scrollWidth > one.clientWidth + 1)).length].join(' '), '*')"
    "</script></body>"
)
#: The browser makes no window narrower than 500 pixels, so the page is shown in a frame, and tells it what it finds.
_FRAME = (
    "<title></title><script>onmessage = (told) => { document.title = told.data }</script>"
    "<iframe style='border:0' width=%d height=3000 src='%s'></iframe>"
)
#: So many pages on paper, at most, and so few points a letter: what a reader of the drawings can bear.
PAGES, POINTS = 40, 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["bert-base", "inception-v3", "llama-decoder-step"])
    parser.add_argument("--out", type=Path, default=Path("build/pages"))
    given = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("Chromium is not installed; on Debian or Ubuntu: apt-get install chromium", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    faults = [fault for model in given.models for fault in look(browser, model, given.out)]
    print("\n".join(faults) or f"nothing runs over the edge; the pictures are in {given.out}")
    return 1 if faults else 0


def look(browser: str, model: str, folder: Path) -> list[str]:
    """What is wrong with the page of one model."""
    from rlflow.cli import main as rlflow

    page = (folder / f"{model.replace('/', '-')}.html").resolve()
    with_options = ["optimize", model, "--cost", "analytic", "--budget", "200x", "--report", str(page), "-q"]
    rlflow(with_options, standalone_mode=False)
    probed = page.with_suffix(".probe.html")
    probed.write_text(page.read_text("utf-8").replace("</body>", _PROBE), encoding="utf-8")
    faults = []
    for width in WIDTHS:
        window = f"--window-size={width},3000"
        shown = run(browser, window, f"--screenshot={page.with_suffix(f'.{width}.png')}", page)
        assert shown.returncode == 0, shown.stderr
        frame = page.with_suffix(".frame.html")
        frame.write_text(_FRAME % (width, probed.name), encoding="utf-8")
        wide = run(browser, f"--window-size={width + 200},3200", "--virtual-time-budget=5000", "--dump-dom", frame)
        title = re.search(r"<title>(-?\d+) (\d+)</title>", wide.stdout)
        assert title is not None, "the page's own script did not run"
        if int(title[1]) > 0:
            faults.append(f"{model}: at {width} pixels the page is {title[1]} pixels too wide")
        if int(title[2]) > 0:
            faults.append(f"{model}: at {width} pixels {title[2]} parts of it run over")
    return faults + printed(browser, model, page)


def printed(browser: str, model: str, page: Path) -> list[str]:
    """What is wrong with the page on paper; letters are measured where poppler's tools are there."""
    paper = page.with_suffix(".pdf")
    run(browser, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page)
    if not paper.exists():
        return [f"{model}: it was not printed"]
    if shutil.which("pdftotext") is None:
        return []
    told = subprocess.run(["pdftotext", "-bbox", paper, "-"], capture_output=True, text=True, timeout=60).stdout
    pages = told.count("<page ")
    faults = [f"{model}: {pages} pages on paper, at most {PAGES} are wanted"] if pages > PAGES else []
    ends = re.findall(r'yMin="([\d.]+)" xMax="[\d.]+" yMax="([\d.]+)"', told)
    heights = [float(low) - float(high) for high, low in ends]
    if heights and min(heights) < POINTS:
        faults.append(f"{model}: on paper letters are {min(heights):.1f} points high, at least {POINTS} are wanted")
    return faults


def run(browser: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    *options, page = arguments
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    command = [browser, *flags, *map(str, options), f"file://{Path(page).resolve()}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


if __name__ == "__main__":
    sys.exit(main())
