"""The demo's text: the help topics that every Python ships, as integers."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

# A character rarer than this is seen too seldom to be learned.
_MIN_COUNT = 12
_PROSE_SHARE = 0.93
_TYPED = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
    }
)


def help_topics() -> str:
    """The prose in the interpreter's help topics.

    Returns:
        The paragraphs that `help("topics")` can show, in alphabetical order
        of the topics, each on one line with an empty line after it. Program
        code, grammar, tables, and paragraphs with rare characters are left
        out.
    """
    # Half a megabyte, which nothing but the demo needs.
    from pydoc_data.topics import topics

    paragraphs = [
        " ".join(paragraph.translate(_TYPED).split())
        for name in sorted(topics)
        for paragraph in topics[name].split("\n\n")
    ]
    # Some paragraphs stand in several topics.
    prose = list(dict.fromkeys(filter(_is_prose, paragraphs)))
    counts = collections.Counter("".join(prose))
    return "\n\n".join(
        paragraph
        for paragraph in prose
        if all(counts[character] >= _MIN_COUNT for character in paragraph)
    )


def _is_prose(paragraph: str) -> bool:
    plain = sum(char.isalpha() or char in " ,.'" for char in paragraph)
    return (
        len(paragraph) > 60
        and paragraph.isascii()
        and plain > _PROSE_SHARE * len(paragraph)
    )


def split(text: str, validation_share: float = 0.1) -> tuple[str, str]:
    """Cuts `text` into a part to train on and a part to validate on.

    Args:
        text: Paragraphs with empty lines between them.
        validation_share: Share of the text kept for validation. Defaults to
            0.1.

    Returns:
        The two parts. The cut is at the start of a paragraph where there is
        one before it.
    """
    cut = int(len(text) * (1.0 - validation_share))
    paragraph = text.rfind("\n\n", 0, cut)
    if paragraph >= 0:
        cut = paragraph + 2
    return text[:cut], text[cut:]


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The characters of a text, each with a number.

    Example:
    >>> alphabet = Alphabet.of("abracadabra")
    >>> alphabet.encode("cab").tolist()
    [2, 0, 1]
    >>> alphabet.decode([3, 0, 1])
    'dab'

    Args:
        characters: All characters, sorted; a character's place is its number.
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> "Alphabet":
        """The alphabet of `text`."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The numbers of the characters of `text`, int32, shape `(n,)`.

        Raises:
            ValueError: If a character is not in the alphabet.
        """
        number = {char: i for i, char in enumerate(self.characters)}
        unknown = sorted(set(text) - number.keys())
        if unknown:
            raise ValueError(
                "`encode` takes text made of the alphabet's characters. "
                f"Received: {unknown} besides. Make the alphabet of the whole "
                "text first."
            )
        return np.array([number[char] for char in text], "int32")

    def decode(self, numbers: Sequence[int] | np.ndarray) -> str:
        """The text that `encode` would turn into `numbers`."""
        return "".join(self.characters[number] for number in numbers)


@dataclasses.dataclass(frozen=True)
class Windows:
    """Stretches of a text, and the same one character later.

    Args:
        inputs: int32, shape `(windows, length)`.
        targets: int32, same shape: for each character, the one after it.
    """

    inputs: np.ndarray
    targets: np.ndarray


def windows_at(numbers: np.ndarray, starts: np.ndarray, length: int) -> Windows:
    """The windows of `length` characters that begin at `starts`."""
    stretch = numbers[starts[:, None] + np.arange(length + 1)]
    return Windows(inputs=stretch[:, :-1], targets=stretch[:, 1:])


def random_windows(
    numbers: np.ndarray, count: int, length: int, rng: np.random.Generator
) -> Windows:
    """`count` windows from places that `rng` draws."""
    starts = rng.integers(0, len(numbers) - length, count)
    return windows_at(numbers, starts, length)


def all_windows(numbers: np.ndarray, length: int) -> Windows:
    """Windows side by side that cover `numbers`, but for a rest at the end."""
    starts = np.arange(0, len(numbers) - length, length)
    return windows_at(numbers, starts, length)


def frequency_loss(
    train: np.ndarray, validation: np.ndarray, characters: int
) -> float:
    """Loss on `validation` of a guess by how often a character is in `train`.

    This is what a model scores that has learned nothing but the frequencies
    (the unigram cross-entropy).

    Args:
        train: Numbers to count, shape `(n,)`.
        validation: Numbers to guess, shape `(m,)`.
        characters: Size of the alphabet.

    Returns:
        Mean of the negative log likelihood, in nats a character. Each count
        is one higher, so that a character not seen in `train` costs a finite
        amount.
    """
    counts = np.bincount(train, minlength=characters) + 1.0
    log_share = np.log(counts / counts.sum())
    return float(-log_share[validation].mean())
