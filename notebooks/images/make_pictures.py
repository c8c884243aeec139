"""Make the pictures of panels: the real JupyterLab in Chromium, driven by the controls' names.

    python notebooks/images/make_pictures.py [FOLDER] [--only NAME]

Needs the extra ``test`` and a Chromium. Look at each picture before it is committed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "notebook" / "panels"))

from lab import LabPage, browser_path, served_lab  # noqa: E402

QUESTION = "How many days are nightly copies kept for an EU Enterprise customer?"
CELLS = (
    """%load_ext nbrag
%rag_config database=:memory:
import nbrag
workspace = nbrag.current_workspace()
spec = nbrag.PipelineSpec("retrieval", "support", collection="handbook")
spec = spec.with_stage("search", mode="hybrid").with_stage("mmr", diversity=0.3)
workspace.save_pipeline(spec.with_stage("neighbours", before=1, after=1))
workspace.save_pipeline(nbrag.PipelineSpec("retrieval", "keyword").with_stage("search", mode="keyword"))
_ = workspace.ingest("handbook", "corpus/handbook")
print("ready")""",
    "%rag_panel ingest corpus/handbook -c handbook",
    f'%rag_panel pipeline support -c handbook --question "{QUESTION}"',
    f'%rag_panel search support keyword -c handbook --question "{QUESTION}"',
    "%rag_panel eval default keyword -c handbook --cases corpus/questions",
    f'%rag_panel map -c handbook --question "{QUESTION}"',
)
#: One picture per cell after the first, and the most of its height, in pixels.
NAMES = ("ingest", "pipeline", "search", "eval", "map")
HEIGHT = 1_000


class Output:
    """The panel of one cell; its controls are looked for in there."""

    def __init__(self, lab: LabPage, cell: int) -> None:
        self.page = lab.page
        self.here = lab.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output").last

    def button(self, words: str) -> Any:
        """Return a button."""
        return self.here.get_by_role("button", name=words, exact=True)

    def label(self, words: str) -> Any:
        """Return a control."""
        return self.here.get_by_label(words, exact=True)

    def text(self, words: str) -> Any:
        """Return the first place of some words."""
        return self.here.get_by_text(words).first


def ingest(output: Output) -> None:
    """Cut three documents, count, and run."""
    output.button("Preview chunks").click()
    output.text("chunk 1: ").wait_for()
    output.button("Count").click()
    output.text("calls of the chat model").wait_for()


def pipeline(output: Output) -> None:
    """Change an option, so that results move."""
    output.label("Stages").select_option(index=1)
    output.label("diversity").fill("0.6")
    output.page.keyboard.press("Tab")
    output.text("was ").wait_for()


def search(output: Output) -> None:
    """Open the second result in its document."""
    output.label("Results A").select_option(index=1)
    output.here.get_by_role("region", name="Passage in its document").locator("mark").wait_for()


def evaluation(output: Output) -> None:
    """Measure, and look at the worst question."""
    output.button("Measure").click()
    output.text("wins").wait_for()
    output.label("Questions").select_option(index=0)
    output.text("relevant, and not among these").wait_for()


def collection_map(output: Output) -> None:
    """Wait for the picture."""
    output.here.get_by_role("img").wait_for()


STEPS: dict[str, Callable[[Output], None]] = {
    "ingest": ingest,
    "pipeline": pipeline,
    "search": search,
    "eval": evaluation,
    "map": collection_map,
}


def smaller(path: Path) -> None:
    """Keep few colours: a screenshot has not many."""
    from PIL import Image

    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(200, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


def main() -> None:
    """Open one notebook with all panels, and take a picture of each."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    parser.add_argument("--only", choices=NAMES, action="append")
    options = parser.parse_args()
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(made)
        shutil.copytree(REPOSITORY / "notebooks" / "corpus", folder / "corpus")
        browser = playwright.chromium.launch(executable_path=browser_path(), args=flags)
        with served_lab(folder) as address:
            lab = LabPage(browser, address, folder)
            lab.page.set_viewport_size({"width": 1240, "height": 1500})
            lab.open("panels", *CELLS)
            for number, name in enumerate(NAMES, start=1):
                if options.only and name not in options.only:
                    continue
                output = Output(lab, number)
                STEPS[name](output)
                output.here.scroll_into_view_if_needed()
                lab.page.wait_for_timeout(1_000)
                file = options.folder / f"panel-{name}.png"
                box = output.here.bounding_box()
                lab.page.set_viewport_size({"width": 1240, "height": int(box["height"]) + 400})
                lab.page.wait_for_timeout(500)
                output.here.evaluate("element => element.scrollIntoView({block: 'start'})")
                lab.page.wait_for_timeout(500)
                box = output.here.bounding_box()
                box["height"] = min(box["height"], HEIGHT)
                lab.page.screenshot(path=file, clip=box)
                smaller(file)
                print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB", flush=True)
            for problem in lab.problems:
                print("the console says:", problem)
        browser.close()


if __name__ == "__main__":
    main()
