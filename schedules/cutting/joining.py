"""Which of the kernels of a program become one: small ones that are near each other, where nothing stands between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tedsl.lang.tensor import Tensor

__all__ = ["Kind", "Near"]

MOST_JOINED = 4  # groups that become one
FEW = 4  # groups that read a result: what more of them read is no matter of theirs
NEAR = 48  # groups between two that are looked at before they count as far apart

Kind = tuple[object, ...]


class Near:
    """The groups on the way from the first to the last, and which small ones are joined."""

    def __init__(
        self, reads: Mapping[str, set[str]], order: Sequence[str], kinds: Mapping[str, Kind],
        tensors: Mapping[str, set[Tensor]],
    ) -> None:  # fmt: skip
        self.joined: list[tuple[str, str]] = []
        self._tensors = tensors
        self._now = {group: group for group in order}
        self._members = {group: [group] for group in order}
        self._kinds = {group: [kind] for group, kind in kinds.items()}
        self._reads = {group: set(read) for group, read in reads.items()}
        self._readers: dict[str, set[str]] = {group: set() for group in order}
        for group, read in reads.items():
            for other in read:
                self._readers[other].add(group)
        self._first = {group: k for k, group in enumerate(order)}
        self._last = dict(self._first)
        self._seen: dict[Tensor, str] = {}  # the last small result that was read off a tensor

    def visit(self, group: str) -> None:
        """Join a group with small ones before it, the nearest first."""
        if group not in self._kinds:
            return
        near = {g for g in self._reads[group] if g in self._kinds and len(self._readers[g]) <= FEW}
        near |= {self._now[self._seen[t]] for t in self._tensors[group] if t in self._seen}
        for other in sorted(near, key=lambda g: -self._last[g]):
            self._join(self._now[other], self._now[group])
        self._seen.update(dict.fromkeys(self._tensors[group], group))

    def _join(self, a: str, b: str) -> None:
        kinds = self._kinds[a] + self._kinds[b]
        alike = len(set(kinds)) < len(kinds)
        if a == b or alike or len(kinds) > MOST_JOINED or not self._are_free(a, b):
            return
        self.joined.append((a, b))
        self._kinds[a] = kinds
        del self._kinds[b]
        self._now.update(dict.fromkeys(self._members[b], a))
        self._members[a] += self._members.pop(b)
        self._first[a] = min(self._first[a], self._first[b])
        self._last[a] = max(self._last[a], self._last[b])
        for there, back in ((self._reads, self._readers), (self._readers, self._reads)):
            for other in there.pop(b):
                back[other].discard(b)
                if other != a:
                    back[other].add(a)
                    there[a].add(other)
            there[a].discard(b)

    def _are_free(self, a: str, b: str) -> bool:
        """Whether neither reads what is made of the other's results by a third."""
        return not self._leads(a, b) and not self._leads(b, a)

    def _leads(self, a: str, b: str) -> bool:
        """Whether a third group, or more, lead from one to another; what is far apart counts as if."""
        pending = [g for g in self._readers[a] if g != b]
        found = set(pending)
        for group in pending:
            if len(found) > NEAR:
                return True
            if self._first[group] < self._last[b]:
                fresh = self._readers[group] - found
                if b in fresh:
                    return True
                found |= fresh
                pending += fresh
        return False
