"""Which served scores still wait for their label: found again by an id, or by the features, in bounded memory."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Hashable
from typing import Any

from streamcal.arrays import check_whole


class Served:
    """Gives every served score a slot, and finds it again for its label: at most ``memory`` wait (slots 1..memory).

    By ``id`` where one is given, else by the names and values of the features of x (or x itself, if it is no dict but a text):
    equal ones in the same order are the same, whatever object holds them. The object itself would not do: River's own evaluation
    predicts with a copy of x and learns with x, an x that was stored in between is another object, and once x is gone a new dict
    can have its id(). A nan is found again as long as it is the same object, as in a copy. Values that no dict can have as keys
    (lists, arrays) are found by their pickle, and an x that has none is not remembered.

    Features that are served again while they wait form a queue: first served, first labelled. So where features repeat exactly
    and labels overtake each other or never come, give ids. An id that is served again takes its old slot, and so does the same
    object x if nothing was served in between (predict_one after predict_proba_one).

    A score waits for the next ``memory`` ones at most; then it is dropped and counted in ``forgotten``. The oldest one waits
    longest: slots are given in turn, from the first again when nobody waits. O(features) per event. Size: about 200
    bytes + 16 per feature + the values themselves (24 for a float) for each that waits; with an id, 160 and the id.

    >>> served = Served(2)
    >>> [served.remember({"a": p}) for p in (0.1, 0.2, 0.3)]
    [1, 2, 1]
    >>> served.take({"a": 0.1}), served.take({"a": 0.3}), len(served), served.forgotten
    (0, 1, 1, 1)
    """

    def __init__(self, memory: int) -> None:
        self.memory = check_whole("memory", memory, 0)
        self.found = self.forgotten = 0
        self._keys: list[Any] = [None]  # by slot
        self._indexed = 0  # of them are not None
        self._slots: dict[Any, Any] = {}  # by key: a slot, or a queue of them
        # The last one is indexed when another one comes: a label that comes at once needs neither its hash nor the dict.
        self._last: Any = None
        self._last_key: Any = None
        self._last_slot = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._indexed + (self._last_key is not None)

    def remember(self, x: Any, id: Hashable | None = None) -> int:
        """The slot of the score that is served for x now; 0 if nothing is to be remembered."""
        if id is not None:
            _check_id(id)
        if not self.memory:
            return 0
        try:  # the same lines as in take: a call would cost as much as they do
            key = (*x, *x.values()) if id is None else (id,)
        except AttributeError:
            key = x
        slot = 1
        if self._last_key is not None:
            if (x is self._last or id is not None) and _same(key, self._last_key):
                return self._last_slot
            self._index_last()
        if self._slots:
            if id is not None and key in self._slots:
                return int(self._slots[key])
            slot = self._next_slot()
        self._last, self._last_key, self._last_slot = x, key, slot
        return slot

    def take(self, x: Any, id: Hashable | None = None) -> int:
        """The slot of the score that was served for x, which then waits no longer; 0 if there is none."""
        if id is not None:
            _check_id(id)
        last = self._last_key
        if last is None and not self._slots:
            return 0
        try:
            key = (*x, *x.values()) if id is None else (id,)
        except AttributeError:
            key = x
        if last is not None:
            if not self._slots and _same(key, last):
                self._last = self._last_key = None
                self.found += 1
                return self._last_slot
            self._index_last()
        try:
            slot = self._pop(key)
        except TypeError:
            slot = self._pop(_pickled(key))
        self.found += slot > 0
        return slot

    def drop(self, x: Any, id: Hashable | None = None) -> None:
        """Let the score of x wait no longer, though nothing is learned of it: its label is missing."""
        if self.take(x, id):
            self.found -= 1

    def _next_slot(self) -> int:
        """The slot after the last one; who still waits there is dropped."""
        slot = self._last_slot + 1 if self._last_slot < self.memory else 1
        if slot < len(self._keys) and self._keys[slot] is not None:
            self._pop(self._keys[slot])
            self.forgotten += 1
        return slot

    def _index_last(self) -> None:
        """Put the last one into the dict."""
        key, slot = self._last_key, self._last_slot
        self._last = self._last_key = None
        if slot == len(self._keys):
            self._keys.append(None)
        try:
            first = self._slots.setdefault(key, slot)
        except TypeError:
            key = _pickled(key)
            if key is None:
                return
            first = self._slots.setdefault(key, slot)
        self._keys[slot] = key
        self._indexed += 1
        if type(first) is not int:
            first.append(slot)
        elif first != slot:
            self._slots[key] = deque([first, slot])

    def _pop(self, key: Any) -> int:
        slot: Any = self._slots.pop(key, 0)
        if type(slot) is not int:
            queue, slot = slot, slot.popleft()
            self._slots[key] = queue if len(queue) > 1 else queue[0]
        if slot:
            self._keys[slot] = None
            self._indexed -= 1
        return int(slot)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do not hold on to anybody's x."""
        return {**self.__dict__, "_last": None}


def _check_id(id: Hashable) -> None:
    try:
        hash(id)
    except TypeError:
        raise ValueError(f"id must be hashable, such as a text or a number, got {id!r:.80}") from None


def _same(key: Any, other: Any) -> bool:
    try:
        return bool(key == other)
    except (TypeError, ValueError):  # arrays do not say yes or no
        return False


def _pickled(key: Any) -> bytes | None:
    try:
        return pickle.dumps(key)
    except Exception:  # anything can stand in x, and pickling it can raise anything
        return None
