"""Reads a page as a browser does."""

import html.parser


class Page(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.words = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)

    def attributes(self, name):
        return [have[name] for _, have in self.tags if name in have]
