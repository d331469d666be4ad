"""An HTML page taken apart, strictly: what a browser would silently mend fails."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """The page's elements; a tag that is not closed in its place raises `AssertionError`."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self._table = ""
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"<{tag}> has an attribute twice"
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = given.get("aria-label", "")
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> is no HTML")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.tables[self._table][-1][-1] += data + " "

    def all(self, attribute: str) -> list[str]:
        """Every value of an attribute."""
        return [given[attribute] for _, given in self.elements if attribute in given]

    def cells(self, table: str, first: str) -> str:
        """The row of a table that starts with these words."""
        rows = [row for row in self.tables[table] if row[0].split()[:1] == [first]]
        assert len(rows) == 1, (table, first)
        return " | ".join(" ".join(cell.split()) for cell in rows[0])
