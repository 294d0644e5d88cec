"""Plots as SVG, with nothing but text: lines over a figure, and bars for names."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 170, 44, 56
BAR, BAR_LEFT = 26, 250

COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#b8860b", "#555555")
"""Dark enough for white paper, and different for who sees no colours: the points differ, too."""


class Axis:
    """Where a figure lies between two places of the picture."""

    def __init__(self, values, low, high, log):
        self.low, self.high, self.log = low, high, log
        self.max = max(values)
        self.min = min(values) if log else min(0, *values)
        if log:
            self.min, self.max = math.log10(self.min), math.log10(self.max)
        elif self.max > self.min:
            # Up to the line above it.
            step = step_of(self.max - self.min)
            self.max = math.ceil(self.max / step - 1e-9) * step
        if self.max <= self.min:
            self.max = self.min + 1

    def place(self, value):
        share = ((math.log10(value) if self.log else value) - self.min) / (self.max - self.min)
        return round(self.low + share * (self.high - self.low), 1)

    def marks(self):
        """Figures at which a line is drawn."""
        if self.log:
            powers = range(math.floor(self.min), math.floor(self.max + 1e-9) + 1)
            # Within few powers of ten there is room for more.
            parts = (1, 2, 5) if self.max - self.min <= 3 else (1,)
            marks = [10**power * part for power in powers for part in parts]
            return [mark for mark in marks if self.min - 1e-9 <= math.log10(mark) <= self.max + 1e-9]
        step = step_of(self.max - self.min)
        return [step * n for n in range(math.ceil(self.min / step - 1e-9), math.floor(self.max / step + 1e-9) + 1)]


def step_of(span):
    """A round figure of which some five make the span."""
    power = 10 ** math.floor(math.log10(span / 5))
    return next(power * part for part in (1, 2, 5, 10) if span / (power * part) <= 5 + 1e-9)


def lines(title, x_label, y_label, series, log_x=False, log_y=False):
    """`series`: name -> [(x, lowest, middle, highest)]. A stroke from the lowest to the highest, a line through the middles."""
    points = [point for of in series.values() for point in of]
    xs = sorted({point[0] for point in points})
    x = Axis(xs, LEFT, WIDTH - RIGHT, log_x)
    y = Axis([value for point in points for value in point[1:]], HEIGHT - BOTTOM, TOP, log_y)
    out = [*head(WIDTH, HEIGHT, title)]
    for mark in y.marks():
        out.append(stroke(LEFT, y.place(mark), WIDTH - RIGHT, y.place(mark), "#dddddd"))
        out.append(text(LEFT - 8, y.place(mark) + 4, short(mark), "end"))
    # Where few figures were measured, these; a mark that its neighbour would cover has no words.
    taken = -math.inf
    for mark in xs if len(xs) <= 10 else x.marks():
        at = x.place(mark)
        out.append(stroke(at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5, "#333333"))
        if at - taken >= 34:
            out.append(text(at, HEIGHT - BOTTOM + 20, short(mark), "middle"))
            taken = at
    out.append(stroke(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#333333"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, "middle"))
    out.append(text(LEFT - 60, TOP - 12, y_label, "start"))
    for at, (name, of) in enumerate(series.items()):
        colour = COLOURS[at % len(COLOURS)]
        middle = [(x.place(px), y.place(py)) for px, _, py, _ in of]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{px},{py}" for px, py in middle)}"/>')
        for px, low, _, high in of:
            if low != high:
                out.append(stroke(x.place(px), y.place(low), x.place(px), y.place(high), colour))
        if len(of) <= 40:
            out += [point(at, px, py, colour) for px, py in middle]
        key = TOP + 10 + at * 20
        out += [point(at, WIDTH - RIGHT + 16, key - 4, colour), text(WIDTH - RIGHT + 28, key, name, "start")]
    return "\n".join([*out, "</svg>"]) + "\n"


def bars(title, label, values, log=False):
    """`values`: name -> (lowest, middle, highest). One bar below the other."""
    height = TOP + BAR * len(values) + BOTTOM
    floor = [min(low for low, _, _ in values.values()) / 2] if log else []
    x = Axis(floor + [value for of in values.values() for value in of], BAR_LEFT, WIDTH - 90, log)
    out = [*head(WIDTH, height, title)]
    for mark in x.marks():
        out.append(stroke(x.place(mark), TOP, x.place(mark), height - BOTTOM, "#dddddd"))
        out.append(text(x.place(mark), height - BOTTOM + 18, short(mark), "middle"))
    for at, (name, (low, middle, high)) in enumerate(values.items()):
        top = TOP + at * BAR
        out.append(f'<rect x="{BAR_LEFT}" y="{top + 4}" width="{max(x.place(middle) - BAR_LEFT, 1):.1f}" height="{BAR - 8}" fill="{COLOURS[0]}"/>')
        if low != high:
            out.append(stroke(x.place(low), top + BAR / 2, x.place(high), top + BAR / 2, "#222222"))
        out.append(text(BAR_LEFT - 8, top + BAR / 2 + 4, name, "end"))
        out.append(text(x.place(high) + 6, top + BAR / 2 + 4, short(middle), "start"))
    out.append(text((BAR_LEFT + WIDTH - 90) / 2, height - 14, label, "middle"))
    return "\n".join([*out, "</svg>"]) + "\n"


def head(width, height, title):
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    yield f'<text x="{width / 2}" y="18" text-anchor="middle" font-size="14">{escape(title)}</text>'


def text(x, y, words, anchor):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{escape(str(words))}</text>'


def stroke(x1, y1, x2, y2, colour):
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'


def point(kind, x, y, colour):
    """Another shape for each line."""
    if kind % 3 == 0:
        return f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
    if kind % 3 == 1:
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
    return f'<polygon points="{x},{y - 5:.1f} {x + 5:.1f},{y + 4:.1f} {x - 5:.1f},{y + 4:.1f}" fill="{colour}"/>'


def short(value):
    """A figure in few characters."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def smoke():
    """Whether both kinds are well-formed, with figures that are awkward."""
    from xml.dom.minidom import parseString

    made = {"a & b": [(2, 1.0, 2.0, 3.0), (4000, 2.0, 2.0, 2.0)], "c": [(2, 0.0, 0.0, 0.0)]}
    for picture in (
        lines("made <up>", "x", "y", made),
        lines("made up", "x", "y", {"d": [(n + 1, 5, 5, 5) for n in range(50)]}, log_x=True, log_y=True),
        bars("made up", "x", {"e": (1, 2, 3), "f": (0.001, 0.001, 0.001)}, log=True),
        bars("made up", "x", {"g": (0, 0, 0)}),
    ):
        parseString(picture)
