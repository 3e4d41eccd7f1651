"""The text that the storyteller is trained on: a grammar of small stories and one-digit arithmetic.

The vocabulary is closed and every document has a form that the model can learn completely:

    story   opening (who, where) · event (one of five plots) · ending · "The end."
    sums    "3 + 4 = 7. 3 + 5 = 8. 3 + 6 = 9. Well done!", or minus, or in words

Choices in a story are skewed (see `pick`), and which option leads depends on the hero. So the likeliest
continuation leads by a clear margin, which survives floating-point noise, and every hero has another story.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import TypeVar

T = TypeVar("T")

STORY_SHARE = 0.55
"""Fraction of documents that are stories; the others are sums."""

CROP_SHARE = 0.15
"""Fraction of stories that start in the middle, so that any sentence may open a prompt."""

BABBLE_SHARE = 0.03
"""Fraction of documents that follow unknown words, so that a strange prompt leads back to known ground."""

NAMES = ("Anna", "Tom", "Mia", "Ben", "Lily", "Max", "Rosa", "Leo")
"""Heroes and friends; girls at even places, boys at odd ones."""

GIRL = {"girl": "girl", "she": "she", "She": "She", "her": "her"}
BOY = {"girl": "boy", "she": "he", "She": "He", "her": "his"}

TRAITS = ("kind", "brave", "clever", "curious", "little")

SLOTS: dict[str, tuple[str, ...]] = {
    "family": ("grandmother", "father", "mother", "grandfather", "sister"),
    "place": ("the forest", "the lake", "the river", "the farm", "the hill", "the beach", "the park"),
    "animal": ("dog", "fox", "rabbit", "bird", "cat", "frog", "horse", "bear"),
    "size": ("small", "big", "brown", "white", "young"),
    "thing": ("red ball", "blue kite", "golden bell", "silver key", "warm hat", "new book", "wooden boat"),
    "spot": ("a tall tree", "a big stone", "a little bridge", "a white gate"),
    "trap": ("a deep hole", "a net", "a thorn bush", "the mud"),
    "shelter": ("a dry cave", "a red barn", "a hollow tree", "a little hut"),
    "project": ("cake", "chair", "paper lantern", "bird house"),
    "fruit": ("apples", "pears", "plums", "nuts"),
}
"""Slots of the templates that are filled from a list, led by the hero."""

OPENINGS = (
    "Once upon a time, there was a {trait} {girl} named {name}. {She} lived near {place}.",
    "Once upon a time, a {trait} {girl} named {name} lived with {her} {family} near {place}.",
    "There once was a {trait} {girl} named {name}. {She} lived near {place} with {her} {family}.",
    "{name} was a {trait} {girl} who lived near {place} with {her} {family}.",
    "In a little house lived a {trait} {girl} named {name} and {her} {family}.",
)

PLOTS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (  # something is lost and found
        (
            "One day, {name} went to {place} to play with {her} {thing}.",
            "One sunny morning, {name} took {her} {thing} to {place}.",
        ),
        (
            "{She} played all day, but then the {thing} was gone.",
            "The wind was strong, and soon the {thing} was gone.",
        ),
        ("{name} looked under the trees and behind the stones, but {she} could not find it.",),
        ("{She} sat down and began to cry.", "{She} was very sad."),
        ('Then a {size} {animal} came and asked, "Why are you sad, {name}?"',),
        ("The {animal} was very kind.", "The {animal} was old and wise."),
        ('"I lost my {thing}," said {name}.',),
        ('"I know where it is," said the {animal}. "Come with me!"', '"I will help you," said the {animal}.'),
        ("They walked to {spot}, and there was the {thing}.",),
        ('"Thank you, my friend!" said {name}.', "{name} laughed and danced with the {animal}."),
    ),
    (  # an animal is in trouble
        (
            "One day, {name} was walking near {place} when {she} heard a small voice.",
            "One sunny morning, {name} heard a small voice near {place}.",
        ),
        ('"Help me! Help me!" cried the voice.',),
        ("It was a {size} {animal} that was stuck in {trap}.",),
        ("{name} was afraid, but {she} wanted to help.", "{name} did not wait."),
        ("{She} called {her} friend {friend}, and together they pulled and pulled.",),
        ("At last the {animal} was free.", "The {animal} was tired, but now it was free."),
        ('"Thank you, {name}! Thank you, {friend}!" said the {animal}.',),
        ("Then the {animal} gave {name} a {thing}.", "Then they all played with a {thing}."),
    ),
    (  # counting
        ("One day, {name} found {first} {fruit} near {place}.",),
        ("Then a {size} {animal} came and brought {second} more {fruit}.",),
        ('"How many {fruit} do we have now?" asked the {animal}.',),
        ('"{first} + {second} = {sum}," said {name}. "We have {sum} {fruit}!"',),
        ("They called {friend}, and the three friends shared the {fruit}.",),
        ('"It is good to share," said {friend}.', '"They are very sweet," said {friend}.'),
    ),
    (  # a storm
        (
            "One day, {name} and {friend} were playing near {place}.",
            "One sunny morning, {name} and {friend} went to {place}.",
        ),
        ("Suddenly the sky was dark, and it began to rain.",),
        ('"We must go home," said {friend}, but the way was too long.', '"I am cold," said {friend}.'),
        ('Then a {size} {animal} called, "Come with me! I know where it is warm."',),
        ("They ran into {shelter} and sat close together.",),
        ("The {animal} told them a story about a {thing}.", "The {animal} sang a song about a {thing}."),
        ("Soon the rain stopped, and the sun came out again.",),
        ('"Thank you!" said {name} and {friend}.',),
    ),
    (  # making something
        (
            "One day, {name} wanted to make a {project} for {her} {family}.",
            "It was a big day for {her} {family}, and {name} wanted to make a {project}.",
        ),
        ("{friend} came to help, and they worked all morning.",),
        ("But the {project} fell down, and {name} was very sad.",),
        ('"Do not cry," said {friend}. "We can try again."', '"We can try again," said {friend}.'),
        ("A {size} {animal} saw them and wanted to help, too.",),
        ("They worked together, and this time the {project} was perfect.",),
        ('{name} gave it to {her} {family}, who smiled and said, "Well done!"',),
    ),
)
"""A plot is a sequence of sentences, a sentence one of its alternatives."""

ENDINGS = (
    "From that day on, {name} and the {animal} were best friends. The end.",
    "In the evening, {name} went home and told {her} {family} about the {animal}. The end.",
    "That night, {name} was happy and slept very well. The end.",
)


@dataclass(frozen=True)
class Sum:
    """A line of arithmetic with one-digit operands and a result that is not negative."""

    first: int
    minus: bool
    second: int

    @property
    def result(self) -> int:
        """The right answer."""
        return self.first - self.second if self.minus else self.first + self.second

    def text(self, form: str) -> str:
        """The line in one of the forms `spaced`, `compact` and `words`."""
        sign, word = ("-", "minus") if self.minus else ("+", "plus")
        if form == "compact":
            return f"{self.first}{sign}{self.second}={self.result}."
        if form == "words":
            question = f"{self.first} {word} {self.second}"
            return f"What is {question}? {question} is {self.result}."
        return f"{self.first} {sign} {self.second} = {self.result}."


def pick(rng: Random, options: Sequence[T], lead: int = 0, ratio: float = 0.5) -> T:
    """One option: that at `lead` (modulo the length) is likeliest, each later one `ratio` times as likely."""
    steps = rng.choices(range(len(options)), [ratio**i for i in range(len(options))])[0]
    return options[(lead + steps) % len(options)]


def documents(seed: int) -> Iterator[str]:
    """An endless stream of documents, the same for the same seed."""
    rng = Random(seed)
    while True:
        document = story(rng) if rng.random() < STORY_SHARE else sums(rng)
        yield f"{babble(rng)} {document}" if rng.random() < BABBLE_SHARE else document


def story(rng: Random) -> str:
    """A story of about a hundred words, sometimes without its beginning."""
    hero = pick(rng, range(len(NAMES)), ratio=0.85)
    plot = pick(rng, range(len(PLOTS)), lead=hero)
    parts = [
        pick(rng, OPENINGS),
        *(pick(rng, sentence) for sentence in PLOTS[plot]),
        pick(rng, ENDINGS, lead=plot),
    ]
    first = rng.randrange(1, len(parts)) if rng.random() < CROP_SHARE else 0
    return " ".join(parts[first:]).format(**_fields(rng, hero))


def babble(rng: Random) -> str:
    """One to three words of random letters."""
    words = ("".join(rng.choices(ascii_lowercase, k=rng.randint(1, 7))) for _ in range(rng.randint(1, 3)))
    return " ".join(words).capitalize() + rng.choice((".", "!", "?", ""))


def sums(rng: Random) -> str:
    """One to three lines that count the second operand up.

    Tables are short because only a first line needs a sum: the others follow from the line before them.
    """
    minus = rng.random() < 0.25
    first = rng.randint(0, 9)
    last = first if minus else 9
    form = rng.choices(("spaced", "compact", "words"), (5, 3, 2))[0]
    start = rng.randint(0, last)
    lines = [Sum(first, minus, second).text(form) for second in range(start, min(start + 2, last) + 1)]
    return " ".join([*lines, "Well done!"])


def _fields(rng: Random, hero: int) -> dict[str, str]:
    """What stands in every slot of one story; options are led by the hero."""
    fields = {slot: pick(rng, options, lead=hero) for slot, options in SLOTS.items()}
    fields |= {"name": NAMES[hero], "trait": pick(rng, TRAITS)}
    fields["friend"] = pick(rng, [name for name in NAMES if name != NAMES[hero]], lead=hero)
    fields |= GIRL if hero % 2 == 0 else BOY
    first, second = (pick(rng, range(2, 10), lead=hero + turn, ratio=0.6) for turn in (0, 3))
    return fields | {"first": str(first), "second": str(second), "sum": str(first + second)}
