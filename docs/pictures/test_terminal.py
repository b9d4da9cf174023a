"""Tests of the conversion of a terminal's content into SVG."""

import unittest
from xml.etree import ElementTree

import terminal
from terminal import BACKGROUND, FOREGROUND, PALETTE, Style, cells, drawn, film, still

SVG = "{http://www.w3.org/2000/svg}"


def elements(screen, kind):
    root = ElementTree.fromstring(f'<svg xmlns="http://www.w3.org/2000/svg">{drawn(screen)}</svg>')
    return list(root.iter(SVG + kind))


class Terminal(unittest.TestCase):
    def test_sequences_set_and_reset_colours_and_attributes(self):
        row = cells("a\x1b[1;31mb\x1b[22mc\x1b[2;92md\x1b[0;44me\x1b[39;49;7mf\x1b[27mg", 8, 1)[0]
        self.assertEqual([char for char, _ in row], list("abcdefg "))
        red, green, blue = PALETTE[1], PALETTE[10], PALETTE[4]
        styles = [
            Style(), Style(red, is_bold=True), Style(red), Style(green, is_dim=True), Style(background=blue),
            Style(is_reverse=True), Style(), Style(),
        ]
        self.assertEqual([style for _, style in row], styles)

    def test_colours_of_256_and_of_24_bits_are_read(self):
        text = "\x1b[38;5;1ma\x1b[38;5;196mb\x1b[38;5;244mc\x1b[38;2;1;2;255;48;5;16md\x1b[38;9;1me"
        row = cells(text, 5, 1)[0]
        self.assertEqual([style.foreground for _, style in row], [PALETTE[1], "#ff0000", "#808080", "#0102ff", "#0102ff"])
        self.assertEqual(row[3][1].background, "#000000")

    def test_a_style_continues_on_the_next_line(self):
        screen = cells("\x1b[36ma\nb\x1b[0m", 1, 2)
        self.assertEqual(screen[1][0], ("b", Style(PALETTE[6])))

    def test_a_screen_has_the_wanted_size(self):
        screen = cells("abcd\ne\nf\ng", 3, 6)
        self.assertEqual(["".join(char for char, _ in row) for row in screen], ["abc", "e  ", "f  ", "g  ", "   ", "   "])

    def test_other_sequences_and_controls_are_left_out(self):
        row = cells("\x1b]8;;http://x\x1b\\a\x1b]8;;\x07b\x1b(0c\x1b[3Kd\x0e\x07e", 6, 1)[0]
        self.assertEqual("".join(char for char, _ in row), "abcde ")

    def test_reverse_swaps_the_colours_and_dim_mixes_them(self):
        self.assertEqual((Style(is_reverse=True).ink(), Style(is_reverse=True).paper()), (BACKGROUND, FOREGROUND))
        self.assertIsNone(Style("#112233").paper())
        dim = Style("#ffffff", "#000000", is_dim=True).ink()
        self.assertEqual(dim, "#" + f"{round(255 * terminal.DIM_SHARE):02x}" * 3)

    def test_text_stands_in_its_columns(self):
        texts = elements(cells("ab  c d\x1b[1me", 9, 1), "text")
        found = [(text.text, text.get("x"), text.get("textLength"), text.get("class")) for text in texts]
        self.assertEqual(found, [("ab", "0", "18", None), ("c d", "36", "27", None), ("e", "63", "9", "bold")])

    def test_blocks_fill_their_part_of_a_cell(self):
        width, height = terminal.CELL_WIDTH, terminal.CELL_HEIGHT
        rects = elements(cells("██▄▌", 4, 1), "rect")
        sizes = [tuple(float(rect.get(key)) for key in ("x", "y", "width", "height")) for rect in rects]
        wanted = [(0, 0, 2 * width, height), (2 * width, height / 2, width, height / 2), (3 * width, 0, width / 2, height)]
        self.assertEqual(sizes, wanted)

    def test_the_paper_is_below_the_ink(self):
        kinds = [element.tag for element in ElementTree.fromstring(f"<g>{drawn(cells('a' + chr(27) + '[7mb', 2, 1))}</g>")]
        self.assertEqual(kinds, ["rect", "text", "text"])

    def test_every_character_of_a_line_is_drawn_once(self):
        text = "●D○P ╭─▸ a…b é 2µs → ✗ x<&>"
        screen = cells(text, len(text), 1)
        letters = "".join(text.text for text in elements(screen, "text")).replace(" ", "")
        self.assertEqual(sorted(letters), sorted(text.replace(" ", "").replace("╭", "").replace("─", "")))
        self.assertEqual(len(elements(screen, "path")), 2)

    def test_an_image_is_valid_xml_with_a_title(self):
        screen = cells("a < b & \"c\"", 12, 1)
        for image in (still(screen, 'x & "y"'), film([(screen, "one <", 1), (screen, "two", 2.5)], 'x & "y"')):
            root = ElementTree.fromstring(image)
            self.assertEqual((root.find(SVG + "title").text, root.get("aria-label")), ('x & "y"', 'x & "y"'))

    def test_a_film_shows_each_scene_and_ends_with_the_last(self):
        screens = [cells(char, 1, 1) for char in "abc"]
        image = film([(screen, "", seconds) for screen, seconds in zip(screens, (1, 2, 1))], "film")
        self.assertIn("@keyframes s0{0%{visibility:visible}25%,100%{visibility:hidden}}", image)
        self.assertIn("@keyframes s1{0%{visibility:hidden}25%{visibility:visible}75%,100%{visibility:hidden}}", image)
        self.assertIn("@keyframes s2{0%{visibility:hidden}75%{visibility:visible}100%{visibility:visible}}", image)
        self.assertIn(".s1{visibility:hidden;animation:s1 4s step-end infinite}", image)
        self.assertIn(".s2{visibility:visible;animation:s2 4s step-end infinite}", image)


if __name__ == "__main__":
    unittest.main()
