#!/usr/bin/env python3
"""A preprocessor of mdBook, which adapts the links of the pages to the book.

A page can be read in a checkout, where it links to sources and to other documents. The book does not
contain these files, so there the text of such a link is followed by the path, or replaced by it if
it is the end of the path. A document outside of `docs` is a page of the book if `docs` has a
symbolic link to it: then links to the document lead to that page, and its own links are those of the
document.

mdBook writes the page `README.md` of a folder to `index.html`, but lets links to `README.md` lead to
`README.html`. So such a link becomes one to `index.md`.
"""

import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs"
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")


def for_the_book(content, page, pages):
    """Returns the content of a page with links that work in the book. `pages` has each page of the
    book by its file."""
    folder = (BOOK / page).resolve().parent

    def replaced(link):
        kind, text, (target, mark, section) = link[1], link[2], link[3].partition("#")
        if not target or "://" in target:
            return link[0]
        file = (folder / target).resolve()
        inside = pages.get(file) or (file.relative_to(BOOK) if file.is_relative_to(BOOK) else None)
        if inside:
            inside = inside.with_name("index.md") if inside.name == "README.md" else inside
            return f"{kind}[{text}]({os.path.relpath(inside, page.parent)}{mark}{section})"
        if kind:
            return link[0]
        path = file.relative_to(ROOT).as_posix()
        return f"`{path}`" if path.endswith(text.strip("`/")) else f"{text} (`{path}`)"

    return LINK.sub(replaced, content)


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def source(chapter):
    """Returns the path of a chapter's file in the book. Its `path` may be that of an `index.md`."""
    path = chapter.get("source_path") or chapter.get("path")
    return Path(path) if path else None


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    found = list(chapters(book.get("items") or book.get("sections")))
    pages = {(BOOK / source(chapter)).resolve(): source(chapter) for chapter in found if source(chapter)}
    for chapter in found:
        if source(chapter):
            chapter["content"] = for_the_book(chapter["content"], source(chapter), pages)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
