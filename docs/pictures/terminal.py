"""Converts the content of a terminal into SVG.

The input is the text that `tmux capture-pane -e` prints: lines with SGR sequences, which set colours
and attributes. `cells` reads it into rows of cells. `still` returns an image of one such screen,
and `film` one that shows several of them in turn.

An image has its own background, so it is readable on a white and on a dark page. A reader's font
may have other widths than ours, therefore each run of text is fitted to its columns. Blocks and
lines are drawn as shapes: the glyphs of many fonts leave gaps between rows.
"""

import re
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

# The size of a cell, of the letters and of the margin, in pixels.
CELL_WIDTH, CELL_HEIGHT = 9, 19
FONT_SIZE = 15
MARGIN = 14
# How far the letters stand above the lower edge of their cell.
BASELINE = 5
# The height of the caption below a film.
CAPTION_HEIGHT = 34
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

BACKGROUND, FOREGROUND, EDGE = "#0d1117", "#d7dde5", "#3d444d"
# The 16 colours of the palette: dark ones, then bright ones.
PALETTE = [
    "#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#d7dde5",
    "#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#9be9ef", "#f0f6fc",
]
# The share of its colour that dim text keeps; the rest is the background's.
DIM_SHARE = 0.62

SGR = re.compile(r"\x1b\[([0-9;:]*)m")
# Other sequences: OSC, which begin a link or a title, the choice of a character set, and CSI.
OTHER = re.compile(r"\x1b\].*?(?:\x07|\x1b\\)|\x1b[()].|\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f]", re.S)


@dataclass(frozen=True)
class Style:
    """The colours and attributes of a cell. A colour is `#rrggbb`, or None for the default."""

    foreground: str | None = None
    background: str | None = None
    is_bold: bool = False
    is_dim: bool = False
    is_reverse: bool = False

    def ink(self):
        """Returns the colour of the letters."""
        front, back = self.foreground or FOREGROUND, self.background or BACKGROUND
        if self.is_reverse:
            front, back = back, front
        return mixed(front, back, DIM_SHARE) if self.is_dim else front

    def paper(self):
        """Returns the colour behind the letters; None if it is the image's."""
        return self.foreground or FOREGROUND if self.is_reverse else self.background


def mixed(front, back, share):
    """Mixes two colours."""
    channels = [(int(front[at : at + 2], 16), int(back[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(one * share + other * (1 - share)):02x}" for one, other in channels)


def indexed(number):
    """Returns a colour of the palette of 256."""
    if number < 16:
        return PALETTE[number]
    if number < 232:
        steps = [(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]
        return "#" + "".join(f"{55 + 40 * step if step else 0:02x}" for step in steps)
    return "#" + f"{8 + 10 * (number - 232):02x}" * 3


def styled(style, codes):
    """Applies the codes of one SGR sequence to a style."""
    codes = [int(code or 0) for code in re.split("[;:]", codes)]
    while codes:
        code = codes.pop(0)
        if code in (38, 48):
            kind = codes.pop(0) if codes else None
            if kind == 5 and codes:
                color = indexed(codes.pop(0) & 255)
            elif kind == 2 and len(codes) >= 3:
                color = "#" + "".join(f"{codes.pop(0) & 255:02x}" for _ in range(3))
            else:
                break
            style = replace(style, **{"foreground" if code == 38 else "background": color})
        elif code == 0:
            style = Style()
        elif code in (1, 2, 7):
            style = replace(style, **{{1: "is_bold", 2: "is_dim", 7: "is_reverse"}[code]: True})
        elif code == 22:
            style = replace(style, is_bold=False, is_dim=False)
        elif code == 27:
            style = replace(style, is_reverse=False)
        elif code in (39, 49):
            style = replace(style, **{"foreground" if code == 39 else "background": None})
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = replace(style, foreground=PALETTE[code - 30 if code < 90 else code - 82])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = replace(style, background=PALETTE[code - 40 if code < 100 else code - 92])
    return style


def cells(text, columns, rows):
    """Reads captured text into `rows` lists of `columns` pairs of a character and a Style."""
    screen, style = [], Style()
    for line in text.split("\n")[:rows]:
        row, at = [], 0
        for sequence in SGR.finditer(line):
            row += [(char, style) for char in OTHER.sub("", line[at : sequence.start()])]
            style, at = styled(style, sequence[1]), sequence.end()
        row += [(char, style) for char in OTHER.sub("", line[at:])]
        screen.append((row + [(" ", Style())] * columns)[:columns])
    return screen + [[(" ", Style())] * columns for _ in range(rows - len(screen))]


def number(value):
    """Formats a coordinate."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def rectangle(x, y, width, height, color, opacity=1.0):
    shown = "" if opacity == 1.0 else f' opacity="{number(opacity)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" fill="{color}"{shown}/>'


# Lines: whether they lead from the middle of the cell to the left, right, top and bottom.
LINES = {
    "─": "lr", "━": "lr", "│": "tb", "┌": "rb", "┐": "lb", "└": "rt", "┘": "lt", "├": "rtb", "┤": "ltb",
    "┬": "lrb", "┴": "lrt", "┼": "lrtb", "╭": "rb", "╮": "lb", "╰": "rt", "╯": "lt",
}
SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}


def shape(char, x, y, count, color):
    """Returns the drawing of `count` blocks or lines in a row; None if `char` is a letter."""
    width, height = CELL_WIDTH, CELL_HEIGHT
    if char in SHADES:
        return rectangle(x, y, width * count, height, color, SHADES[char])
    if "▁" <= char <= "█":
        part = height * (ord(char) - ord("▁") + 1) / 8
        return rectangle(x, y + height - part, width * count, part, color)
    if "▉" <= char <= "▏":
        part = width * (ord("▏") - ord(char) + 1) / 8
        return "".join(rectangle(x + width * at, y, part, height, color) for at in range(count))
    if char not in LINES:
        return None
    ways, path = LINES[char], ""
    if ways == "lr":
        path = f"M{number(x)} {number(y + height / 2)}h{width * count}"
    else:
        for at in range(count):
            middle, half = x + width * at + width / 2, y + height / 2
            ends = {"l": (middle - width / 2, half), "r": (middle + width / 2, half), "t": (middle, y), "b": (middle, y + height)}
            for way in ways:
                path += f"M{number(middle)} {number(half)}L{number(ends[way][0])} {number(ends[way][1])}"
    return f'<path d="{path}" stroke="{color}" fill="none"/>'


def is_plain(char):
    """Returns whether every font for terminals has the character with the width of a letter."""
    return " " < char <= "ÿ" or char == "…"


def text_element(text, x, y, style, is_fitted):
    weight = ' class="bold"' if style.is_bold else ""
    place = f'x="{number(x)}" y="{number(y + CELL_HEIGHT - BASELINE)}"'
    if is_fitted:
        place += f' textLength="{len(text) * CELL_WIDTH}" lengthAdjust="spacingAndGlyphs"'
    else:
        place += ' text-anchor="middle"'
    return f'<text {place} fill="{style.ink()}"{weight}>{escape(text)}</text>'


def drawn(screen):
    """Returns the elements of a screen, with the first cell at (0, 0)."""
    papers, inks = [], []
    for index, row in enumerate(screen):
        y, at = index * CELL_HEIGHT, 0
        while at < len(row):
            # The cells of one style.
            end = at
            while end < len(row) and row[end][1] == row[at][1]:
                end += 1
            style, run = row[at][1], "".join(char for char, _ in row[at:end])
            if style.paper():
                papers.append(rectangle(at * CELL_WIDTH, y, (end - at) * CELL_WIDTH, CELL_HEIGHT, style.paper()))
            # Words with single spaces between them, and repetitions of one other character.
            for part in re.finditer(r"(?:[!-ÿ…]+(?: [!-ÿ…]+)*)|([^ ])\1*", run):
                x = (at + part.start()) * CELL_WIDTH
                if is_plain(part[0][0]):
                    inks.append(text_element(part[0], x, y, style, True))
                    continue
                element = shape(part[1], x, y, len(part[0]), style.ink())
                if element:
                    inks.append(element)
                    continue
                for offset in range(len(part[0])):
                    middle = x + (offset + 0.5) * CELL_WIDTH
                    inks.append(text_element(part[1], middle, y, style, False))
            at = end
    return "\n".join(papers + inks)


def document(title, width, height, style, body):
    """Returns an image with its background."""
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label={quoteattr(title)}>
<title>{escape(title)}</title>
<style>text{{font:{FONT_SIZE}px {FONTS};white-space:pre}}.bold{{font-weight:700}}{style}</style>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{BACKGROUND}" stroke="{EDGE}"/>
{body}
</svg>
"""


def size(screen):
    return len(screen[0]) * CELL_WIDTH + 2 * MARGIN, len(screen) * CELL_HEIGHT + 2 * MARGIN


def still(screen, title):
    """Returns an image of one screen."""
    width, height = size(screen)
    return document(title, width, height, "", f'<g transform="translate({MARGIN} {MARGIN})">\n{drawn(screen)}\n</g>')


def film(scenes, title):
    """Returns an image that shows scenes in turn: each a screen, a caption, and its seconds.

    Without animation, for example if the reader has switched it off, it shows the last scene.
    """
    width, height = size(scenes[0][0])
    whole = sum(seconds for _, _, seconds in scenes)
    css, body, begin = "", [], 0.0
    for index, (screen, caption, seconds) in enumerate(scenes):
        end = begin + seconds
        first, last = (number(100 * time / whole) for time in (begin, end))
        hidden_before = f"0%{{visibility:hidden}}{first}%{{visibility:visible}}" if index else "0%{visibility:visible}"
        hidden_after = f"{last}%,100%{{visibility:hidden}}" if index + 1 < len(scenes) else "100%{visibility:visible}"
        css += f"@keyframes s{index}{{{hidden_before}{hidden_after}}}"
        css += f".s{index}{{visibility:{'hidden' if index + 1 < len(scenes) else 'visible'};animation:s{index} {number(whole)}s step-end infinite}}"
        body.append(
            f'<g class="s{index}">\n<g transform="translate({MARGIN} {MARGIN})">\n{drawn(screen)}\n</g>\n'
            f'<text x="{MARGIN}" y="{height + CAPTION_HEIGHT / 2 - 1}" class="caption">{escape(caption)}</text>\n</g>'
        )
        begin = end
    css += f".caption{{fill:{FOREGROUND};font-size:16px;font-family:system-ui,sans-serif}}"
    css += "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
    line = f'<path d="M1 {height - 6.5}H{width - 1}" stroke="{EDGE}"/>'
    return document(title, width, height + CAPTION_HEIGHT, css, "\n".join([line, *body]))
