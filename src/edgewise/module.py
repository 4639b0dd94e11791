"""The compiled model: a plain `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, overload

import torch

from edgewise.errors import caller
from edgewise.execution import Execution
from edgewise.inputs.errors import BadInput
from edgewise.inputs.kinds import InputLike, dense, ragged
from edgewise.inputs.prepare import batched_inputs, check_alike
from edgewise.inputs.read import check_numbers
from edgewise.kernels.attention.errors import NoTransform
from edgewise.language import nodes
from edgewise.language.program import FactLike
from edgewise.physical.data import Data
from edgewise.physical.demand.wanted import BadWant, WantLike, read_want
from edgewise.physical.lowering import to_device
from edgewise.physical.output import Returned
from edgewise.physical.plan import untraced
from edgewise.physical.prepare import build_step
from edgewise.physical.relation import Relation
from edgewise.physical.samples.padding import padded_steps
from edgewise.physical.sampling import BadBatches

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.batches import Batches, SampleBatches
    from edgewise.distributed import Shards
    from edgewise.distributed.partition import PartitionLike
    from edgewise.explain import Explanation
    from edgewise.grow import Growing
    from edgewise.profile import Profile
    from edgewise.reference.why import Why
    from edgewise.update import Updating
    from edgewise.viz import Picture


class Model(Execution):
    """A program compiled for one of its relations, or for several, which it returns by name.

    `model(x=...)` where nothing needs grounding; `data = model.ground(edge=...)` once and
    `model(data, x=...)` at every step where something does.

    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.I, V.J))]).compile(R.h)
    >>> data = model.ground(edge=[(0, 1), (0, 2)])
    >>> model(data, x=torch.tensor([1.0, 10.0, 100.0]))
    <h: 1 rows h(0); values (1,)>
    """

    def save(self, path: str | Path) -> None:
        """Write weights, rules and options to one file that `edgewise.load` reads.

        >>> import tempfile
        >>> import edgewise
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).compile(R.h, seed=0)
        >>> model.save(path := tempfile.mkdtemp() + "/model.edgewise")
        >>> list(edgewise.load(path).state_dict())
        ['w']
        """
        import_module("edgewise.save").save(self, path)

    @staticmethod
    def load(path: str | Path) -> Model:
        """The model that `save` wrote.

        >>> import tempfile
        >>> from edgewise import Program, R, V
        >>> Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h).save(
        ...     path := tempfile.mkdtemp() + "/model"
        ... )
        >>> Model.load(path)
        Model(h from x: 1 rule, 1 parameters
          h.x  ()
        )
        """
        return import_module("edgewise.save").load(path)

    def ground(
        self,
        *unnamed: Never,
        facts: Iterable[FactLike] | ragged | None = None,
        want: WantLike | None = None,
        mesh: DeviceMesh | None = None,
        partition: PartitionLike | None = None,
        nodes: int | None = None,
        **inputs: InputLike,
    ) -> Data:
        """Check the inputs, join the rules and build the layouts: once, for any number of steps.

        With `want`, the rows of the outputs that steps compute: see `model(..., want=...)`. With
        one axis of a `mesh`, those of the nodes of this rank: `partition` is "metis",
        "contiguous" or a rank for each node, `nodes` their number where keys do not show it; see
        `edgewise.distributed.PartitionedData`.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> data = model.ground(edge=[(0, 1), (1, 2)])
        >>> model(data, x=torch.tensor([1.0, 2.0, 3.0])).data.tolist()
        [1.0, 2.0]
        """
        if unnamed:
            self._refuse_unnamed(unnamed[0])
        if mesh is not None:
            self._refuse_on_mesh(facts, want)
            made = import_module("edgewise.distributed.partitioned_data").partitioned
            found: Data = made(self, mesh, partition, nodes, inputs)
            return found
        named: dict[str, Any] = {
            "partition": partition,
            "nodes": nodes,
        }  # relations, where there is no mesh
        inputs |= {name: item for name, item in named.items() if item is not None}
        data = self._data(facts, inputs)
        data = data if want is None else data.wanting(read_want(self.plan, want))
        if data.stated.union(data.inputs).issuperset(self.inputs):
            self._step(data, {})
        elif data.facts is not None:
            check_alike(data.facts, self.plan, self._one.dtype)
        return data

    def load_data(self, path: str | Path) -> Data:
        """The data that `data.save` wrote, for a model of the same rules: nothing is joined.

        >>> import tempfile
        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> model.ground(x=torch.ones(2), edge=[(0, 1)]).save(path := tempfile.mkdtemp() + "/d")
        >>> model.load_data(path)
        <data: x, edge>
        """
        found: Data = import_module("edgewise.save").load_data(self, path)
        return found

    def _refuse_on_mesh(self, facts: object, want: object) -> None:
        if facts is not None or want is not None:
            raise BadInput(
                f"`{'facts' if want is None else 'want'}` is for one process",
                caller(),
                "give relations of keys by name: `model.ground(edge=edge, mesh=mesh)`",
            )

    def _data(self, facts: Iterable[FactLike] | ragged | None, inputs: dict[str, Any]) -> Data:
        """Inputs, checked but not joined."""
        read = self._reader.read_to_ground(inputs, self._one)
        data = Data(self._number, read, self._reader.facts(facts), open=facts is None)
        data.of = self._handle
        if data.samples is not None:
            data.batched = batched_inputs(self.plan, self._reader.arities, read)
        return data

    def samples(self, data: Data) -> list[Data]:
        """The samples of a grounded batch one by one, padded to one layout.

        Their parts are filled up to the longest sample's, so that one compiled step serves all.

        >>> import torch
        >>> from edgewise import Program, R, V, ragged
        >>> model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
        >>> len(model.samples(model.ground(x=ragged([torch.ones(2), torch.ones(3)]))))
        2
        """
        self._refuse_foreign(data)
        if data.demand is not None:
            raise BadWant(
                "samples are prepared for all rows, and the data is for some",
                caller(),
                "ground it without `want`: `model.samples(model.ground(...))`",
            )
        unit = self._one
        cpu = torch.device("cpu")
        found = []
        with untraced():
            listed = build_step(self, data, (), unit.dtype, cpu, apart=True)
            for step in padded_steps(listed):
                one = Data(self._number, {}, open=False, padded=True)
                one.keep(((), unit.dtype, str(unit.device)), to_device(step, unit.device))
                found.append(one)
        return found

    def forward(
        self,
        data: Data | None = None,
        /,
        *unnamed: Never,
        want: WantLike | None = None,
        **inputs: InputLike,
    ) -> Returned:
        """The output relation: a tensor where it is on dense axes, else explicit rows.

        Of a model with several outputs, a dictionary of them by name. `want` are keys, of several
        outputs by name: only what they need is computed, and the output is a tensor with a row
        for each, in order.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h)
        >>> (
        ...     model(x=torch.tensor([1.0, 3.0])).tolist(),
        ...     model(x=torch.tensor([1.0, 3.0]), want=[1]).tolist(),
        ... )
        ([2.0, 6.0], [6.0])
        """
        if unnamed:
            self._refuse_unnamed(unnamed[0] if isinstance(data, Data) else data)
        if want is not None:
            data, inputs = self._wanting(data, inputs, want)
        if not torch.compiler.is_compiling():
            if torch._C._is_tracing():
                raise _no_jit()
            found = self._again(data, inputs)
            if found is not None:
                return found
        if isinstance(data, Data) and data.is_partitioned:
            return data._output(self, inputs, as_rows=False)
        return self._output(data, inputs, as_rows=False)

    def rows(
        self,
        data: Data | None = None,
        /,
        *unnamed: Never,
        want: WantLike | None = None,
        **inputs: InputLike,
    ) -> Relation | dict[str, Relation]:
        """The output as a `Relation` of explicit rows, whatever its layout: only the atoms that
        hold. Of several outputs, a dictionary of them by name.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> dict(model.rows(x={"ann": 1.0, "bob": 2.0}, edge=[("ann", "bob")]))
        {R.h('bob'): tensor(1.)}
        """
        if unnamed:
            self._refuse_unnamed(unnamed[0] if isinstance(data, Data) else data)
        if want is not None:
            data, inputs = self._wanting(data, inputs, want)
        found: Any
        if isinstance(data, Data) and data.is_partitioned:
            found = data._output(self, inputs, as_rows=True)
        else:
            found = None
            if data is None and not torch.compiler.is_compiling():
                found = self._rerun(inputs, as_rows=True)
            if found is None:
                found = self._output(data, inputs, as_rows=True)
        return found

    @overload
    def batches(
        self,
        seeds: Data,
        /,
        *,
        batch: int = 1024,
        seed: int = 0,
        shuffle: bool = True,
        workers: int = 0,
        prefetch: int = 2,
        drop_last: bool = False,
    ) -> SampleBatches: ...
    @overload
    def batches(
        self,
        seeds: WantLike,
        data: Data | None = None,
        /,
        *,
        batch: int = 1024,
        most: Sequence[int | None] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        workers: int = 0,
        prefetch: int = 2,
        drop_last: bool = False,
        **inputs: InputLike,
    ) -> Batches: ...
    def batches(
        self,
        seeds: WantLike | Data,
        data: Data | None = None,
        /,
        *,
        batch: int = 1024,
        most: Sequence[int | None] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        workers: int = 0,
        prefetch: int = 2,
        drop_last: bool = False,
        **inputs: InputLike,
    ) -> Batches | SampleBatches:
        """Mini-batches of the samples of grounded data, `model.batches(data, batch=32)`, or of
        seeds, each with the part of the data that it needs.

        Without `most`, exact: `model(batch)` has the rows of the full output. `most=[15, 10]`
        samples: 15 groundings of each rule head at the first hop from the seeds, 10 at the next.
        Tensors among `inputs` are read at every call. A batch depends on `seed` and its number
        alone; `workers` are threads, each with `prefetch` batches ahead.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> data = model.ground(x=torch.arange(4.0), edge=[(0, 1), (1, 2), (2, 3)])
        >>> for batch in model.batches(torch.tensor([3, 1]), data, batch=1, shuffle=False):
        ...     print(batch.seeds.tolist(), model(batch).tolist())
        [3] [2.0]
        [1] [0.0]
        """
        options: dict[str, Any] = {"batch": batch, "seed": seed, "shuffle": shuffle}
        options |= {"workers": workers, "prefetch": prefetch, "drop_last": drop_last}
        if isinstance(seeds, Data):
            self._refuse_foreign(seeds)
            if data is not None or most is not None or inputs:
                raise BadBatches(
                    "batches of samples take no other data, inputs or `most`",
                    caller(),
                    "ground all inputs of the samples: `model.batches(model.ground(...))`",
                )
            made = import_module("edgewise.batches").SampleBatches
            return made(self, seeds, len(seeds), **options)
        held, more = self._to_batch(data, inputs)
        made = import_module("edgewise.batches").Batches
        return made(self, seeds, held, more, most=most, **options)

    def _to_batch(
        self, data: Data | None, inputs: dict[str, Any]
    ) -> tuple[Data, dict[str, torch.Tensor]]:
        """Data of which batches are parts, and tensors that are read at every call."""
        held = self._cache if data is None else data
        self._refuse_foreign(held)
        read = self._reader.read(inputs, self._one)
        more = dense(read)
        rest = {name: item for name, item in read.items() if name not in more}
        if rest:
            check_numbers(rest)
            held = Data(self._number, {**held.inputs, **rest}, held.facts, held.open)
        return held, more

    def updating(self, *, facts: Iterable[FactLike] = (), **inputs: InputLike) -> Updating:
        """The output, recomputed where edits of facts change it; see `edgewise.update`.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> updating = model.updating(facts=[R.x(0)[1.0], R.x(1)[2.0], R.edge(0, 1)])
        >>> dict(updating.add([R.edge(0, 2)]))
        {R.h(1): tensor(1.), R.h(2): tensor(1.)}
        """
        return import_module("edgewise.update").Updating(self, facts, inputs)

    def growing(self, capacity: int, **fixed: InputLike) -> Growing:
        """A causal model to which rows are appended, with a KV cache; see `edgewise.grow`.

        `fixed` inputs are the same for all rows; the others come with every call.

        >>> import torch
        >>> from edgewise import F, Program, R, V
        >>> rules = [
        ...     (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), V.J <= V.I))
        ...     | [F.product, F.softmax_agg(agg_terms=[V.J])],
        ...     (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ... ]
        >>> growing = Program(rules).compile(R.h).growing(8)
        >>> growing(x=torch.ones(3, 4)).shape, growing(x=torch.ones(1, 4)).shape
        (torch.Size([3, 4]), torch.Size([1, 4]))
        """
        return import_module("edgewise.grow").Growing(self, capacity, fixed)

    @overload
    def explain(
        self,
        data: Data | None = None,
        /,
        *,
        stage: str | None = None,
        mesh: DeviceMesh | Shards | int | None = None,
        json: Literal[False] = False,
        **inputs: InputLike,
    ) -> Explanation: ...
    @overload
    def explain(
        self,
        data: Data | None = None,
        /,
        *,
        stage: str | None = None,
        mesh: DeviceMesh | Shards | int | None = None,
        json: Literal[True],
        **inputs: InputLike,
    ) -> dict[str, Any]: ...
    def explain(
        self,
        data: Data | None = None,
        /,
        *,
        stage: str | None = None,
        mesh: DeviceMesh | Shards | int | None = None,
        json: bool = False,
        **inputs: InputLike,
    ) -> Explanation | dict[str, Any]:
        """Rules, plan, passes and kernels, as text or JSON; see `edgewise.explain`.

        With one axis of a `mesh`, a number of ranks or `Shards`, also the bytes that ranks would
        send, by kind, beside all-gather and Ulysses: computed, for inputs of one process.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._x(V.I), V.J <= V.I)]).compile(R.h)
        >>> print(*str(model.explain(x=torch.ones(4), stage="kernels")).splitlines()[:3], sep="\\n")
        kernels
          inputs: x dense 4
          h: dense 4, a scalar
        """
        found = import_module("edgewise.explain").explain(self, data, inputs, stage, mesh)
        return found.to_json() if json else found

    def profile(
        self, data: Data | None = None, /, *, backward: bool = False, **inputs: InputLike
    ) -> Profile:
        """The time of every rule for these inputs; see `edgewise.profile`.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h)
        >>> sorted(model.profile(x=torch.ones(4)).to_json())
        ['backward', 'device', 'entries', 'forward', 'repeats']
        """
        return import_module("edgewise.profile").profile(self, data, inputs, backward=backward)

    def why(
        self, atom: nodes.Atom, data: Data | None = None, /, *, sample: int = 0, **inputs: InputLike
    ) -> Why:
        """The groundings behind a value, with the current weights; no others are joined.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h <= R.x(V.I)]).compile(R.h)
        >>> print(model.why(R.h, x=torch.tensor([1.0, 3.0])))
        R.h = 4
        R.h <= R.x(V.I)
          sum_agg over 2 groundings
           share                contribution  I  from
           75.0%  ████████████  3             1  x(1) = 3
           25.0%  ████          1             0  x(0) = 1
        """
        return import_module("edgewise.replay").why(self, atom, data, inputs, sample)

    def draw(self, *items: Data | nodes.Atom, sample: int = 0, **inputs: InputLike) -> Picture:
        """The network that data and inputs ground to, or the part behind `atoms`, as SVG.

        Without data the rules themselves.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h <= R.x(V.I)]).compile(R.h)
        >>> model.draw(R.h, x=torch.tensor([1.0, 3.0])).svg[:4]
        '<svg'
        """
        return import_module("edgewise.replay").draw(self, items, inputs, sample)


def _no_jit() -> NoTransform:
    return NoTransform(
        "`torch.jit.trace` cannot trace a compiled model: it records the results of kernels",
        caller(),
        "use `torch.export.export`, or `torch.compile` without an export",
    )


__all__ = ["Data", "Model", "Relation"]
