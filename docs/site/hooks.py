"""The hooks of MkDocs: pages that are made from the code, and links between pages."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import conformance
import generated
import links
import pictures
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

#: The page on the site for each file of the repository; on_files fills this dict and _SOURCES.
_PAGES: dict[str, str] = {}
#: The file of the repository for each page on the site.
_SOURCES: dict[str, str] = {}
#: The repository's address if GitHub's actions build the site, otherwise empty. The theme's own
#: ``repo_url`` would make each page send a request to GitHub.
_REPOSITORY = "/".join(
    filter(None, map(os.environ.get, ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")))
)
#: The first paragraph of a page, and a link in it.
_PARAGRAPH = re.compile(r"^(?![#|<!>]|:::|- )\S[^\n]*(?:\n\S[^\n]*)*", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


def on_config(config: Any) -> Any:
    """Add the generated pages to the navigation, and a link to the repository."""
    if _REPOSITORY:
        config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": _REPOSITORY}]
    sections = {title: pages for section in config.nav for title, pages in section.items()}
    sections["Plugins"] += [f"hooks/{name}.md" for name in generated.hook_names()]
    sections["Project"] += [
        *("CONTRIBUTING.md", "CHANGELOG.md"),
        {"Distributions": [f"packages/{name}.md" for name in generated.distributions()]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and pictures, and record the repository's file of each page."""
    for file in files.documentation_pages():
        _SOURCES[file.src_uri] = f"docs/{file.src_uri}"
    names = generated.distributions()
    _SOURCES.update({f"packages/{name}.md": f"packages/{name}/README.md" for name in names})
    _SOURCES.update({name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md")})
    for page, source in _SOURCES.items():
        _PAGES[source] = page
        if not source.startswith("docs/"):
            text = (ROOT / source).read_text("utf-8")
            files.append(File.generated(config, page, content=text))
    for page, text in [*generated.pages(), conformance.page(), *pictures.files()]:
        files.append(File.generated(config, page, content=text))
    for path, source in conformance.report_files():
        files.append(File.generated(config, path, abs_src_path=str(source)))
    for name in ("iframe-worker.js", "site.css", "site.js"):
        path = str(HERE / name)
        files.append(File.generated(config, f"assets/{name}", abs_src_path=path))
    return files


#: The weight of pages in the search, by the beginning of their paths.
_SEARCH: dict[str, dict[str, object]] = {
    "howto.md": {"boost": 4},
    "public-names.md": {"exclude": True},
    **{path: {"boost": 0.4} for path in ("reference/", "hooks/", "packages/", "CHANGELOG.md")},
}


#: Pages with a wide table, and what they do not show beside it.
_WIDE = {
    "benchmarks.md": ("navigation", "toc"),
    "comparison.md": ("navigation", "toc"),
    "public-names.md": ("navigation", "toc"),
    "schedulers/aws_sagemaker.md": ("toc",),
    "schedulers/index.md": ("toc",),
}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite a page's links; insert tables, pictures, a description and an edit link."""
    for start, search in _SEARCH.items():
        if page.file.src_uri.startswith(start):
            page.meta.setdefault("search", search)
    page.meta["hide"] = _WIDE.get(page.file.src_uri, ())
    page.meta.setdefault("description", description(markdown))
    markdown = generated.fill(markdown)
    if page.file.src_uri in pictures.ON_PAGES:
        heading, _, text = markdown.partition("\n")
        markdown = f"{heading}\n\n{pictures.ON_PAGES[page.file.src_uri]}\n{text}"
    source = _SOURCES.get(page.file.src_uri)
    if source is None:
        return markdown
    if _REPOSITORY:
        page.edit_url = f"{_REPOSITORY}/edit/main/{source}"
    return links.rewrite(markdown, source, page.file.src_uri, _PAGES)


def description(markdown: str) -> str:
    """Return the first sentence of a page, which search engines show; empty if it has no text."""
    found = _PARAGRAPH.search(_FENCED.sub("", markdown))
    text = " ".join(found[0].split()) if found else ""
    return re.sub(r"[`*]", "", _LINK.sub(r"\1", text)).partition(". ")[0].removesuffix(":")


def on_env(env: Any, config: Any, files: Files) -> None:
    """Fail if two pages have the same title, or if a page has no description."""
    pages = [file.page for file in files.documentation_pages() if file.page]
    counts = Counter(page.title for page in pages)
    problems = [f"{title!r} is the title of {n} pages" for title, n in counts.items() if n > 1]
    problems += [
        f"{page.file.src_uri} has no text for a description"
        for page in pages
        if not page.meta.get("description")
    ]
    if problems:
        raise PluginError("; ".join(problems))
