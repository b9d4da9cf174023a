#!/usr/bin/env python3
"""A preprocessor of mdBook: links to files outside of `docs` become the paths of these files.

A page can be read in a checkout, where it links to sources and to other documents. The book does not
contain these files, so there the text of such a link is followed by the path, or replaced by it if
it is the end of the path.
"""

import json
import os
import re
import sys

LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")


def without_outside(page, folder):
    """Returns a page of `folder`, which is relative to the book's, without links that leave the book."""

    def replaced(link):
        text, target = link[1], link[2].split("#")[0]
        path = os.path.normpath(os.path.join("docs", folder, target))
        if "://" in target or not target or path.startswith("docs" + os.sep):
            return link[0]
        return f"`{path}`" if path.endswith(text.strip("`/")) else f"{text} (`{path}`)"

    return LINK.sub(replaced, page)


def walk(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            if chapter.get("path"):
                chapter["content"] = without_outside(chapter["content"], os.path.dirname(chapter["path"]))
            walk(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    walk(book.get("items") or book.get("sections"))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
