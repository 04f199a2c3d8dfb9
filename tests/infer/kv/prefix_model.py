"""What the radix cache should hold, in the plainest form: a dict from every cached prefix to its last page."""

from dataclasses import dataclass

Prefix = tuple[int, ...]


@dataclass
class CachedPage:
    page: int
    last_used: int
    num_locks: int = 0


class PrefixModel:
    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.cached: dict[Prefix, CachedPage] = {}
        self.num_uses = 0

    def whole_prefixes(self, token_ids: Prefix) -> list[Prefix]:
        """The prefixes of 1, 2, ... whole pages."""
        return [token_ids[:stop] for stop in range(self.page_size, len(token_ids) + 1, self.page_size)]

    def match(self, token_ids: Prefix) -> list[Prefix]:
        """The cached prefixes, shortest first; they count as used."""
        self.num_uses += 1
        matched = []
        for prefix in self.whole_prefixes(token_ids):
            if prefix not in self.cached:
                break
            self.cached[prefix].last_used = self.num_uses
            matched.append(prefix)
        return matched

    def insert(self, token_ids: Prefix, pages: list[int]) -> int:
        """Returns how many tokens were cached before."""
        num_before = len(self.match(token_ids))
        for prefix, page in list(zip(self.whole_prefixes(token_ids), pages, strict=False))[num_before:]:
            self.cached[prefix] = CachedPage(page, self.num_uses)
        return num_before * self.page_size

    def lock(self, token_ids: Prefix, change: int = 1) -> None:
        """Of all whole pages of `token_ids`, which are cached; a change of -1 takes it back."""
        for prefix in self.whole_prefixes(token_ids):
            self.cached[prefix].num_locks += change

    def evict(self, num_pages: int) -> list[int]:
        """Page by page: the least recently used among those that are unlocked and that no cached page comes after."""
        evicted: list[int] = []
        while len(evicted) < num_pages:
            has_more = {prefix[: -self.page_size] for prefix in self.cached}
            ends = [
                (entry.last_used, prefix)
                for prefix, entry in self.cached.items()
                if not entry.num_locks and prefix not in has_more
            ]
            if not ends:
                break
            evicted.append(self.cached.pop(min(ends)[1]).page)
        return evicted

    @property
    def num_locked(self) -> int:
        return sum(entry.num_locks > 0 for entry in self.cached.values())
