"""The processes that train one policy together, and what they tell each other: the only importer of torch.distributed.

`torchrun` starts them and says by environment variables who is who; gloo carries their words. Everything is added up in
the order of the ranks, so R ranks compute the sums of one process with R threads, to the bit. What is exchanged beside
gradients is pickled: ranks trust each other and their network, as torchrun itself does.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor

from palus.errors import RankError
from palus.nn.parameters import tree_sum

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")
PATIENCE_S = 1800.0
"""How long a rank waits for the others. Who dies is noticed at once; others may compile, save, or play baselines."""
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
"""The environment variable by which gloo is told the network interface it listens on. Left alone it listens where the
machine's own name leads to, which on Debian and Ubuntu is the machine itself (127.0.1.1)."""


class Ranks:
    """One process of a run's. rank: its number, from 0; size: how many there are. waited: seconds in exchanges.

    local_size: how many of them share this machine. Every method but `close` is called by all ranks, in one order, and
    raises RankError where another one is gone.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_size: int = 1) -> None:
        self.rank, self.size, self.local_size, self.waited = rank, size, local_size, 0.0

    @classmethod
    def joined(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """Those that `torchrun` has started, this process among them; `ALONE` where it has started none."""
        size = int(environment.get("WORLD_SIZE", "1"))
        if size == 1 or "TORCHELASTIC_RUN_ID" not in environment:
            return ALONE
        ranks = cls(int(environment["RANK"]), size, int(environment.get("LOCAL_WORLD_SIZE", "1")))
        ranks._exchange(lambda: ranks._join(environment))
        return ranks

    def _join(self, environment: Mapping[str, str]) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        patience = timedelta(seconds=PATIENCE_S)
        store = next(rendezvous("env://", self.rank, self.size, timeout=patience))[0]
        if self.size > self.local_size and GLOO_INTERFACE not in environment:
            found = _interface(self._own_address(store, environment["MASTER_ADDR"], patience))
            os.environ.update({GLOO_INTERFACE: found} if found else {})
        meeting = PrefixStore(self._meet(store, time.monotonic() + PATIENCE_S), store)
        dist.init_process_group("gloo", store=meeting, rank=self.rank, world_size=self.size, timeout=patience)

    def _own_address(self, store: Store, meeting_place: str, patience: timedelta) -> str:
        """That of this machine on the network where the ranks meet; "" where all of them meet on loopback.

        meeting_place: torchrun's, a name or an address. On the machine that is meant by it, it may lead to loopback;
        ranks on other machines tell those there which address they found it at.
        """
        family, kind, protocol, _, place = socket.getaddrinfo(meeting_place, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as road:  # nothing is sent
            road.connect(place)
            own, there = (str(end[0]).partition("%")[0] for end in (road.getsockname(), road.getpeername()))
        here = ipaddress.ip_address(own).is_loopback
        store.set(f"address/{self.rank}", "" if here else there)
        if not here:
            return own
        told = [f"address/{rank}" for rank in range(self.size)]
        store.wait(told, patience)
        return max(str(store.get(rank), "utf-8") for rank in told)

    def _meet(self, store: Store, deadline: float) -> str:
        """A word that only those have agreed on who are alive now.

        torchrun's store outlives restarts, and with it the addresses of ranks that were killed: who reads one of them
        is refused, or waits for a caller who is gone. Rank 0 calls under a fresh word, the others answer by fresh words
        of their own, and what it repeats of them cannot be older than they are. Raises RuntimeError after the deadline.
        """
        own = uuid4().hex
        if self.rank == 0:
            answers = [f"{own}/{rank}" for rank in range(1, self.size)]
            store.set("meeting", own)
            store.wait(answers, timedelta(seconds=deadline - time.monotonic()))
            store.set(f"{own}/met", " ".join(str(store.get(answer), "utf-8") for answer in answers))
            return own
        while time.monotonic() < deadline:
            called = str(store.get("meeting"), "utf-8")
            store.set(f"{called}/{self.rank}", own)
            with suppress(RuntimeError):  # nobody is there of that word any more, or somebody is still missing
                store.wait([f"{called}/met"], timedelta(seconds=1))
                if own.encode() in store.get(f"{called}/met").split():
                    return called
                time.sleep(0.01)  # met without this rank, before it was restarted
        raise RuntimeError(f"rank 0 has not called within {PATIENCE_S:.0f} s")

    def gather(self, value: T) -> list[T]:
        """What every rank says, in their order; small values."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(found, value))
        return found

    def first(self, value: T, rank: int = 0) -> T:
        """What rank 0 says, or another one."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        said: list[Any] = [value]
        self._exchange(lambda: dist.broadcast_object_list(said, rank))
        return said[0]  # type: ignore[no-any-return]

    def sum(self, flat: Tensor) -> None:
        """Replace a vector, of equal length everywhere, by the sum over the ranks (`tree_sum`).

        Each rank adds up one slice of it: as many bytes as a ring's, 2 (R - 1) / R of the vector, in a fixed order.
        """
        if self.size > 1:
            self._exchange(lambda: self._sum(flat))

    def _sum(self, flat: Tensor) -> None:
        import torch.distributed as dist

        if self.size == 2:  # two have but one order
            dist.all_reduce(flat)
            return
        width = -(-len(flat) // self.size)
        mine, theirs = torch.zeros(self.size * width), torch.empty(self.size * width)
        mine[: len(flat)] = flat
        dist.all_to_all_single(theirs, mine)
        dist.all_gather(list(mine.view(self.size, width)), tree_sum(list(theirs.view(self.size, width))))
        flat.copy_(mine[: len(flat)])

    def _exchange(self, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        try:
            work()
        except RuntimeError as error:  # of gloo: "Connection closed by peer" and its like
            raise RankError(
                f"rank {self.rank} of {self.size} lost the others ({str(error).splitlines()[0]}); with --max-restarts "
                "torchrun starts all again, and --resume-if-there goes on from the last checkpoint"
            ) from error
        self.waited += time.perf_counter() - began

    def close(self) -> None:
        """Leave; others that still talk to this rank notice."""
        if self.size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()


def _interface(address: str) -> str | None:
    """The name of the network interface that has an address; None: none has, as where addresses are translated."""
    import psutil

    for name, ends in psutil.net_if_addrs().items():
        if any(end.address.partition("%")[0] == address for end in ends):
            return str(name)
    return None


ALONE = Ranks()
"""A run of one process, which has nobody to talk to."""
