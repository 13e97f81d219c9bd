#!/usr/bin/env python3
"""Writes text of many scripts, always the same for the same size: make_text.py OUTPUT [MEGABYTES].

Half of it reads like English prose and code, the rest draws on other scripts, numbers, punctuation,
white space of all kinds, contractions, combining marks, and runs of arbitrary code points.
"""
import random
import sys

ENGLISH = ("the of and to in a is that for it as was with be by on not he I this are or his from at "
           "which but have an had they you were their one all we can her has there been if more "
           "when will would who so no thread loom weft warp shuttle pattern weaver cloth machine "
           "learning gradient transformer attention language model training Parameter Optimizer "
           "something everything understanding international communication").split()
SUFFIXES = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "\u2019s", "'\u017f", "ing", "ed"]
SCRIPTS = [(0x400, 0x44F), (0x391, 0x3C9), (0x5D0, 0x5EA), (0x620, 0x64A), (0x905, 0x939),
           (0xE01, 0xE2E), (0x4E00, 0x9FFF), (0x3041, 0x3096), (0x30A1, 0x30FF), (0xAC00, 0xD7A3),
           (0xC0, 0x24F), (0x1E00, 0x1EFF), (0x10A0, 0x10FF), (0x13A0, 0x13F5), (0x1F600, 0x1F64F),
           (0x20000, 0x20400), (0x1D400, 0x1D7FF), (0x0660, 0x0669), (0x2150, 0x2189)]
SPACES = ["\n", "\n\n", "  ", "    ", "\t", "\r\n", " \n", "\u00a0", "\u3000", "\u2003", "\n  \n",
          "\u0085", "\v", "\f"]
PUNCTUATION = list(".,;:!?()[]{}<>/\\|@#$%^&*-+=_`~'\"") + ["...", "--", "://", "\u2014", "\u3002",
                                                          "\u300c", "\u2026", "\u20ac", "\u00b7"]


def word(rng):
    first, last = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))


def prose(rng):
    words = []
    for _ in range(rng.randint(5, 60)):
        text = rng.choice(ENGLISH)
        if rng.random() < 0.1:
            text = text.capitalize()
        if rng.random() < 0.06:
            text += rng.choice(SUFFIXES)
        if rng.random() < 0.12:
            text += rng.choice(PUNCTUATION)
        if rng.random() < 0.04:
            text = str(rng.randint(0, 10 ** rng.randint(1, 9)))
        words.append(text)
    return " ".join(words)


def code(rng):
    depth = rng.randint(0, 6)
    names = [rng.choice(ENGLISH) + rng.choice(["", "_", "2", "Name"]) for _ in range(4)]
    return " " * 4 * depth + "{}.{}({}[{}] + {});".format(*names, rng.randint(0, 99))


def foreign(rng):
    gap = rng.choice([" ", " ", "", "\u3001"])
    return gap.join(word(rng) for _ in range(rng.randint(3, 30)))


def marks(rng):
    return "".join(rng.choice("aeiounAEIOUN") + chr(rng.randint(0x300, 0x36F)) * rng.randint(0, 2)
                   for _ in range(rng.randint(2, 20)))


def anything(rng):
    points = (rng.randint(0, 0x10FFFF) for _ in range(rng.randint(1, 20)))
    return "".join(chr(p) for p in points if not 0xD800 <= p <= 0xDFFF)


def small(rng):
    points = (rng.randint(0, 0x17FF) for _ in range(rng.randint(1, 20)))
    return "".join(map(chr, points))


def spaces(rng):
    return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 6)))


def repeats(rng):
    return rng.choice(["=", "-", " ", "a", "!", "\n", "0", "\u4e00"]) * rng.randint(2, 200)


def main():
    path = sys.argv[1]
    size = int(float(sys.argv[2] if len(sys.argv) > 2 else 100) * 1e6)
    rng = random.Random(20240)
    makers = [prose] * 40 + [code] * 12 + [foreign] * 26 + [spaces] * 8 + [marks] * 4 + [
        small] * 4 + [anything] * 3 + [repeats] * 3
    with open(path, "wb") as file:
        written = 0
        while written < size:
            parts = [rng.choice(makers)(rng) + rng.choice(["\n", "\n", " ", ""]) for _ in range(200)]
            chunk = "".join(parts).encode()
            if written + len(chunk) > size:
                chunk = chunk[:size - written].decode(errors="ignore").encode()
                file.write(chunk)
                break
            written += file.write(chunk)


main()
