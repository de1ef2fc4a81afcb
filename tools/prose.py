#!/usr/bin/env python3
"""Checks the documents: no line of Markdown above 120 columns (tables, code and lines with a long link excepted), and at
most 42,500 words in all documents together; the changelog, generated pages, lists of fields and studies do not count.

    tools/prose.py          prints the five longest documents; exit code 1 when a limit is passed
    tools/prose.py --wrap   also rewrites paragraphs and list items to the width, in place
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, WORDS = 120, 42_500
UNCOUNTED = ("docs/configuration.md", "docs/run-folder.md", "docs/json-lines.md", "CHANGELOG.md", "docs/studies/",
             "assets/")  # looked up, not read
FIELDS = re.compile(r"<!-- fields -->.*?<!-- end of fields -->", re.S)
FENCE = re.compile(r"^ *```")
ITEM = re.compile(r"^( *)([-*+]|\d+\.) +")
LITERAL = re.compile(r"^( *\||#|>|<|!\[|    |$)")  # a table, a heading, a quotation, HTML, a picture, indented code
BREAKS_A_LINE = re.compile(r"^([-*+#>|]+|\d+[.)])$")  # would begin a list, heading, quotation or table


def documents():
    """Returns every Markdown file that git tracks or would add."""
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.splitlines() if (ROOT / name).exists()]


def lines_outside_code(text):
    """Yields (number, line) of every line outside fenced blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def is_too_wide(line):
    """Returns true for prose above the width. A line whose only excess is one long word (a link) is excepted."""
    return len(line) > WIDTH and not line.startswith("    ") and not line.lstrip().startswith(("|", "![")) \
        and max(len(word) for word in line.split()) < WIDTH - 20


def words(text):
    """Counts the words of a text. Signs that stand alone, such as the bars of a table, and marked lists of fields do not count."""
    text = FIELDS.sub("", text)
    return sum(any(c.isalnum() for c in word) for word in text.split())


def wrapped(pieces, first, rest):
    """Splits words into lines of at most WIDTH columns. The first begins with `first`, the others with `rest`."""
    glued = []
    for piece in pieces:  # a word that would begin a list stays on the line of the word before it
        if glued and BREAKS_A_LINE.match(piece):
            glued[-1] += " " + piece
        else:
            glued.append(piece)
    lines, line = [], first
    for word in glued:
        starts = line in (first, rest)
        if not starts and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line, starts = rest, True
        line += word if starts else " " + word
    return lines + [line]


def continues(line, open_words, rest):
    """Returns true for an indented line that continues a list item above it."""
    return bool(open_words and rest and line.strip()) and not line.lstrip().startswith("|")


def wrap(text):
    """Returns the text with each paragraph and list item wrapped again."""
    out, open_words, first, rest, fenced = [], [], "", "", False

    def flush():
        nonlocal open_words
        if open_words:
            out.extend(wrapped(open_words, first, rest))
        open_words = []

    for line in text.splitlines():
        item = ITEM.match(line)
        if FENCE.match(line):
            flush()
            fenced = not fenced
            out.append(line)
        elif fenced or (LITERAL.match(line) and not item and not continues(line, open_words, rest)):
            flush()
            out.append(line)
        else:
            if item:
                flush()
                first, rest = item[0], " " * len(item[0])
            elif not open_words:
                first = rest = line[:len(line) - len(line.lstrip())]
            open_words += line[len(item[0]) if item else 0:].split()
    flush()
    return "\n".join(out) + "\n"


def main():
    counted, wide = [], []
    for path in documents():
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if "--wrap" in sys.argv[1:]:
            text = wrap(text)
            path.write_text(text, encoding="utf-8")
        if not name.startswith(UNCOUNTED):
            counted.append((words(text), name))
        wide += [f"{name}:{number} ({len(line)} columns)" for number, line in lines_outside_code(text) if is_too_wide(line)]
    total = sum(count for count, _ in counted)
    longest = ", ".join(f"{name} ({count})" for count, name in sorted(counted, reverse=True)[:5])
    print(f"prose: {len(counted)} documents, {total} words (limit {WORDS}); longest: {longest}")
    if wide:
        print(f"prose: {len(wide)} lines are too wide: " + ", ".join(wide[:20]))
    return 1 if wide or total > WORDS else 0


if __name__ == "__main__":
    sys.exit(main())
