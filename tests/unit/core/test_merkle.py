"""Test trees of RFC 6962 with the vectors of certificate-transparency, and every size up to 130."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.chain import merkle
from evenshare_core.chain.merkle import Place, ProofError

# The sample tree of certificate-transparency, which other logs use in their tests too.
ENTRIES = [
    bytes.fromhex(entry)
    for entry in (
        *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
L0 = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
L1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
L4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
N10 = "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
N11 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
N12 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
N13 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
N20 = "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
N21 = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
# (leaf, size): audit path.
PATHS = {
    (0, 1): [],
    (0, 8): [L1, N11, N21],
    (5, 8): [L4, N13, N20],
    (2, 3): [N10],
    (1, 5): [L0, N11, L4],
}
# (first, second): proof.
GROWTH = {
    (1, 1): [],
    (1, 8): [L1, N11, N21],
    (6, 8): [N12, N13, N20],
    (2, 5): [N11, L4],
}
MOST = 130


class Tree:
    """A tree that keeps its complete subtrees in memory; leaves are added one by one."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.nodes: dict[Place, bytes] = {}
        self.leaves = [merkle.leaf_hash(entry) for entry in entries]
        for size, leaf in enumerate(self.leaves):
            self.nodes |= merkle.completed(size, [leaf], self.read)

    def read(self, places: Sequence[Place]) -> list[bytes]:
        return [self.nodes[place] for place in places]

    def root(self, size: int) -> bytes:
        return merkle.root(size, self.read)


def mth(leaves: Sequence[bytes]) -> bytes:
    """Return the MTH of RFC 6962, recomputed from all leaves."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return merkle.node_hash(mth(leaves[:half]), mth(leaves[half:]))


@cache
def sample() -> Tree:
    return Tree(ENTRIES)


@cache
def big() -> Tree:
    return Tree([b"%d" % number for number in range(MOST)])


class TestKnownTree:
    @pytest.mark.parametrize(("size", "root"), ROOTS.items())
    def test_matches_known_roots(self, size: int, root: str) -> None:
        assert sample().root(size).hex() == root

    @pytest.mark.parametrize(("asked", "path"), PATHS.items())
    def test_matches_known_audit_paths(self, asked: tuple[int, int], path: list[str]) -> None:
        found = merkle.inclusion_proof(*asked, sample().read)
        assert [step.hex() for step in found] == path
        merkle.verify_inclusion(
            sample().leaves[asked[0]], *asked, found, bytes.fromhex(ROOTS[asked[1]])
        )

    @pytest.mark.parametrize(("asked", "path"), GROWTH.items())
    def test_matches_known_consistency_proofs(
        self, asked: tuple[int, int], path: list[str]
    ) -> None:
        found = merkle.consistency_proof(*asked, sample().read)
        assert [step.hex() for step in found] == path
        first, second = (bytes.fromhex(ROOTS[size]) for size in asked)
        merkle.verify_consistency(*asked, found, first, second)


class TestAllSizes:
    def test_root_matches_definition(self) -> None:
        for size in range(1, MOST + 1):
            assert big().root(size) == mth(big().leaves[:size])

    def test_batch_size_does_not_change_tree(self) -> None:
        whole = big()
        for batch in (2, 3, 7, 64, MOST):
            tree = Tree([])
            for size in range(0, MOST, batch):
                leaves = whole.leaves[size : size + batch]
                tree.nodes |= merkle.completed(size, leaves, tree.read)
            assert tree.nodes == whole.nodes

    def test_proves_inclusion_of_every_leaf(self) -> None:
        tree = big()
        for size in range(1, MOST + 1):
            root = tree.root(size)
            for index in range(size):
                path = merkle.inclusion_proof(index, size, tree.read)
                assert len(path) <= (size - 1).bit_length()
                merkle.verify_inclusion(tree.leaves[index], index, size, path, root)

    def test_proves_consistency_with_every_smaller_tree(self) -> None:
        tree = big()
        roots = [tree.root(size) for size in range(MOST + 1)]
        for second in range(MOST + 1):
            for first in range(second + 1):
                path = merkle.consistency_proof(first, second, tree.read)
                merkle.verify_consistency(first, second, path, roots[first], roots[second])

    def test_adds_leaf_with_log_n_hashes(self) -> None:
        asked: list[Place] = []

        def read(places: Sequence[Place]) -> list[bytes]:
            asked.extend(places)
            return [b"\0" * 32 for _ in places]

        new = merkle.completed(2**20 - 1, [b"\1" * 32], read)
        assert len(new) == 21
        assert len(asked) == 20


SIZES = st.integers(1, MOST)
DAMAGES = st.sampled_from(["flip", "drop", "add", "swap"])


def damaged(path: Sequence[bytes], damage: str, at: int) -> list[bytes]:
    """Return the path with one change, or unchanged if there is nothing to change."""
    steps = list(path)
    at = at % len(steps) if steps else 0
    if damage == "add":
        steps.insert(at, b"\7" * 32)
    elif steps and damage == "flip":
        steps[at] = bytes([steps[at][0] ^ 1]) + steps[at][1:]
    elif steps and damage == "drop":
        del steps[at]
    elif len(steps) > 1:
        steps[at], steps[at - 1] = steps[at - 1], steps[at]
    return steps


class TestForgedProof:
    @given(SIZES, st.integers(0, MOST), DAMAGES, st.integers(0, 9))
    def test_rejects_damaged_inclusion_proof(
        self, size: int, index: int, damage: str, at: int
    ) -> None:
        tree, index = big(), index % size
        path = merkle.inclusion_proof(index, size, tree.read)
        forged = damaged(path, damage, at)
        if forged != list(path):
            with pytest.raises(ProofError):
                merkle.verify_inclusion(tree.leaves[index], index, size, forged, tree.root(size))

    @given(SIZES, SIZES, st.integers(0, MOST - 1), st.integers(0, MOST - 1))
    def test_rejects_proof_of_other_leaf_index_or_tree(
        self, size: int, other: int, index: int, elsewhere: int
    ) -> None:
        tree, index = big(), index % size
        path, root = merkle.inclusion_proof(index, size, tree.read), tree.root(size)
        if elsewhere != index:
            with pytest.raises(ProofError):
                merkle.verify_inclusion(tree.leaves[elsewhere], index, size, path, root)
            with pytest.raises(ProofError):
                merkle.verify_inclusion(tree.leaves[index], elsewhere, size, path, root)
        if other != size:
            with pytest.raises(ProofError):
                merkle.verify_inclusion(tree.leaves[index], index, size, path, tree.root(other))

    @given(SIZES, SIZES, DAMAGES, st.integers(0, 9))
    def test_rejects_damaged_consistency_proof(
        self, one: int, other: int, damage: str, at: int
    ) -> None:
        tree, (first, second) = big(), sorted([one, other])
        path = merkle.consistency_proof(first, second, tree.read)
        forged = damaged(path, damage, at)
        if forged != list(path):
            with pytest.raises(ProofError):
                merkle.verify_consistency(
                    first, second, forged, tree.root(first), tree.root(second)
                )

    @given(SIZES, SIZES, st.integers(0, MOST - 1))
    def test_rejects_log_with_altered_entry(self, one: int, other: int, altered: int) -> None:
        """A log with one changed entry cannot prove that it continues the first log."""
        tree, (first, second) = big(), sorted([one, other])
        entries = [b"%d" % number for number in range(second)]
        entries[altered % first] += b"x"
        again = Tree(entries)
        path = merkle.consistency_proof(first, second, again.read)
        with pytest.raises(ProofError):
            merkle.verify_consistency(first, second, path, tree.root(first), again.root(second))
        assert again.root(first) != tree.root(first)

    def test_rejects_impossible_sizes_and_hashes(self) -> None:
        root = sample().root(8)
        for index, size in ((8, 8), (-1, 8), (0, 0)):
            with pytest.raises(ProofError, match="has no leaf"):
                merkle.verify_inclusion(root, index, size, [], root)
            with pytest.raises(ValueError, match="has no leaf"):
                merkle.inclusion_proof(index, size, sample().read)
        with pytest.raises(ProofError, match="does not begin"):
            merkle.verify_consistency(8, 7, [], root, root)
        with pytest.raises(ValueError, match="does not begin"):
            merkle.consistency_proof(8, 7, sample().read)
        with pytest.raises(ProofError, match="32 bytes"):
            merkle.verify_inclusion(root, 0, 8, [b"short"], root)
        with pytest.raises(ProofError, match="differ"):
            merkle.verify_consistency(8, 8, [], root, root[::-1])
        with pytest.raises(ProofError, match="differ"):
            merkle.verify_consistency(0, 8, [], root, root)
        with pytest.raises(ProofError, match="must be empty"):
            merkle.verify_consistency(8, 8, [root], root, root)
