"""All the parts of a finished run in order, as the writers of the formats read them."""

from __future__ import annotations

from collections.abc import Iterator

from elmo.embed.dump.part_file import Part
from elmo.embed.dump.part_folder import PartsFolder


class Parts:
    """The parts, opened one at a time, and what they hold together."""

    def __init__(self, folder: PartsFolder, num_blocks: int) -> None:
        self.plan, self.layout = folder.plan, folder.layout
        self._paths = [folder.part_path(number) for number in range(num_blocks)]
        self.num_lines = self.num_rows = 0
        self._bytes: dict[str, int] = {}
        for part in self:
            self.num_lines += part.num_lines
            self.num_rows += part.num_rows
            for name, section in part.sections.items():
                self._bytes[name] = self._bytes.get(name, 0) + section["bytes"]

    def __iter__(self) -> Iterator[Part]:
        return (Part(path) for path in self._paths)

    def num_bytes(self, section: str) -> int:
        """Bytes of one section in all parts."""
        return self._bytes.get(section, 0)
