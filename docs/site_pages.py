"""Hook of MkDocs: puts the pages of the repository outside docs/ on the site and directs links to them.

Pages link to each other as they lie in the repository, so that the links work on a code host as well. README.md is the
home page, and a file outside docs/ is on the site if a page links to it: Markdown and source code as pages, everything
else as it is. Notebooks become pages with their stored output, and each package of the API gets a page.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=[)\s])")  # the target of [text](target#anchor "title")
FENCE = re.compile(r"^(?: *```.*?^ *```[ \t]*$)", re.M | re.S)
LANGUAGES = {".py": "python", ".toml": "toml", ".conf": "nginx", ".service": "ini", ".js": "js", ".cfg": "ini"}
NOT_IN_API = ("kernels", "charts", "cli", "bench", "golden", "models")  # no part of them is called by users


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds one entry per package to the part of the navigation that has the API."""
    for section in config.nav or []:
        if isinstance(section, dict) and "API" in section:
            section["API"] += [{f"elmo.{name}": f"api/{name}.md"} for name in api_packages()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside docs/ that pages link to, the pages of the API and those of the notebooks."""
    for name in api_packages():
        text = f"# elmo.{name}\n\n::: elmo.{name}\n    options: {{show_submodules: true, show_root_heading: false}}\n"
        files.append(File.generated(config, f"api/{name}.md", content=text))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        present = files.get_file_from_path(f"notebooks/{notebook.name}")
        if present is not None:
            files.remove(present)
        for place, content in notebook_files(notebook).items():
            files.append(File.generated(config, place, content=content))
    for path in repository_files():
        source = LANGUAGES.get(path.suffix)
        if path.is_dir():
            names = [f"- `{one.relative_to(path).as_posix()}`" for one in sorted(path.rglob("*")) if one.is_file()]
            text = "\n".join([f"# {path.relative_to(ROOT).as_posix()}", "", "Files of this folder:", "", *names, ""])
            files.append(File.generated(config, site_path(path), content=text))
        elif source or not path.suffix:
            name = path.relative_to(ROOT).as_posix()
            text = f"# {path.name}\n\n`{name}`\n\n````{source or 'text'}\n{path.read_text(encoding='utf-8')}````\n"
            files.append(File.generated(config, site_path(path), content=text))
        else:
            files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Directs the links of a page from places in the repository to places on the site."""
    source = page.file.abs_src_path
    if source is None:  # made here: its links are those of the site
        return markdown

    def direct(match: re.Match[str]) -> str:
        target = resolve(Path(source), match[1])
        if target is None:
            return match[0]  # MkDocs reports it
        relative = posixpath.relpath(site_path(target), posixpath.dirname(page.file.src_uri) or ".")
        return relative + (match[2] or "")

    return outside_fences(markdown, direct)


def api_packages() -> list[str]:
    """The packages with a page of their own, in alphabetical order."""
    folders = sorted(path.parent.name for path in (ROOT / "elmo").glob("*/__init__.py"))
    return [name for name in folders if name not in NOT_IN_API]


def site_path(path: Path) -> str:
    """Where a file of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    if name == "README.md":
        return "index.md"
    if name == "docs/report/index.html":  # README.md of that folder becomes its index.html
        return "report/one-page.html"
    if name.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", name.removeprefix("docs/"))
    if "/" not in name and path.suffix == ".md":
        return name
    is_source = path.suffix in LANGUAGES or not path.suffix  # or a folder
    return f"repository/{name}.md" if is_source else f"repository/{name}"


def resolve(page: Path, target: str) -> Path | None:
    """The file or folder of the repository that a link leads to; a folder stands for its README.md if it has one."""
    path = Path(os.path.normpath(page.parent / target))
    if (path / "README.md").is_file():
        path /= "README.md"
    return path if path.exists() and path.is_relative_to(ROOT) else None


def repository_files() -> list[Path]:
    """README.md and all files that are not pages of docs/ but can be reached from one by links."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    reached = dict.fromkeys(pages)
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        if page.suffix != ".md":
            continue
        targets = (resolve(page, match[1]) for match in links_of(page.read_text(encoding="utf-8")))
        found = [path for path in targets if path is not None and path not in reached]
        reached.update(dict.fromkeys(found))
        waiting += found
    added = ROOT / "docs" / "report" / "index.html"
    return sorted(path for path in reached if path == added or not path.is_relative_to(ROOT / "docs"))


def links_of(markdown: str) -> list[re.Match[str]]:
    return [match for part in FENCE.split(markdown) for match in LINK.finditer(part)]


def outside_fences(markdown: str, direct: Any) -> str:
    """The page with its links replaced, but not in blocks of code."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(direct, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(direct, markdown[end:])])


def notebook_files(path: Path) -> dict[str, str | bytes]:
    """A notebook as a page, place on the site -> content, with its pictures as files beside it."""
    made: dict[str, str | bytes] = {}
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/svg+xml" in data or "image/png" in data:
                suffix = "svg" if "image/svg+xml" in data else "png"
                place = f"notebooks/{path.stem}-{len(made) + 1}.{suffix}"
                svg, png = "".join(data.get("image/svg+xml", "")), "".join(data.get("image/png", ""))
                made[place] = svg or base64.b64decode(png)
                parts.append(f"![output of the cell above]({posixpath.basename(place)})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    parts.append(f"[Download the notebook]({path.name})")
    made[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + "\n"
    made[f"notebooks/{path.name}"] = path.read_bytes()
    return made
